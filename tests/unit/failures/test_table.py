"""The table, entry by entry: a message that shows it, a healthy text beside it, a fix that names its environment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomli

from gpuinstall.environments.environment import advice_words
from gpuinstall.failures.classify import classify
from gpuinstall.failures.problems import FixContext, fix, said_for
from gpuinstall.failures.table import load_failures, load_problems
from gpuinstall.machine import Machine
from tests.unit.failures.test_classify import SHARED

LOGS = Path(__file__).resolve().parents[2] / "data" / "logs"
HEALTHY = tomli.loads((LOGS / "counterparts.toml").read_text("utf-8"))
PYTHON = Path("/data/envs/it/bin/python")
CHANGES = re.compile(
    r"\b(uv pip (?:install|uninstall|list|freeze)|conda install|python -m pip|gpuinstall (?:install|doctor|verify))\b"
    r"([^;&|]*)"
)
ELSEWHERE = (
    "--venv .venv-second",
    "outside conda",
    "makes a separate environment",
    "--python .venv",
    "with the Python outside",
)
"""What says itself that it makes another environment."""


@pytest.fixture
def known(tmp_path: Path) -> dict[str, str]:
    """The words of an environment that somebody made."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").touch()
    return advice_words(tmp_path / "bin" / "python")


@pytest.mark.parametrize("identity", load_failures())
def test_each_entry_has_a_message_a_healthy_counterpart_and_a_fix_that_names_its_environment(
    identity: str, known: dict[str, str]
) -> None:
    failure = load_failures()[identity]
    for message in failure.messages:
        assert identity in [cause.id for cause in classify(message)[: len(SHARED.get(message, "x"))]]
    assert classify(HEALTHY[identity]) == ()
    _names_its_environment(identity, known)


@pytest.mark.parametrize("code", [code for code, kind in load_problems().items() if kind.fix])
def test_each_fix_of_a_code_names_its_environment(code: str, known: dict[str, str]) -> None:
    _names_its_environment(code, known)


def _names_its_environment(what: str, known: dict[str, str]) -> None:
    for system in ("Ubuntu 24.04", "Fedora Linux 42", "Arch Linux", "Rocky Linux 9.4"):
        context = FixContext.of_machine(Machine("linux", "x86_64", distribution=system))
        for place in (
            context,
            context.near("conda"),
            FixContext(("windows",)),
            FixContext(("kubernetes", "container")),
        ):
            for line in fix(what, place.knowing(**known)):
                for command, rest in CHANGES.findall(line):
                    named = known["prefix"] in rest or known["prefix"] in line.partition(command)[0]
                    assert named or any(word in line for word in ELSEWHERE), line


MANAGERS = {
    "apt": r"(?<!: )(?<!e )\bapt(-get)? ",
    "dnf": r"(?<!: )(?<!r )\bdnf ",
    "pacman": r"\bpacman -S",
    "zypper": r"\bzypper ",
}


@pytest.mark.parametrize("identity", load_failures())
@pytest.mark.parametrize(
    ("system", "manager"),
    [
        ("Fedora Linux 42", "dnf"),
        ("Rocky Linux 9.4", "dnf"),
        ("Arch Linux", "pacman"),
        ("openSUSE Leap 15.6", "zypper"),
    ],
)
def test_a_fix_is_for_its_distribution(identity: str, system: str, manager: str) -> None:
    context = FixContext.of_machine(Machine("linux", "x86_64", distribution=system))
    others = [pattern for name, pattern in MANAGERS.items() if name != manager]
    for line in fix(identity, context):
        assert "in wsl" in line.lower() or not any(re.search(pattern, line) for pattern in others), line


@pytest.mark.parametrize("identity", load_failures())
def test_what_only_the_host_can_do_is_said_to_be_the_hosts(identity: str) -> None:
    for line in fix(identity, FixContext(("kubernetes", "container", "debian", "apt", "linux"))):
        assert "sudo reboot" not in line or "host" in line or "node" in line, line
        assert "docker restart" not in line or "kubectl" in line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("unset A_B C   # why", "Remove-Item Env:A_B, Env:C   # why"),
        ("export TRITON_PTXAS_PATH=x", '$env:TRITON_PTXAS_PATH = "x"'),
        ("uv pip install --python p numpy", "uv pip install --python p numpy"),
    ],
)
def test_a_fix_for_windows_is_in_powershells_words(line: str, said: str) -> None:
    assert said_for(("windows",), (line, "sudo ldconfig")) == (said,)


def test_there_is_a_healthy_text_for_each_and_for_nothing_else() -> None:
    assert HEALTHY.keys() == load_failures().keys()
