"""Chromium for tests: find it, or skip the test."""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oracles
import pytest
from oracles import REQUIRED

_FLAGS = """
    --headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run
    --disable-background-networking --disable-component-update --disable-sync
    --window-size=1280,900
""".split()


def _program(*names: str) -> str:
    """Return the path of a program; if it is missing, skip the test, or fail if it is required."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        reason = f"{names[0]} is not installed: apt-get install chromium chromium-driver"
        assert "chromium" not in REQUIRED, reason
        pytest.skip(reason)
    return found


def _selenium() -> Any:
    if "chromium" not in REQUIRED:
        oracles.need("selenium")
    return importlib.import_module("selenium.webdriver")


def keys() -> Any:
    """Return the names of special keys."""
    return importlib.import_module("selenium.webdriver.common.keys").Keys


def select(element: Any) -> Any:
    """Return an object that chooses from a select element."""
    return importlib.import_module("selenium.webdriver.support.ui").Select(element)


class Browser:
    """A browser with one page open."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path) -> None:
        """Open a page from the disk and wait until it is ready."""
        self.driver.get(path.as_uri())
        self.wait("await ready")

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page, and return its value, passed as JSON."""
        wrapped = f"return JSON.stringify((function () {{ {script} }}).apply(null, arguments))"
        found = self.driver.execute_script(wrapped, *arguments)
        return None if found is None else json.loads(found)

    def wait(self, script: str, *arguments: Any) -> Any:
        """Run a script that awaits."""
        wrapped = (
            "const given = Array.from(arguments), done = given.pop();"
            f"(async function () {{ {script} }}).apply(null, given)"
            ".then((value) => done(JSON.stringify([value ?? null])))"
            ".catch((error) => done(JSON.stringify({error: String(error.stack)})))"
        )
        found = json.loads(self.driver.execute_async_script(wrapped, *arguments))
        assert isinstance(found, list), found
        return found[0]

    def until(self, script: str, *arguments: Any) -> None:
        """Wait until a script returns true."""
        give_up = time.monotonic() + 600
        while not self.run(script, *arguments):
            assert time.monotonic() < give_up, f"never came true: {script}"
            time.sleep(0.02)

    def find(self, selector: str) -> list[Any]:
        """Return the elements that a CSS selector finds."""
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def hover(self, element: Any) -> None:
        """Move the pointer to an element."""
        chains = importlib.import_module("selenium.webdriver.common.action_chains")
        chains.ActionChains(self.driver).move_to_element(element).perform()

    def press(self, key: str) -> None:
        """Press a key, wherever the focus is."""
        chains = importlib.import_module("selenium.webdriver.common.action_chains")
        chains.ActionChains(self.driver).send_keys(key).perform()

    def emulate(self, command: str, **settings: Any) -> None:
        self.driver.execute_cdp_cmd(f"Emulation.{command}", settings)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser with a fresh profile, and end it afterward."""
    webdriver = _selenium()
    program, driver = _program("chromium", "chromium-browser"), _program("chromedriver")
    service = webdriver.ChromeService(driver)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        running = webdriver.Chrome(options=options, service=service)
        try:
            running.set_script_timeout(300)
            yield Browser(running)
        finally:
            running.quit()
