"""A page in headless Chromium, driven by the Chrome DevTools protocol over two pipes: no package, no port.

``--remote-debugging-pipe`` reads commands from file descriptor 3 and writes replies and events to 4, each a JSON text that
ends with a zero byte.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking")
KEYS = {"Escape": 27, "Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40, "ArrowUp": 38}
PATIENCE = 120.0


class Browser:
    """One Chromium with one tab. ``errors`` gathers what its console called an error, and exceptions of scripts."""

    def __init__(self, profile: Path) -> None:
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        high_in, high_out = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (theirs_in, theirs_out))

        def hand_over() -> None:
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        command = ["chromium", *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, pass_fds=(3, 4, high_in, high_out), preexec_fn=hand_over, **quiet)
        for end in (theirs_in, theirs_out, high_in, high_out):
            os.close(end)
        self._held, self._number, self.errors = b"", 0, []
        self._session: str | None = None
        deadline = time.monotonic() + PATIENCE
        while not (tabs := [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]):
            assert time.monotonic() < deadline, "chromium opened no page"
        self._session = self.call("Target.attachToTarget", targetId=tabs[0]["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.requests: list[str] = []

    def close(self) -> None:
        """End it."""
        self._send("Browser.close", {}, None)
        self._process.wait(PATIENCE)
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        number = self._send(method, parameters, self._session)
        while True:
            message = self._receive()
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message.get('error')}"
                return message["result"]

    def open(self, address: str, *, width: int = 1366, height: int = 900, dark: bool = False, scripts: bool = True) -> None:
        """Load a page anew in a window of that size and colour scheme."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        scheme.append({"name": "prefers-reduced-motion", "value": "reduce"})  # or a click may miss what still scrolls
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url="about:blank")
        self.errors, self.requests = [], []
        self.call("Page.navigate", url=address)
        deadline = time.monotonic() + PATIENCE
        loaded = f"complete{address.partition('/')[0]}"
        while self.run("document.readyState + location.protocol") != loaded:
            assert time.monotonic() < deadline, f"{address} did not load"
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript; a promise is waited for."""
        summary = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in summary, summary["exceptionDetails"]
        return summary["result"].get("value")

    def until(self, script: str, seconds: float = 5.0) -> bool:
        """Whether an expression comes true within the time: events such as a dialog's closing come a moment later."""
        end = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def click(self, selector: str) -> None:
        """Click the middle of the first element that a selector finds, scrolled into view."""
        where = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{where}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        x, y = self.run(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({where}.getClientRects()[0])")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, selector: str) -> None:
        """Move the mouse onto an element."""
        where = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{where}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        x, y = self.run(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({where}.getBoundingClientRect())")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def wait(self, condition: str) -> None:
        """Wait until an expression is true, which an answer of a model may take long to make it."""
        assert self.until(condition, PATIENCE), condition

    def press(self, key: str, control: bool = False) -> None:
        """Press a key where the focus is."""
        text = "" if control else {"Enter": "\r"}.get(key, "")
        summary = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "text": text, "modifiers": 2 * control}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **summary)
        self.call("Input.dispatchKeyEvent", type="keyUp", **summary)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path, whole: bool = False) -> None:
        """A screenshot of the window, or of the whole page."""
        summary = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(summary["data"]))

    def _send(self, method: str, parameters: Mapping[str, Any], session: str | None) -> int:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        sent = json.dumps(message).encode() + b"\0"
        while sent:
            sent = sent[os.write(self._write, sent) :]
        return self._number

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._read], [], [], deadline - time.monotonic())
            assert ready, "chromium does not answer"
            more = os.read(self._read, 1 << 16)
            assert more, "chromium has ended"
            self._held += more
        line, _, self._held = self._held.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        summary = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(summary["exceptionDetails"])
        elif message.get("method") == "Log.entryAdded" and summary["entry"]["level"] == "error":
            self.errors.append(summary["entry"]["text"])
        elif message.get("method") == "Runtime.consoleAPICalled" and summary["type"] in ("error", "assert"):
            self.errors.append(summary["args"])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requests.append(summary["request"]["url"])
        return message
