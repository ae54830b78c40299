"""A person with a new clone of the project, who types the commands of its pages and looks at what they write."""

import base64
import contextlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from conftest import ROOT, run_command
from helpers import heed_signals
from pages_in_browser import check_looks, find, open_page, wait_for, wait_for_maps

SIZES = ((1280, 900), (390, 844))  # of a laptop's window and of a phone


class Person:
    """The clone is in `home`. Pictures of pages go to the folder SCREENSHOTS, if that is set, or beside the clone."""

    def __init__(self, folder, browser, **environment):
        self.home, self.browser = folder / "gpt", browser
        self.environment = os.environ | {"PYTHONUNBUFFERED": "1"} | environment
        self.pictures = Path(os.environ.get("SCREENSHOTS", folder / "pictures"))
        self.pictures.mkdir(parents=True, exist_ok=True)
        print(f"Pictures are in {self.pictures}")
        run_command(["git", "clone", "--quiet", str(ROOT), str(self.home)]).check_returncode()

    def types(self, command, *, status=0, folder="."):
        """Run a command to its end, in a folder of the clone; return what a terminal would show."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        process = subprocess.run(_words(command), cwd=self.home / folder, env=self.environment, timeout=300, **options)
        screen = process.stdout.decode("utf-8")
        assert (process.returncode, "Traceback" in screen) == (status, False), f"{command}\n{screen}"
        return screen

    def mistypes(self, command):
        """Run a command that has a mistake; return the one line that says what to do."""
        screen = self.types(command, status=2)
        line = screen.splitlines()[-1]
        assert [each for each in screen.splitlines() if not each.startswith("Sampling on ")] == [line], screen
        return line

    @contextlib.contextmanager
    def beside(self, command):
        """Run a command in another terminal, during the block; give its process and the file with its screen."""
        screen = self.home.parent / "screen.txt"
        with screen.open("wb") as output:
            options = {"stdout": output, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
            where = {"cwd": self.home, "env": self.environment, "preexec_fn": heed_signals}
            process = subprocess.Popen(_words(command), **where, **options)
        try:
            yield process, screen
        finally:
            process.kill()
            process.wait()

    def writes(self, name, content):
        (self.home / name).write_text(content, encoding="utf-8")

    def reads(self, name):
        return (self.home / name).read_text(encoding="utf-8")

    def records(self, run):
        """Return the records of a run, without the reader that the commands use."""
        return [json.loads(line) for line in self.reads(f"{run}/metrics.jsonl").splitlines()]

    def best_loss(self, run):
        return min(record["val_loss"] for record in self.records(run) if "val_loss" in record)

    def looks_at(self, page, name):
        """Open a page in both sizes, take a picture of all of it, and leave it open in the first one."""
        for width, height in reversed(SIZES):
            open_page(self.browser, self.home / page, width, height)
            if find(self.browser, "#text"):
                script = "document.querySelectorAll('.inside').forEach((each) => (each.open = true))"
                self.browser.execute_script(script)
                wait_for_maps(self.browser)
            wait_for(lambda: find(self.browser, "table tbody tr"))
            check_looks(self.browser, width, dark=False)
            self.takes_a_picture(f"{name}-{width}")

    def looks_at_chart(self, chart, name):
        open_page(self.browser, self.home / chart, *SIZES[0])
        self.takes_a_picture(name)

    def takes_a_picture(self, name):
        """Save what the browser shows, and what is below it, as a PNG."""
        size = "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]"
        width, height = self.browser.execute_script(size)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        how = {"clip": clip, "captureBeyondViewport": True}
        picture = self.browser.execute_cdp_cmd("Page.captureScreenshot", how)
        (self.pictures / f"{name}.png").write_bytes(base64.b64decode(picture["data"]))


def _words(command):
    program, *words = shlex.split(command)
    assert program == "python"
    return [sys.executable, *words]
