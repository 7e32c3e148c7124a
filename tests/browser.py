"""A headless Chromium for tests of pages: it runs scripts, reads the console and takes screenshots.

Chromium is controlled with its DevTools protocol over a pipe [1]_, so that no package is needed. A test uses
the fixture ``browser``, which skips the test if there is no Chromium.

References
----------
.. [1] https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from waiting import PATIENCE_S

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # root cannot use Chromium's sandbox; all pages are our own
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
)
KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    " ": (32, " "),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
}


def find_chromium() -> str | None:
    """Return the path of a Chromium, or None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A Chromium that runs until it is closed."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mini_dnn-chromium-", ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        shell = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'  # the protocol has these two numbers
        command = ["bash", "-c", shell, program, *OPTIONS, f"--user-data-dir={self._folder.name}"]
        with (Path(self._folder.name) / "stderr").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, pass_fds=(theirs_in, theirs_out)
            )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def open(self, page: Path | str, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """Open a file or an address in a window of the given size. Return once it is loaded."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        found = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log"):
            found.send(f"{domain}.enable")
        found.resize(width, height)
        found.set_dark(dark)
        address = page.resolve().as_uri() if isinstance(page, Path) else page
        found.go(address)
        return found

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send one command of the protocol and return its answer.

        Events that come before the answer are kept.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") != self._number:
                self.events.append(answer)
                continue
            assert "error" not in answer, f"{method}: {answer['error']}"
            result: dict[str, Any] = answer["result"]
            return result

    def wait(self, method: str, session: str) -> dict[str, Any]:
        """Wait for the next event of the given kind and return it."""
        seen = 0
        while True:
            for at, event in enumerate(self.events[seen:], seen):
                if event["method"] == method and event.get("sessionId") == session:
                    return self.events.pop(at)
            seen = len(self.events)
            self.events.append(self._receive())

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0, end - time.monotonic()))
            chunk = os.read(self._in, 1 << 20) if ready else b""
            log = Path(self._folder.name) / "stderr"
            assert chunk, f"Chromium does not answer: {log.read_text(errors='replace')[-2000:]}"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """End Chromium and remove its profile."""
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()


class Page:
    """A page in its own window."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command of the protocol to this page."""
        return self._browser.send(method, self._session, **params)

    def go(self, address: str) -> None:
        """Load another page in this window."""
        self.send("Page.navigate", url=address)
        self._browser.wait("Page.loadEventFired", self._session)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the visible area, in CSS pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def set_dark(self, dark: bool) -> None:
        """Set the colour scheme that the reader prefers."""
        value = "dark" if dark else "light"
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def run(self, script: str) -> Any:
        """Return the value of an expression or of its promise. An error in the script fails the test."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found.get("exceptionDetails")
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """Click the middle of the first element of a CSS selector, as a mouse does."""
        script = f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "center", behavior: "instant"}});
            const box = element.getBoundingClientRect();
            return {{x: box.x + box.width / 2, y: box.y + box.height / 2}};
        }})()"""
        at = self.run(script)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def press(self, key: str) -> None:
        """Press and release one of `KEYS`."""
        code, text = KEYS[key]
        event: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    @property
    def messages(self) -> list[str]:
        """Return what the console has shown so far: lines with their level, and uncaught exceptions."""
        self.run("0")  # once this is answered, earlier events have arrived
        own = [e for e in self._browser.events if e.get("sessionId") == self._session]
        found = []
        for method, params in ((event["method"], event["params"]) for event in own):
            if method == "Runtime.consoleAPICalled":
                words = [str(a.get("value", a.get("description", ""))) for a in params["args"]]
                found.append(f"{params['type']}: {' '.join(words)}")
            elif method == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append(f"exception: {details.get('exception', details).get('description', details)}")
            elif method == "Log.entryAdded":
                found.append(f"{params['entry']['level']}: {params['entry']['text']}")
        return found

    @property
    def overflow(self) -> int:
        """Return by how many CSS pixels the page is wider than the window; 0 without sideways scrolling."""
        width: int = self.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return width

    def screenshot(self, file: Path) -> None:
        """Write the visible area to a PNG file."""
        data = self.send("Page.captureScreenshot", format="png")["data"]
        file.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """Close the window."""
        self._browser.send("Target.closeTarget", targetId=self._target)
