"""A headless Chromium for tests, driven through a pipe: no package is needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SECONDS = 60


def find_chromium() -> str | None:
    """The program, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in a browser of its own; what it complains about is kept.

    Attributes:
        complaints: errors and warnings of the console, exceptions, and everything that
            the page asked the network for.
    """

    def __init__(self, program: str) -> None:
        self.complaints: list[str] = []
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        read_here, write_there = map(_high, os.pipe())
        read_there, write_here = map(_high, os.pipe())

        def give_pipes() -> None:
            os.dup2(read_there, 3)
            os.dup2(write_there, 4)

        self._process = subprocess.Popen(
            [
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
                f"--user-data-dir={self._profile}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=give_pipes,
            pass_fds=(3, 4),
        )
        os.close(read_there)
        os.close(write_there)
        self._in, self._out = read_here, write_here
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        number = self._number
        deadline = time.monotonic() + _SECONDS
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], deadline - time.monotonic())
            part = os.read(self._in, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError("Chromium does not answer")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                details = told["exceptionDetails"]
                text = details.get("exception", {}).get("description", details["text"])
                self.complaints.append(f"exception: {text}")
            case "Runtime.consoleAPICalled":
                self.complaints.append(f"console: {told['args']}")
            case "Log.entryAdded":
                self.complaints.append(f"log: {told['entry']['text']}")
            case "Network.requestWillBeSent":
                url = told["request"]["url"]
                if not url.startswith(("file:", "data:", "about:")):
                    self.complaints.append(f"network: {url}")

    def open(self, page: Path, view: str = "") -> None:
        """Open a page, with a view in its address, and wait until it is drawn."""
        # The same file with another view would not be loaded again.
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=page.absolute().as_uri() + view)
        self.wait_for(
            "location.href != 'about:blank' && document.readyState == 'complete'"
        )

    def wait_for(self, expression: str) -> None:
        """Wait until an expression of JavaScript is true."""
        deadline = time.monotonic() + _SECONDS
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise RuntimeError(f"this never became true: {expression}")
            time.sleep(0.05)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        found = self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        """Give the page a size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    def prefer(self, scheme: str) -> None:
        """Prefer ``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def press(self, key: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            code = {"Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "Space": 32}[key]
            text = {"text": " "} if key == "Space" and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=" " if key == "Space" else key,
                code=key,
                windowsVirtualKeyCode=code,
                **text,
            )

    def click(self, selector: str) -> None:
        """Click into the middle of an element."""
        self._mouse("mousePressed", *self._middle(selector))
        self._mouse("mouseReleased", *self._middle(selector))

    def hover(self, selector: str, x: float = 0.5) -> None:
        """Move the mouse over an element."""
        self._mouse("mouseMoved", *self._middle(selector, x))

    def _middle(self, selector: str, share: float = 0.5) -> tuple[float, float]:
        place = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const r = e.getBoundingClientRect();"
            f"return [r.left + r.width * {share}, r.top + r.height / 2]; }})()"
        )
        return place[0], place[1]

    def _mouse(self, kind: str, x: float, y: float) -> None:
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what the page looks like, or all of it, as PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


def _high(descriptor: int) -> int:
    """The same pipe with a number that is not 3 or 4, which Chromium expects."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return copy
