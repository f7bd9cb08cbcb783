"""JupyterLab in a real Chromium, driven as a person does: menus, launcher, cells, dialogs.

Both programs are the system's (Debian: chromium, chromium-driver); nothing is downloaded. Outcomes are awaited in the
page, with one limit for all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_front import TOKEN, eventually

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1300,1000",
    "--force-device-scale-factor=1",
)
QUIET = (
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.news_url=None",
    "--LabApp.extension_manager=readonly",
)
"""JupyterLab asks the network for news, for its newest version and for extensions: the tests have none."""

REPLY_SECONDS = 60.0


def program(*names: str) -> str:
    """Where one of these programs is; a test that has none fails, and says what is to be installed."""
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.fail(f"{' or '.join(names)} is not on PATH (Debian: apt-get install chromium chromium-driver)")


class Lab:
    """`rlm-memory lab` as a process of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        self.output = (folder.parent / "lab.out").open("ab")
        options = [f"--ServerApp.port={self.port}", f"--IdentityProvider.token={TOKEN}", "--allow-root", "--no-browser"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rlm_memory_host", "lab", *options, *QUIET],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
        )
        eventually(self._answers, "JupyterLab answers")

    def address(self, path: str = "lab") -> str:
        return f"http://127.0.0.1:{self.port}/{path}?token={TOKEN}"

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.said()
        try:
            with urllib.request.urlopen(self.address("api/status"), timeout=REPLY_SECONDS):
                return True
        except urllib.error.URLError:
            return False

    def said(self) -> str:
        return Path(self.output.name).read_text()

    def end(self) -> int:
        """Stop it as Ctrl-C does, with no question asked; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(REPLY_SECONDS)
        self.output.close()
        return code


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser with an empty profile, closed at the end."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium", "chromium-browser", "google-chrome")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path=program("chromedriver"), env=dict(os.environ))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield driver
    finally:
        driver.quit()


class LabPage:
    """The page, in the words of what a person sees there."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def all(self, css: str) -> list[Any]:
        return self.driver.find_elements("css selector", css)

    def the(self, css: str, text: str = "") -> Any:
        """The visible element of that selector with that text in it, once there is one."""
        from selenium.common.exceptions import StaleElementReferenceException

        def look() -> Any:
            with contextlib.suppress(StaleElementReferenceException):
                return next((item for item in self.all(css) if item.is_displayed() and text in item.text), None)
            return None

        return eventually(look, f"{css} {text!r} is shown")

    def click(self, css: str, text: str = "") -> None:
        """Click it as soon as nothing lies over it."""
        from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException

        def attempt() -> bool:
            with contextlib.suppress(ElementClickInterceptedException, StaleElementReferenceException):
                self.the(css, text).click()
                return True
            return False

        eventually(attempt, f"{css} {text!r} can be clicked")

    def open_notebook(self, lab: Lab, kernel: str) -> None:
        """Open JupyterLab and pick the kernel in the launcher; returns once it is idle."""
        self.driver.get(lab.address())
        self.click(".jp-LauncherCard[data-category='Notebook']", kernel)
        self.wait_idle(kernel)

    def wait_idle(self, kernel: str) -> None:
        """Wait until the status bar says that the kernel is idle: a cell that is run before is not run at all."""
        self.the(".jp-StatusBar-Widget", f"{kernel} | Idle")

    def menu(self, name: str, command: str) -> None:
        """Choose a menu entry; JupyterLab marks each with its command."""
        self.click(".lm-MenuBar-itemLabel", name)
        self.click(f".lm-Menu-item[data-command='{command}']:not(.lm-mod-disabled)")

    def choose_theme(self, name: str) -> None:
        self.click(".lm-MenuBar-itemLabel", "Settings")
        self.click(".lm-Menu-item", "Theme")
        self.click(".lm-Menu-item[data-command='apputils:change-theme']", name)
        look = "return document.body.dataset.jpThemeName"
        eventually(lambda: self.driver.execute_script(look) == name, f"the theme is {name}")

    def run_cell(self, code: str) -> None:
        """Write one line into the notebook's active cell and run it with Shift+Enter."""
        from selenium.webdriver import Keys
        from selenium.webdriver.common.action_chains import ActionChains

        self.click(".jp-Notebook .jp-Cell.jp-mod-active .cm-content")
        self.driver.switch_to.active_element.send_keys(code)
        ActionChains(self.driver).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()

    def prompts(self) -> list[str]:
        return [element.text for element in self.all(".jp-Notebook .jp-CodeCell .jp-InputPrompt")]

    def executed(self, number: int) -> Any:
        """The cell with that number, once it has ended."""
        ended = f"[{number}]:"
        eventually(lambda: ended in self.prompts(), f"cell {number} ends")
        return self.all(".jp-Notebook .jp-CodeCell")[self.prompts().index(ended)]

    def complaints(self) -> list[str]:
        """What the page's console calls an error since this was last asked.

        But for JupyterLab's own question whether the name of a new notebook is free, which the server answers with 404.
        """
        told = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        return [line for line in told if not ("/api/contents/Untitled" in line and "404" in line)]
