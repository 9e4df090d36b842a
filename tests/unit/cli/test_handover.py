"""Arguments of bootstrap.py: commands are passed on, not installed."""

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli.main import convert_bootstrap_arguments


@pytest.mark.parametrize(
    "line",
    ["doctor", "lock check", "help lock", "-V", "--help", "install doctor", "list"],
)
def test_bootstrap_passes_command_to_gpuinstall(line):
    assert convert_bootstrap_arguments(line.split()) == line.split()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "torch",
        "vllm peft",
        "doctor==1",
        "doctr==1",
        "reportlab",
        "./doctr",
        "torch --help",
        "--nope",
    ],
)
def test_bootstrap_without_command_name_runs_install(line):
    assert convert_bootstrap_arguments(line.split()) == ["install", *line.split()]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("verfy", "verify"),
        ("plann six", "plan six"),
        ("lokc six", "lock six"),
        ("Intsall six", "install six"),
        ("-q doctor", "doctor -q"),
        ("torch lock", "lock torch"),
        ("Doctor", "doctor"),
    ],
)
def test_misplaced_bootstrap_command_suggests_command_or_package(line, command):
    with pytest.raises(UsageError, match="must come first") as raised:
        convert_bootstrap_arguments(line.split())
    first, second = str(raised.value.hint).splitlines()
    assert f"gpuinstall {command} " in first
    assert f"gpuinstall install {line} " in second
