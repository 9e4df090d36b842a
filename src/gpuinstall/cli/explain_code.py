"""What ``explain`` says of packages beside torch: the code that was learned of them, and the GPUs it leaves out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.machine import Machine

_ABOUT_CODE = re.compile(r"kernel image|compute capability|\bsm_\d\d|\bPTX\b", re.IGNORECASE)


def code_beside_torch(text: str, machine: Machine | None, venv: str | None) -> list[dict[str, Any]]:
    """Say what was learned of the packages that a text about missing code names, or that are in the environment.

    With a machine, only of those without code for one of its GPUs. Nothing is asked of anybody.
    """
    if not _ABOUT_CODE.search(text):
        return []
    from gpuinstall.learned.store import learned_store

    rows = (row for row in learned_store().companions() if row.architectures)
    found = {row.package: (row, _without(row, machine)) for row in _concerned(rows, text, venv)}
    return [
        {"package": row.package, "version": row.version, "architectures": list(row.architectures), "without": without}
        for row, without in found.values()
        if without or machine is None
    ]


def _concerned(rows: Iterable[LearnedRow], text: str, venv: str | None) -> Iterable[LearnedRow]:
    """Those of the versions that are installed, or, without an environment, whose name the text has; newest last."""
    by_day = sorted(rows, key=lambda row: row.learned)
    if venv is None:
        named = {word.lower().replace("_", "-") for word in re.findall(r"[\w-]+", text)}
        return [row for row in by_day if row.package in named]
    from gpuinstall.doctor.contents import read_installed

    installed = read_installed(Path(venv))
    return [row for row in by_day if row.version == installed.version(row.package).partition("+")[0]]


def _without(row: LearnedRow, machine: Machine | None) -> list[str]:
    from gpuinstall.learned.fit import without_code
    from gpuinstall.learned.known import known_catalog
    from gpuinstall.vendors import rules_for

    if machine is None:
        return []
    build = row.build()
    rules = rules_for(machine, known_catalog(), {build.backend.kind})
    gpus = ((rules, gpu) for gpu in machine.gpus if gpu.compute_capability is not None)
    return list(dict.fromkeys(gpu.label for _, gpu in without_code(row, build, gpus)))
