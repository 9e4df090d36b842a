"""What bootstrap.py is given: commands are passed on, and no mistyped one is taken for a package."""

from __future__ import annotations

import io
import sys

import pytest

from gpuinstall.cli.main import handed_over, likely_command, suggestion
from gpuinstall.errors import UsageError


@pytest.mark.parametrize(
    "line", [["doctor"], ["lock", "--check"], ["help", "lock"], ["-V"], ["install", "doctr"]]
)
def test_a_command_is_passed_on(line: list[str]) -> None:
    assert handed_over(line) == line


@pytest.mark.parametrize(
    "line",
    [
        [],
        ["torch"],
        ["vllm", "peft"],
        ["--venv", "table"],
        ["--group", "lock"],
        ["doctor==1"],
        ["--help"],
        ["--nope"],
    ],
)
def test_everything_else_is_for_install(line: list[str]) -> None:
    assert handed_over(line) == ["install", *line]


@pytest.mark.parametrize(
    "line", [["doctr"], ["-q", "doctor"], ["torch", "verfy"], ["lcok"], ["Doctor"]]
)
def test_a_word_that_looks_like_a_command_is_never_a_package(line: list[str]) -> None:
    with pytest.raises(UsageError, match="no package of that name") as raised:
        handed_over(line)
    assert raised.value.exit_code == 2
    assert f"gpuinstall install {' '.join(line)}" in str(raised.value.hint)


class Somebody(io.StringIO):
    """A terminal with somebody at it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ["y\n", "\n"])
def test_somebody_at_a_terminal_is_asked(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Somebody(answer))
    monkeypatch.setattr(sys, "stderr", Somebody())
    assert handed_over(["doctr", "--json"]) == ["doctor", "--json"]


def test_who_says_no_gets_nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Somebody("n\n"))
    monkeypatch.setattr(sys, "stderr", Somebody())
    with pytest.raises(UsageError, match="looks like the command doctor"):
        handed_over(["doctr"])


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("doctor", "doctor"),
        ("doctr", "doctor"),
        ("doctorr", "doctor"),
        ("docter", "doctor"),
        ("odctor", "doctor"),
        ("plna", "plan"),
        ("en", "env"),
        ("torch", None),
        ("doc", None),
        ("vllm", None),
        ("numpy", None),
    ],
)
def test_one_letter_away_is_near_and_more_is_not(word: str, command: str | None) -> None:
    assert likely_command(word) == command


def test_what_was_meant_is_the_nearest() -> None:
    assert suggestion("isntall") == "install"
    assert suggestion("conjure") is None
