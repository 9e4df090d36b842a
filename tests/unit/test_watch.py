"""The watch over programs, with programs that do something and some that do not."""

from __future__ import annotations

import fcntl
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from gpuinstall import process
from gpuinstall.errors import InstallationError, UsageError
from gpuinstall.patience import Patience, read_patience
from tests.lab.pace import within

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells what a program does"
)

PATIENCE = Patience(silence=0.2)
BUSY = "import time; end = time.monotonic() + 1.3\nwhile time.monotonic() < end: pass"
STARTS_ONE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
WRITES = (
    "import time\nfor _ in range(13): open('/dev/null', 'w').write('x' * 10_000); time.sleep(0.1)"
)
SLEEPS = "import time; time.sleep(60)"
GROWS = "import sys, time; kept = b'x' * int(sys.argv[1]); time.sleep(float(sys.argv[2]))"
SAVES = f"for _ in range(300): open('/dev/null', 'wb').write(b'x' * 1_000_000)\n{GROWS}"
GROWS_ON = "kept = []\nwhile True: kept.append(b'x' * 1_000_000)"
WAITS = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX)"


@pytest.mark.parametrize("code", [BUSY, STARTS_ONE, WRITES])
def test_a_program_that_does_something_is_left_alone(code: str) -> None:
    assert process.run([sys.executable, "-c", code], patience=PATIENCE).ok


@pytest.mark.parametrize(("code", "size"), [(GROWS, 150_000_000), (SAVES, 350_000_000)])
def test_a_program_that_holds_little_more_than_it_puts_into_files_is_left_alone(
    code: str, size: int
) -> None:
    assert process.run([sys.executable, "-c", code, str(size), "0.5"], patience=PATIENCE).ok


@pytest.mark.parametrize(
    ("code", "size", "said"),
    [
        (SLEEPS, 0, "did nothing"),
        (GROWS, 300_000_000, r"more than 2\d\d MB"),
        (SAVES, 700_000_000, "more than 500 MB"),
        (GROWS_ON, 0, r"more than 2\d\d MB"),
    ],
)
def test_a_program_that_stands_still_or_grows_is_ended(code: str, size: int, said: str) -> None:
    with within(10), pytest.raises(InstallationError, match=said) as caught:
        process.run([sys.executable, "-c", code, str(size), "60"], patience=PATIENCE)
    assert caught.value.code == "standstill"


def test_a_program_that_is_followed_is_watched_too() -> None:
    with within(10), pytest.raises(InstallationError, match="did nothing"):
        process.follow(
            [sys.executable, "-c", SLEEPS], lambda _line: None, env={}, patience=PATIENCE
        )


def test_a_program_that_waits_for_the_lock_of_another_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(1.5, held.close).start()
        assert process.run([sys.executable, "-c", WAITS, path], patience=PATIENCE).ok


@pytest.mark.parametrize("said", ["soon", "0", "-1", "inf", "nan"])
def test_patience_is_a_number_above_nothing(said: str) -> None:
    with pytest.raises(UsageError, match="GPUINSTALL_SILENCE"):
        read_patience({"GPUINSTALL_SILENCE": said})


def test_uv_is_told_our_patience_unless_it_was_told_another() -> None:
    told = Patience(silence=7).variables({"UV_HTTP_RETRIES": "9"})
    assert (told["UV_HTTP_TIMEOUT"], told["UV_HTTP_RETRIES"]) == ("7", "9")


def test_uv_asks_for_so_much_at_once_that_its_memory_shows_an_answer_without_end() -> None:
    told, other = PATIENCE.variables({}), PATIENCE.variables({"UV_CONCURRENT_DOWNLOADS": "3"})
    assert (told["UV_CONCURRENT_DOWNLOADS"], other["UV_CONCURRENT_DOWNLOADS"]) == ("16", "3")
