"""Several locks as one workspace of pixi; read by its documentation, and with pixi's own schema once (teams.md)."""

import json

import pytest
import tomli

from gpuinstall.catalog import load_catalog
from gpuinstall.cli.main import run_command_line
from gpuinstall.export.pixi_workspace import pixi_workspace
from tests.unit.export.locks import cpu_lock, cuda_lock


def workspace(*locks):
    text = pixi_workspace(locks, load_catalog())
    return text, tomli.loads(text)


def first_platform(document, cuda, capability):
    """The platform that a machine has: the first whose CUDA and compute capability it reaches."""
    for platform in document["workspace"]["platforms"]:
        needed = platform.get("cuda")
        if needed is None:
            return str(platform["name"])
        has_cuda = _number(cuda) >= _number(needed["driver"])
        if has_cuda and _number(capability) >= _number(needed["arch"]):
            return str(platform["name"])
    return ""


def _number(version):
    return list(map(int, version.split(".")))


@pytest.mark.parametrize(
    ("cuda", "capability", "expected"),
    [
        ("13.0", "12.0", "torch-cu130-linux-64"),
        ("13.0", "8.6", "torch-cu130-linux-64"),
        ("13.0", "6.1", "torch-cu126-linux-64"),
        ("12.4", "8.9", "torch-cu126-linux-64"),
        ("11.8", "8.9", "torch-cpu-linux-64"),
    ],
)
def test_a_machine_gets_the_lock_that_runs_on_it(cuda, capability, expected):
    _, document = workspace(cpu_lock(), cuda_lock("cu126"), cuda_lock("cu130"))

    assert first_platform(document, cuda, capability) == expected


def test_the_command_takes_all_locks_of_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for locked in (cpu_lock(), cuda_lock("cu126")):
        (tmp_path / locked.name).write_text(locked.text, "utf-8")

    run_command_line(["export", "pixi", "--json"])

    text = json.loads(capsys.readouterr().out)["data"]["text"]
    assert text.startswith("# From pylock.cpu.toml, pylock.cu126.toml: pixi install\n")
