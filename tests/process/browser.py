# SPDX-License-Identifier: Apache-2.0
"""A page in Chromium without a screen, through the DevTools protocol on a pair of pipes."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

TIMEOUT_S = 180
PAUSE_S = 0.05
FIRST_FREE = 10  # descriptors below are the ones that Chromium gets: 3 to read, 4 to write


def find_chromium() -> str | None:
    return shutil.which("chromium")


def _out_of_the_way(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE)
    os.close(descriptor)
    return moved


class Browser:
    """One page. `complaints` holds what the page wrote to the console and what it failed at,
    `requests` every address that it asked for."""

    def __init__(self, chromium: str) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._rest = b""
        self._profile = tempfile.TemporaryDirectory(
            prefix="memshim-browser.", ignore_cleanup_errors=True
        )
        theirs, self._send = map(_out_of_the_way, os.pipe())
        self._receive, theirs_too = map(_out_of_the_way, os.pipe())

        def pipes() -> None:
            os.dup2(theirs, 3)
            os.dup2(theirs_too, 4)

        self._process = subprocess.Popen(
            [
                chromium,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--no-first-run",
                "--hide-scrollbars",
                "--window-size=1300,1000",
                f"--user-data-dir={self._profile.name}",
                "--remote-debugging-pipe",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=pipes,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(theirs_too)
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        with contextlib.suppress(OSError, AssertionError):
            self._session = None
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._send)
        os.close(self._receive)
        self._profile.cleanup()

    # ---- the protocol ----

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        whole = json.dumps(message).encode() + b"\0"
        while whole:
            whole = whole[os.write(self._send, whole) :]
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                result = answer["result"]
                assert isinstance(result, dict)
                return result

    def _next(self) -> dict[str, Any]:
        """The next message; what the page tells by itself is noted on the way."""
        end = time.monotonic() + TIMEOUT_S
        while b"\0" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._receive], [], [], left)[0]:
                raise AssertionError(f"Chromium said nothing for {TIMEOUT_S} s")
            part = os.read(self._receive, 1 << 20)
            if not part:
                raise AssertionError("Chromium ended")
            self._rest += part
        first, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, told: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown" or (
            method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert")
        ):
            self.complaints.append(json.dumps(told))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])

    # ---- what a person does ----

    def open(self, page: Path) -> None:
        self.complaints.clear()
        self.requests.clear()
        self.call("Page.navigate", url=page.as_uri())
        self.wait_for("document.readyState === 'complete' && location.protocol === 'file:'")

    def ask(self, expression: str) -> Any:  # noqa: ANN401
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not self.ask(expression):
            if time.monotonic() > end:
                raise AssertionError(f"never true: {expression}")
            time.sleep(PAUSE_S)

    def box(self, element: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element (an expression), scrolled into view."""
        rectangle = self.ask(
            f"(() => {{ const node = {element}; node.scrollIntoView({{block: 'center'}});"
            " const box = node.getBoundingClientRect();"
            " return [box.left, box.top, box.width, box.height]; })()"
        )
        return (rectangle[0], rectangle[1], rectangle[2], rectangle[3])

    def mouse(self, kind: str, x: float, y: float, buttons: int = 0) -> None:
        self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button="none" if kind == "mouseMoved" and not buttons else "left",
            buttons=buttons,
            clickCount=0 if kind == "mouseMoved" else 1,
        )

    def click(self, element: str) -> None:
        left, top, width, height = self.box(element)
        x, y = left + min(width / 2, 20), top + height / 2
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, 1)
        self.mouse("mouseReleased", x, y)

    def drag(self, x0: float, x1: float, y: float) -> None:
        self.mouse("mouseMoved", x0, y)
        self.mouse("mousePressed", x0, y, 1)
        for part in range(1, 6):
            self.mouse("mouseMoved", x0 + (x1 - x0) * part / 5, y, 1)
        self.mouse("mouseReleased", x1, y)

    def press(self, key: str, text: str = "") -> None:
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.call(
            "Page.captureScreenshot",
            captureBeyondViewport=True,
            clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1},
        )
        path.write_bytes(base64.b64decode(shot["data"]))
