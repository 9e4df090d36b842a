"""Headless Chromium, controlled through a pipe with the DevTools protocol."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class Browser:
    """A browser page."""

    def __init__(self, commands: IO[bytes], answers: IO[bytes]):
        self._commands, self._answers, self._number = commands, answers, 0
        self._session: dict[str, str] = {}
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {
            "sessionId": self._call(
                "Target.attachToTarget", targetId=target, flatten=True
            )["sessionId"]
        }
        for domain in ("Page", "Runtime", "Network"):
            self._call(f"{domain}.enable")

    def open(self, address: str):
        """Open a URL, and wait until its script has run."""
        self._call("Page.navigate", url="about:blank")
        self._call("Page.navigate", url=address)
        self.run(
            "new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', done))"
        )

    def run(self, script: str) -> Any:
        """Run a script in the page, and return its result."""
        done = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def type(self, text: str):
        """Type a text into the focused element."""
        self._call("Input.insertText", text=text)

    def press(self, key: str, code: int):
        """Press a key, given its name and Windows key code."""
        said = {
            "key": key,
            "code": key,
            "windowsVirtualKeyCode": code,
            **({"text": "\r"} if key == "Enter" else {}),
        }
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, **said)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {
            "id": self._number,
            "method": method,
            "params": parameters,
            **self._session,
        }
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._next()).get("id") != self._number:
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        answer: dict[str, Any] = json.loads(text)
        return answer


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser with a new profile, and stop it at the end."""
    assert CHROMIUM
    (ours, theirs), (back, forth) = os.pipe()[::-1], os.pipe()
    pipes = f'exec "$@" 3<&{theirs} 4>&{forth}'
    words = [
        "bash",
        "-c",
        pipes,
        "bash",
        CHROMIUM,
        *_QUIET,
        f"--user-data-dir={folder}",
    ]
    process = subprocess.Popen(
        words, pass_fds=(theirs, forth), stderr=subprocess.DEVNULL
    )
    for number in (theirs, forth):
        os.close(number)
    try:
        with os.fdopen(ours, "wb") as commands, os.fdopen(back, "rb") as answers:
            yield Browser(commands, answers)
    finally:
        process.kill()
        process.wait()
