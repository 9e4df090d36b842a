"""The programs beside torch: which packages of an environment carry compiled code, and the proof of each of them."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.catalog import load_catalog
from gpuinstall.verify.diagnosis import check_results
from gpuinstall.verify.kernel_run import SECONDS
from gpuinstall.verify.kernels.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.verify.devices import DeviceTarget
    from gpuinstall.verify.diagnosis import ProofContext
    from gpuinstall.verify.kernel_run import KernelReport, KernelRun
    from gpuinstall.verify.verdict import Device

TORCH = "torch"
DEMANDS_TORCH = re.compile(r"^Requires-Dist: *torch(?![\w.-])(?!.*\bextra\b)", re.MULTILINE | re.IGNORECASE)
COMPILED = re.compile(r"\.(so|pyd),", re.IGNORECASE)
PACKAGE = re.compile(r"^(\w+)/__init__\.py,", re.MULTILINE)


def installed_programs(folders: Sequence[str]) -> tuple[str, ...]:
    """Name the modules of torch's family, of the programs that are known, and of what was compiled beside a torch.

    ``folders`` are those on an interpreter's path. Nothing is imported: the records of the installations are read.
    """
    known = (load_catalog().family | {row.package for row in PROGRAMS}) - {TORCH}
    records = (record for folder in folders for record in sorted(Path(folder).glob("*.dist-info")))
    return tuple(sorted({module for record in records for module in _module(record, known)}))


def prove_programs(
    devices: Sequence[Device],
    targets: Sequence[DeviceTarget],
    reports: Sequence[KernelReport],
    run: KernelRun,
    proof: ProofContext,
) -> list[Device]:
    """Add the check of each program on every device where torch itself did not fail, each in a process of its own.

    Where a device could not be tried, its programs are imported without it.
    """
    tried = {
        number: replace(targets[number], device="none", visible=()) if report.unproven else targets[number]
        for number, report in enumerate(reports)
        if not report.failed
    }
    modules = installed_programs(proof.torch.path) if tried else ()
    found = list(devices)
    for module_reports in _run_side_by_side(modules, list(tried.values()), run):
        for (number, target), report in zip(tried.items(), module_reports, strict=True):
            found[number] = found[number].with_checks(check_results(target, report, proof))
    return found


def _run_side_by_side(
    modules: Sequence[str], targets: Sequence[DeviceTarget], run: KernelRun
) -> Iterator[list[KernelReport]]:
    """Run as many programs at once as the processors serve, two for each child."""
    seconds = min(run.seconds, SECONDS["quick"])
    at_once = (os.cpu_count() or 1) // (2 * max(1, len(targets)))
    with ThreadPoolExecutor(max(1, at_once)) as pool:
        yield from pool.map(lambda module: replace(run, program=module, seconds=seconds).run_all(targets), modules)


def _module(record: Path, known: frozenset[str]) -> Iterator[str]:
    """Name the module that a package is imported by, where it is one to prove."""
    name = record.name.partition("-")[0]
    package = canonicalize_name(name)
    files = _text(record / "RECORD")
    if package in known or (COMPILED.search(files) and DEMANDS_TORCH.search(_text(record / "METADATA"))):
        modules = PACKAGE.findall(files) or [name]
        yield next((module for module in modules if canonicalize_name(module) == package), modules[0])


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
