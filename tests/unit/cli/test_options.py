"""A machine that somebody else described."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli.options import read_machine_file

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = '{"schema": "gpuinstall.machine/1", "os": "windows", "arch": "x86_64", "gpus": []}'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_document_that_a_windows_shell_wrote_is_read(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "machine.json").write_text(DOCUMENT, encoding=encoding)

    assert read_machine_file(str(tmp_path / "machine.json")).os == "windows"


def test_a_closed_stdin_holds_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(UsageError, match="stdin cannot be read"):
        read_machine_file("-")
