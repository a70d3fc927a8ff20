"""The playground in headless Chromium, driven over two pipes by the DevTools protocol: JSON texts, a zero byte after each."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking")
PATIENCE = 120.0


class Chromium:
    """One browser with one tab. ``errors`` holds what its console called an error, ``requests`` the addresses it asked."""

    def __init__(self, profile: Path) -> None:
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (theirs_in, theirs_out)]

        def hand_over() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        command = ["chromium", *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, pass_fds=(3, 4, *high), preexec_fn=hand_over, stdin=null, stdout=null, stderr=null
        )
        for end in (theirs_in, theirs_out, *high):
            os.close(end)
        self._held, self._number, self._session = b"", 0, ""
        self.errors: list[Any] = []
        self.requests: list[str] = []
        deadline = time.monotonic() + PATIENCE
        while not (tabs := [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]):
            assert time.monotonic() < deadline, "chromium opened no page"
        self._session = self.call("Target.attachToTarget", targetId=tabs[0]["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End it."""
        self.call("Browser.close")
        self._process.wait(PATIENCE)
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command."""
        self._number += 1
        number = self._number
        session = {"sessionId": self._session} if self._session else {}
        sent = json.dumps({"id": number, "method": method, "params": parameters} | session).encode() + b"\0"
        while sent:
            sent = sent[os.write(self._write, sent) :]
        while (message := self._receive()).get("id") != number:
            pass
        assert "error" not in message, f"{method}: {message.get('error')}"
        result: dict[str, Any] = message["result"]
        return result

    def open(self, address: str, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a page anew in a window of that size and colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url="about:blank")
        self.errors, self.requests = [], []
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.protocol === 'http:'")

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is waited for."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.run(condition):
            assert time.monotonic() < deadline, condition
            time.sleep(0.05)

    def press(self, key: str, code: int, control: bool = False) -> None:
        """Press a key where the focus is."""
        text = {"Enter": "\r", " ": " "}.get(key, "") if not control else ""
        told = {"key": key, "code": key, "windowsVirtualKeyCode": code, "text": text, "modifiers": 2 * control}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **told)
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """A screenshot of the whole page."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "chromium does not answer"
            more = os.read(self._read, 1 << 16)
            assert more, "chromium has ended"
            self._held += more
        line, _, self._held = self._held.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        told = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(told["exceptionDetails"])
            case "Log.entryAdded" if told["entry"]["level"] == "error":
                self.errors.append(told["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
        return message
