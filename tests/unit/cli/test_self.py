"""The command on PATH: the line in a start file of the user's, and who is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.cli import main
from gpuinstall.cli.self import without_own_line

if TYPE_CHECKING:
    import pytest


def test_only_our_line_leaves_a_start_file() -> None:
    before = b"alias l=ls\r\nexport PATH=/tool:$PATH  # written by gpuinstall self path\n\xff = \x0c1\r\n"

    assert without_own_line(before) == b"alias l=ls\r\n\xff = \x0c1\r\n"
    assert without_own_line(None) is None


def test_where_the_command_lies_is_said_to_people_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    for option in ("--json", "--json-events", "--quiet", "-q"):
        main._show_path(["probe", option])
    assert capsys.readouterr() == ("", "")
    main._show_path(["probe"])
    assert "self path --write   # for every new shell" in capsys.readouterr().err
