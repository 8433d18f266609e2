"""A headless Chromium, driven over the DevTools protocol through a pair of pipes."""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
KEYS = {
    "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "PageUp": 33, "PageDown": 34,
}  # fmt: skip

# The browser reads commands from descriptor 3 and answers on 4.
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)


def found() -> str | None:
    """The path of a browser; None where there is none."""
    return os.environ.get("CHROME") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. `events` are what the browser reported unasked, in order."""

    def __init__(self, profile: Path) -> None:
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        command = [found(), "--headless", "--remote-debugging-pipe", "--disable-gpu",
                   "--no-first-run", "--disable-extensions", "--disable-dev-shm-usage",
                   "--disable-quic", "--disable-background-networking",
                   "--disable-component-update", "--disable-sync",
                   "--hide-scrollbars", f"--user-data-dir={profile}"]  # fmt: skip
        if os.geteuid() == 0:
            command.append("--no-sandbox")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(theirs_in), str(theirs_out), *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._last, self._session = b"", 0, None
        self.events: list[dict] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser and wait for it."""
        self._session = None
        try:
            self.call("Browser.close")
        except (EOFError, BrokenPipeError):
            pass
        finally:
            os.close(self._to)
            os.close(self._from)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def call(self, method: str, **params: object) -> dict:
        """What the browser answers to a command."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, path: Path, width: int = 1280, height: int = 1000, scheme: str = "light"):
        """Load a file and wait until its scripts have run; returns the page."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])  # fmt: skip
        return self.visit(path.resolve().as_uri())

    def visit(self, url: str):
        """Load an address and wait until its scripts have run; returns the page."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())
        return self

    def value(self, expression: str) -> object:
        """What an expression is in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)  # fmt: skip
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        """The visible text of an element."""
        return self.value(f"document.querySelector({json.dumps(selector)}).innerText")

    def texts(self, selector: str) -> list[str]:
        """The visible texts of all elements that match."""
        chosen = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return self.value(f"{chosen}.map((e) => e.innerText)")

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element, scrolled into view."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{found}.scrollIntoView({{block: 'center'}})")
        rect = self.value(f"{found}.getBoundingClientRect().toJSON()")
        return rect["left"], rect["top"], rect["width"], rect["height"]

    def move(self, selector: str, share: float = 0.5) -> None:
        """Move the pointer over an element, to a share of its width."""
        left, top, width, height = self.box(selector)
        self._mouse("mouseMoved", left + share * width, top + height / 2)
        self.settle()

    def click(self, selector: str, share: float = 0.5) -> None:
        """Press and release the button of the pointer on an element."""
        left, top, width, height = self.box(selector)
        at = left + share * width, top + height / 2
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._mouse(kind, *at)
        self.settle()

    def press(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=KEYS[key])  # fmt: skip
        self.settle()

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)
        self.settle()

    def settle(self) -> None:
        """Wait until the page has drawn what it was told."""
        self.value("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def complaints(self) -> list[dict]:
        """Errors of scripts, refusals of the security policy, and what is written to the log."""
        self.settle()
        bad = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded",
               "Page.javascriptDialogOpening")  # fmt: skip
        return [event for event in self.events if event["method"] in bad]

    def requests(self) -> list[str]:
        """The addresses asked for since the page was opened."""
        asked = [e for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in asked]

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a PNG of the page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def _mouse(self, kind: str, x: float, y: float) -> None:
        pressed = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def _read(self) -> dict:
        while b"\0" not in self._buffer:
            data = os.read(self._from, 1 << 20)
            if not data:
                raise EOFError("the browser has gone")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
