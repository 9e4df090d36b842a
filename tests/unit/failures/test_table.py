"""The table, entry by entry: a message that shows it, a healthy text beside it, a fix that names its environment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomli

from gpuinstall.environments.advice import advice_words
from gpuinstall.failures import FixContext, fix
from gpuinstall.failures.classify import classify
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
    "makes an environment of its own",
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


def test_there_is_a_healthy_text_for_each_and_for_nothing_else() -> None:
    assert HEALTHY.keys() == load_failures().keys()
