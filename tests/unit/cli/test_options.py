"""A machine that somebody else described, and what a line asks for."""

import sys

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli.options import CommandOptions, read_machine_file
from gpuinstall.cli.terminal import Terminal

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


@pytest.mark.parametrize(
    ("address", "base", "backend"),
    [
        ("https://index.example/whl", "https://index.example/whl", None),
        ("https://index.example/whl/cu126/", "https://index.example/whl", "cu126"),
        (
            "https://index.example/whl/nightly/rocm6.4",
            "https://index.example/whl/nightly",
            "rocm6.4",
        ),
        ("https://index.example/whl/cpu", "https://index.example/whl", "cpu"),
    ],
)
def test_a_page_of_the_torch_index_names_a_backend(address, base, backend):
    request = CommandOptions(Terminal(), torch_index=address).settings.request

    assert (request.sourcing.torch_index, request.backend) == (base, backend)
