"""A real browser without a window, driven through its pipe: what people click, type and see."""

import base64
import contextlib
import fcntl
import json
import os
import subprocess  # noqa: TID251 - the browser runs beside the test, with two more pipes
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

KEYS = {
    "Enter": 13,
    "Escape": 27,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


@dataclass
class Page:
    """One open page."""

    to: BinaryIO
    come: BinaryIO
    session: str = ""
    count: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call one method of the DevTools protocol and wait for its answer."""
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        self.to.write(json.dumps(message).encode() + b"\0")
        self.to.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self.come.read(1)) != b"\0":
            assert byte, "the browser ended"
            data += byte
        return dict(json.loads(data))

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a file and wait until it is loaded."""
        self.call("Page.navigate", url=f"{path.absolute().as_uri()}{fragment}")
        while not self.ask("document.readyState === 'complete'"):
            pass

    def ask(self, expression: str) -> Any:
        """Return what an expression is worth in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Press the left mouse button in the middle of what is there."""
        box = self.ask(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            "one.scrollIntoView({block: 'nearest'}); const box = one.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left",
                      clickCount=1)  # fmt: skip

    def press(self, key: str) -> None:
        """Press a key, as a person would."""
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def shown(self, selector: str) -> list[str]:
        """Return the texts of those elements that are seen."""
        return list(
            self.ask(
                f"[...document.querySelectorAll({json.dumps(selector)})]"
                ".filter((one) => one.checkVisibility()).map((one) => one.innerText.trim())"
            )
        )


@contextlib.contextmanager
def browser(width: int = 1440, height: int = 1000) -> Iterator[Page]:
    """Start chromium with an empty profile and yield a page; it is gone afterwards."""
    ours, its_in = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:

        def give() -> None:
            # First out of the way: one of them may be 3 or 4 already.
            for end, place in [(fcntl.fcntl(its_in[0], fcntl.F_DUPFD, 10), 3),
                               (fcntl.fcntl(ours[1], fcntl.F_DUPFD, 10), 4)]:  # fmt: skip
                os.dup2(end, place)

        words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu"]
        words += ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
        words += [f"--window-size={width},{height}"]
        child = subprocess.Popen(
            words, preexec_fn=give,  # noqa: PLW1509 - no thread runs here
            close_fds=False, stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, env={**os.environ, "HOME": profile},
        )  # fmt: skip
        os.close(its_in[0])
        os.close(ours[1])
        with child, os.fdopen(its_in[1], "wb") as to, os.fdopen(ours[0], "rb") as come:
            try:
                page = Page(to, come)
                target = page.call("Target.createTarget", url="about:blank")["targetId"]
                found = page.call("Target.attachToTarget", targetId=target, flatten=True)
                page.session = found["sessionId"]
                page.call("Page.enable")
                page.call("Log.enable")
                page.call("Network.enable")
                yield page
            finally:
                child.kill()
