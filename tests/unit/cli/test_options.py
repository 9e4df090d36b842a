"""A machine that somebody else described."""

import sys

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli.options import read_machine_file

DOCUMENT = (
    '{"schema": "gpuinstall.machine/1", "os": "windows", "arch": "x86_64", "gpus": []}'
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_document_that_a_windows_shell_wrote_is_read(encoding, tmp_path):
    (tmp_path / "machine.json").write_text(DOCUMENT, encoding=encoding)

    assert read_machine_file(str(tmp_path / "machine.json")).os == "windows"


def test_a_closed_stdin_holds_no_machine(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(UsageError, match="stdin cannot be read"):
        read_machine_file("-")
