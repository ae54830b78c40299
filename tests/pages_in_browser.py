"""Open pages in headless Chromium, and measure what they show."""

import re
import shutil

import numpy as np


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


def open_page(browser, page, width=1280, height=900, *, dark=False):
    """Open a file or an address in a window of this width, such as a phone's; assert that there are no errors."""
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("browser")
    browser.get(page if isinstance(page, str) else page.as_uri())
    errors = [entry["message"] for entry in browser.get_log("browser")]
    assert errors == [], errors


def find(browser, selector):
    return browser.find_elements("css selector", selector)


def luminance(colour):
    """Return the relative luminance of a CSS rgb(...), as defined by WCAG 2."""
    red, green, blue = (int(n) / 255 for n in re.findall(r"\d+", colour)[:3])
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))
