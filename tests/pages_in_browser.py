"""Open pages in headless Chromium, act on them, and measure what they show."""

import contextlib
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.support.wait import WebDriverWait

from page.__main__ import main as page_command
from page.template import joined

ROOT = Path(__file__).parent.parent
AXE = ROOT / ".ci/node_modules/axe-core/axe.min.js"


class Browser(webdriver.Chrome):
    """Headless Chromium. Raises LookupError without the programs."""

    def __init__(self):
        path, driver = shutil.which("chromium"), shutil.which("chromedriver")
        if not (path and driver):
            raise LookupError("chromium and chromium-driver")
        options = webdriver.ChromeOptions()
        options.binary_location = path
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        super().__init__(options, webdriver.ChromeService(driver))

    def open_page(self, page, width=1280, height=900, *, dark=False):
        """Open a file in a window of this width, such as a phone's; assert that there are no errors."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.leave_page()  # so that this is a new visit also to the page that is open
        self.get_log("browser")  # one that has trained asks before it is left
        self.get(page.as_uri())
        errors = [entry["message"] for entry in self.get_log("browser")]
        assert errors == [], errors

    def open_models(self, *models, options=(), **window):
        """Open the page of models, given by their paths; it is page.html in the working directory."""
        command = ["--checkpoint", *map(str, models), *options, "--no-browser", "--output", "page.html"]
        assert page_command(command) == 0
        self.open_page(Path("page.html").resolve(), **window)
        self.wait_for_maps()

    def leave_page(self):
        """Open an empty page. Meanwhile, Chromium may drop another visit, for which the driver would wait in vain."""
        self.get("about:blank")
        self.wait_for(lambda: self.execute_script("return location.href") == "about:blank")

    def find(self, selector):
        return self.find_elements("css selector", selector)

    def wait_for(self, condition, timeout_s=180):
        """Wait until a condition holds of the page, which may replace its elements meanwhile."""
        passing = (StaleElementReferenceException, IndexError)
        WebDriverWait(None, timeout_s, 0.01, passing).until(lambda _: condition())

    def wait_to_find(self, expected, look):
        with contextlib.suppress(TimeoutException):
            self.wait_for(lambda: look() == expected, 30)
        found = look()
        assert found == expected, found

    def wait_for_maps(self):
        """Wait until the page shows the maps of its heads, and writes nothing."""
        self.wait_for(lambda: self.find("#looks > *"))
        self.wait_for(self.can_continue)

    def texts(self, selector):
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        return self.execute_script(script, selector)

    def said(self, selector="#said"):
        return "".join(self.texts(selector))

    def rows(self, selector):
        script = """return [...document.querySelectorAll(arguments[0])].map(
            (row) => [...row.children].map((cell) => cell.textContent))"""
        return self.execute_script(script, selector)

    def query(self):
        script = "return [...document.querySelectorAll('.text span')].findIndex((e) => e.matches('.query'))"
        return self.execute_script(script)

    def set_caret(self, place):
        script = "arguments[0].setSelectionRange(arguments[1], arguments[1]); arguments[0].click()"
        self.execute_script(script, self.find("#text")[0], place)

    def type_text(self, text):
        """Set the text of the box, also to characters that the driver cannot type."""
        box = self.find("#text")[0]
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        self.execute_script(script, box, text)
        return box

    def choose_head(self, h):
        self.execute_script("document.querySelectorAll('.head')[arguments[0]].click()", h)

    def open_details(self):
        self.execute_script("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        self.wait_for(lambda: self.find("#lines td") and self.find("#guesses .bars"))

    def click(self, selector):
        self.execute_script("arguments[0].click()", self.find(selector)[0])

    def set_field(self, name, value):
        self.execute_script("arguments[0].value = arguments[1]", self.find(f"[name={name}]")[0], value)

    def choose(self, **fields):
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
        self.execute_script(script, [(name, str(each)) for name, each in fields.items()])

    def paste(self, text):
        self.click("#own-text")
        self.execute_script("document.querySelector('#pasted').value = arguments[0]", text)
        self.click("#take [value=use]")

    def value(self):
        return self.find("#text")[0].get_property("value")

    def can_press(self, selector):
        return self.find(selector)[0].get_attribute("aria-disabled") != "true"

    def can_continue(self):
        return self.texts("#write") == ["Continue"]

    def continue_text(self, selector="#write"):
        self.click(selector)
        self.wait_for(self.can_continue)

    def misplaced(self):
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
        found = self.execute_script(script)
        return [character for character, is_there in found if not is_there], len(found)

    def run_in_worker(self, modules, code, **given):
        """Return what an async function with this code returns in a worker that has these modules.

        given: its arguments by name, which can become JSON, as must be what it returns.
        """
        script = f"""{joined(*(ROOT / "page" / name for name in modules))}
            const once = async ({{ {", ".join(given)} }}) => {{ {code} }};
            const fail = ({{ stack }}) => postMessage({{ error: stack }});
            onmessage = ({{ data }}) => once(data).then(postMessage, fail);"""
        self.leave_page()
        ask = """const worker = new Worker(URL.createObjectURL(new Blob([arguments[0]])));
            worker.onmessage = ({ data }) => arguments[2](data);
            worker.onerror = ({ message }) => arguments[2]({ error: message });
            worker.postMessage(arguments[1]);"""
        self.set_script_timeout(300)
        answer = self.execute_async_script(ask, script, given)
        assert "error" not in answer, answer["error"]
        return answer

    def overlaps(self):
        """Return the pairs of texts in sight of which one lies over the other."""
        script = """const pieces = [];  // of text in sight: the element, and the place of a line of it
            const others = "a, option, script, template, noscript, svg *, .under *, textarea";
            for (const element of document.querySelectorAll(`body *:not(${others})`)) {
              if (!element.checkVisibility()) continue;
              const frames = [];
              for (let outer = element; outer; outer = outer.parentElement) {
                if (getComputedStyle(outer).overflowY !== "visible") frames.push(outer.getBoundingClientRect());
              }
              for (const node of element.childNodes) {
                if (node.nodeType !== 3 || !node.data.trim()) continue;
                const range = document.createRange();
                range.selectNodeContents(node);
                for (const line of range.getClientRects()) {
                  const all = [line, ...frames];
                  const [left, top] = ["left", "top"].map((side) => Math.max(...all.map((p) => p[side])));
                  const [right, bottom] = ["right", "bottom"].map((side) => Math.min(...all.map((p) => p[side])));
                  pieces.push([element, left, right, top, bottom]);
                }
              }
            }
            const words = (element) => `${element.tagName} ${element.textContent.slice(0, 40)}`;
            return pieces.flatMap(([a, left, right, top, bottom], i) => pieces.slice(i + 1)
              .filter(([b, ...place]) => a !== b && Math.min(right, place[1]) - Math.max(left, place[0]) > 2
                && Math.min(bottom, place[3]) - Math.max(top, place[2]) > 4)
              .map(([b]) => [words(a), words(b)]))"""
        return self.execute_script(script)

    def check_looks(self, width, *, dark):
        """Assert that the page fits its window, no texts overlap, fields have names, and text has WCAG 2's contrast."""
        assert self.overlaps() == []
        assert self.execute_script("return document.documentElement.scrollWidth") <= width
        assert (luminance(self.execute_script("return getComputedStyle(document.body).backgroundColor")) < 0.1) == dark
        selectors = "p, .faint, td, label, h2, h3, summary, a, button:enabled, figure svg text"
        script = """const behind = (e) => {
              const { backgroundColor: colour } = getComputedStyle(e);
              return /, 0\\)$/.test(colour) && e.parentElement ? behind(e.parentElement) : colour;
            };
            return [...document.querySelectorAll(arguments[0])].map(
              (e) => [getComputedStyle(e)[e.closest("svg") ? "fill" : "color"], behind(e), e.textContent])"""
        for colour, own_ground, text in self.execute_script(script, selectors):
            lighter, darker = sorted((luminance(colour), luminance(own_ground)), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, text
        fields = [field for field in self.find("input, textarea, select, button") if field.is_displayed()]
        assert [field.get_attribute("outerHTML") for field in fields if not field.accessible_name] == []

    def faults_found_by_axe(self):
        """Return the faults of a page that axe-core finds, each with the element; skip the test if it is missing."""
        if not AXE.is_file():
            pytest.skip("needs axe-core, see CONTRIBUTING.md")
        self.execute_script(AXE.read_text(encoding="utf-8"))
        script = """axe.run().then(({ violations }) => arguments[0](violations.flatMap(
            ({ id, nodes }) => nodes.map(({ html }) => [id, html]))))"""
        return self.execute_async_script(script)


def luminance(colour):
    """Return the relative luminance of a CSS rgb(...), as defined by WCAG 2."""
    red, green, blue = (int(n) / 255 for n in re.findall(r"\d+", colour)[:3])
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))
