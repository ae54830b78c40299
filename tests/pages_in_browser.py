"""Open pages in headless Chromium, act on them, and measure what they show."""

import contextlib
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from page.__main__ import main as page_command
from page.template import joined

ROOT = Path(__file__).parent.parent
AXE = ROOT / ".ci/node_modules/axe-core/axe.min.js"


def chromium():
    """Return headless Chromium. Raises ImportError without selenium, LookupError without the programs."""
    from selenium import webdriver

    path, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (path and driver):
        raise LookupError("chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = path
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options, webdriver.ChromeService(driver))


def open_page(browser, page, width=1280, height=900, *, dark=False, moves=False):
    """Open a file in a window of this width, such as a phone's; assert that there are no errors.

    moves: whether the visitor likes movement, such as words that appear letter by letter.
    """
    likes = {"color-scheme": "dark" if dark else "light", "reduced-motion": "no-preference" if moves else "reduce"}
    features = [{"name": f"prefers-{name}", "value": value} for name, value in likes.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    leave_page(browser)  # so that this is a new visit also to the page that is open
    browser.get_log("browser")  # one that has trained asks before it is left
    browser.get(page.as_uri())
    errors = [entry["message"] for entry in browser.get_log("browser")]
    assert errors == [], errors


def open_models(browser, *models, options=(), **window):
    """Open the page of models, given by their paths, as it begins; the page is page.html in the working directory."""
    command = ["--checkpoint", *map(str, models), *options, "--no-browser", "--output", "page.html"]
    assert page_command(command) == 0
    open_page(browser, Path("page.html").resolve(), **window)
    wait_for_maps(browser)
    if can_press(browser, "#undo"):
        click(browser, "#undo")  # the first words


def leave_page(browser):
    """Open an empty page. Until it is there, Chromium may drop another visit, for which the driver waits in vain."""
    browser.get("about:blank")
    wait_for(lambda: browser.execute_script("return location.href") == "about:blank")


def find(browser, selector):
    return browser.find_elements("css selector", selector)


def wait_for(condition, timeout_s=180):
    """Wait until a condition holds of the page, which may replace its elements meanwhile."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.wait import WebDriverWait

    passing = (StaleElementReferenceException, IndexError)
    WebDriverWait(None, timeout_s, 0.01, passing).until(lambda _: condition())


def wait_to_find(expected, look):
    """Wait until `look` returns what is expected; assert that it does."""
    from selenium.common.exceptions import TimeoutException

    with contextlib.suppress(TimeoutException):
        wait_for(lambda: look() == expected, 30)
    found = look()
    assert found == expected, found


def wait_for_maps(browser):
    """Wait until the page shows the maps of its heads, and writes nothing."""
    wait_for(lambda: find(browser, "#looks > *"))
    wait_for(lambda: can_continue(browser))


def luminance(colour):
    """Return the relative luminance of a CSS rgb(...), as defined by WCAG 2."""
    red, green, blue = (int(n) / 255 for n in re.findall(r"\d+", colour)[:3])
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def texts(browser, selector):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector
    )


def rows(browser, selector):
    script = (
        "return [...document.querySelectorAll(arguments[0])].map((row) => [...row.children].map((c) => c.textContent))"
    )
    return browser.execute_script(script, selector)


def query(browser):
    """Return the place of the chosen character."""
    return browser.execute_script(
        "return [...document.querySelectorAll('.text span')].findIndex((e) => e.matches('.query'))"
    )


def set_caret(browser, place):
    script = "arguments[0].setSelectionRange(arguments[1], arguments[1]); arguments[0].click()"
    browser.execute_script(script, find(browser, "#text")[0], place)


def type_text(browser, text):
    """Set the text of the box, also to characters that the driver cannot type."""
    box = find(browser, "#text")[0]
    browser.execute_script(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", box, text
    )
    return box


def choose_head(browser, h):
    """Press the h-th of all heads."""
    browser.execute_script("document.querySelectorAll('.head')[arguments[0]].click()", h)


def open_details(browser):
    """Open all that is folded, and wait for its numbers."""
    browser.execute_script("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    wait_for(lambda: find(browser, "#lines td") and find(browser, "#guesses .bars"))


def click(browser, selector):
    browser.execute_script("arguments[0].click()", find(browser, selector)[0])


def set_field(browser, name, value):
    browser.execute_script("arguments[0].value = arguments[1]", find(browser, f"[name={name}]")[0], value)


def choose(browser, **fields):
    """Set fields of the bar, given by name or id, as a visitor does, also to a value that it does not offer."""
    script = """for (const [name, value] of arguments[0]) {
          const radio = document.querySelector(`#bar [type=radio][name=${name}][value="${value}"]`);
          if (radio) {
            radio.click();
            continue;
          }
          const select = document.querySelector(`#bar select[name=${name}], select#${name}`);
          const isOffered = [...select.options].some((option) => option.value === value);
          if (!isOffered) select.add(new Option(value, value));
          select.value = value;
          select.dispatchEvent(new Event("change", { bubbles: true }));
        }"""
    browser.execute_script(script, [(name, str(each)) for name, each in fields.items()])


def paste(browser, text):
    """Give the page a text to learn."""
    click(browser, "#own-text")
    browser.execute_script("document.querySelector('#pasted').value = arguments[0]", text)
    click(browser, "#take [value=use]")


def value(browser):
    """Return the text of the box."""
    return find(browser, "#text")[0].get_property("value")


def can_press(browser, selector):
    return find(browser, selector)[0].get_attribute("aria-disabled") != "true"


def can_continue(browser):
    return texts(browser, "#write") == ["Continue"]


def continue_text(browser, selector="#write"):
    """Press Continue, or another button that lets the model write, and wait for the end."""
    click(browser, selector)
    wait_for(lambda: can_continue(browser))


def misplaced(browser):
    """Return the shaded characters in sight that lie elsewhere than in the box, and how many are in sight."""
    script = """const box = document.querySelector("#text"), sheet = document.querySelector(".sheet");
        sheet.scrollIntoView({ block: "nearest" });
        const spans = [...document.querySelectorAll(".text span")], frame = sheet.getBoundingClientRect();
        let at = box.value.length - spans.reduce((sum, span) => sum + span.textContent.length, 0);
        const found = [];
        for (const span of spans) {
          const { left, width, top, bottom } = span.getBoundingClientRect(), place = at;
          at += span.textContent.length;
          if (!/[\\x21-\\x7e]/.test(span.textContent) || top < frame.top || bottom > frame.bottom) continue;
          const caret = document.caretPositionFromPoint(left + width / 4, (top + bottom) / 2);
          found.push([span.textContent, caret.offsetNode === box && caret.offset === place]);
        }
        return found"""
    found = browser.execute_script(script)
    return [character for character, is_there in found if not is_there], len(found)


def run_in_worker(browser, modules, code, **given):
    """Return what an async function with this code returns in a worker that has these modules of the page.

    given: its arguments by name, which can become JSON, as must be what it returns.
    """
    script = f"""{joined(*(ROOT / "page" / name for name in modules))}
        const once = async ({{ {", ".join(given)} }}) => {{ {code} }};
        onmessage = ({{ data }}) => once(data).then(postMessage, ({{ stack }}) => postMessage({{ error: stack }}));"""
    leave_page(browser)
    ask = """const worker = new Worker(URL.createObjectURL(new Blob([arguments[0]])));
        worker.onmessage = ({ data }) => arguments[2](data);
        worker.onerror = ({ message }) => arguments[2]({ error: message });
        worker.postMessage(arguments[1]);"""
    browser.set_script_timeout(300)
    answer = browser.execute_async_script(ask, script, given)
    assert "error" not in answer, answer["error"]
    return answer


def check_looks(browser, width, *, dark):
    """Assert that the page fits its window, that fields have names, and that text has WCAG 2's contrast of 4.5 to 1."""
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert (luminance(browser.execute_script("return getComputedStyle(document.body).backgroundColor")) < 0.1) == dark
    selectors = "p, .faint, td, label, h2, h3, summary, a, button:enabled, figure svg text"
    script = """const behind = (e) => {
          const { backgroundColor: colour } = getComputedStyle(e);
          return /, 0\\)$/.test(colour) && e.parentElement ? behind(e.parentElement) : colour;
        };
        return [...document.querySelectorAll(arguments[0])].map(
          (e) => [getComputedStyle(e)[e.closest("svg") ? "fill" : "color"], behind(e), e.textContent])"""
    for colour, own_ground, text in browser.execute_script(script, selectors):
        lighter, darker = sorted((luminance(colour), luminance(own_ground)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, text
    fields = [field for field in find(browser, "input, textarea, select, button") if field.is_displayed()]
    assert [field.get_attribute("outerHTML") for field in fields if not field.accessible_name] == []


def faults_found_by_axe(browser):
    """Return the faults of a page that axe-core finds, each with the element; skip the test if it is missing."""
    if not AXE.is_file():
        pytest.skip("needs axe-core, see CONTRIBUTING.md")
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    script = """axe.run().then(({ violations }) => arguments[0](violations.flatMap(
        ({ id, nodes }) => nodes.map(({ html }) => [id, html]))))"""
    return browser.execute_async_script(script)
