import re
import shutil
from pathlib import Path
from typing import get_args

import pytest

from gpuinstall.base import process
from gpuinstall.base.shell import Shell, assignments
from gpuinstall.base.uv import uv
from gpuinstall.cli.shellenv import UV_TAGS, variables
from gpuinstall.sources import Sources

FOR_VARIANTS = {"NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": "12.6"}
CONSTRAINTS = Path("/home/a b/it's/.venv/constraints.txt")
PROGRAMS = {"sh": "dash", "bash": "bash", "zsh": "zsh", "fish": "fish", "powershell": "pwsh"}
ECHO = {"fish": 'printf "%s" "$UV_X"', "powershell": "[Console]::Write($env:UV_X)"}


@pytest.mark.parametrize("shell", get_args(Shell))
def test_a_shell_reads_what_was_written(shell):
    program = shutil.which(PROGRAMS[shell])
    if program is None:
        pytest.skip(f"no {PROGRAMS[shell]} here")
    value = "it's $HOME \\ \"a\"  b\\'"
    echo = ECHO.get(shell, 'printf "%s" "$UV_X"')
    done = process.run([program, "-c", f"{assignments({'UV_X': value}, shell)}{echo}"])
    assert (done.out, done.err) == (value, "")


def test_fish_and_powershell_have_their_own_words():
    assert assignments({"UV_X": "it's"}, "fish") == "set -gx UV_X 'it'\\''s'\n"
    assert assignments({"UV_X": "it's"}, "powershell") == "$env:UV_X = 'it''s'\n"


def test_uv_is_told_the_backend_and_the_constraints():
    assert variables("cu126", Sources(), CONSTRAINTS)[0] == {
        "UV_TORCH_BACKEND": "cu126",
        **FOR_VARIANTS,
        "UV_CONSTRAINT": "file:///home/a%20b/it%27s/.venv/constraints.txt",
    }
    assert variables("cu126", Sources(), None)[1] == []


def test_a_backend_that_uv_does_not_know_is_left_out_and_said():
    assert "UV_TORCH_BACKEND" not in variables("cu134", Sources(), None)[0]
    assert "cu134" in variables("cu134", Sources(), None)[1][0]


def test_with_a_torch_index_of_ones_own_the_backend_would_lead_elsewhere():
    sources = Sources(torch_index="https://index.example/whl", is_torch_index_requested=True)
    assert variables("cu126", sources, None)[0] == FOR_VARIANTS
    assert "uvx --index https://index.example/whl/cu126" in variables("cu126", sources, None)[1][0]


def test_the_default_index_and_the_certificates_that_pip_knows_are_uvs_too():
    sources = Sources(default_index="https://index.example/simple", certificates="/etc/ca.pem")
    assert variables("cu126", sources, None)[0] == {
        "UV_TORCH_BACKEND": "cu126",
        **FOR_VARIANTS,
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "SSL_CERT_FILE": "/etc/ca.pem",
    }


def test_a_password_is_never_printed():
    sources = Sources(
        default_index="https://index.example/simple", logins={"index.example": "me:secret"}
    )
    assert "UV_DEFAULT_INDEX" not in variables("cu126", sources, None)[0]
    assert "password" in variables("cu126", sources, None)[1][0]
    assert "secret" not in str(variables("cu126", sources, None)[1])


def test_the_tags_are_those_of_the_pinned_uv():
    refused = process.run([uv(), "pip", "install", "--torch-backend", "none-such", "torch"]).err
    known = set(re.findall(r"\b(?:cpu|cu\d+)\b", refused.partition("possible values")[2]))
    assert known == UV_TAGS
