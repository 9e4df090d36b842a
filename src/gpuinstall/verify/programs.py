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
from gpuinstall.environments.packages import InstalledPackage, read_packages
from gpuinstall.verify.diagnosis import ProofContext, check_results
from gpuinstall.verify.kernel_run import SECONDS, KernelReport, KernelRun
from gpuinstall.verify.kernels.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.verify.devices import DeviceTarget
    from gpuinstall.verify.verdict import Device

TORCH = "torch"
_MODULE = re.compile(r"(\w+)/__init__\.py")


def installed_programs(folders: Sequence[str]) -> tuple[str, ...]:
    """Name the modules of torch's family, of the programs that are known, and of what was compiled beside a torch.

    ``folders`` are those on an interpreter's path. Nothing is imported: the records of the installations are read.
    """
    known = (load_catalog().family | {row.package for row in PROGRAMS}) - {TORCH}
    packages = read_packages(Path(folder) for folder in folders)
    return tuple(sorted({_module(package) for package in packages if package.name in known or _is_extension(package)}))


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
    seconds = min(run.seconds, SECONDS["quick"])
    # Two processors for each child.
    at_once = (os.cpu_count() or 1) // (2 * max(1, len(tried)))
    proven = list(devices)
    with ThreadPoolExecutor(max(1, at_once)) as pool:
        runs = [replace(run, program=module, seconds=seconds) for module in modules]
        for results in pool.map(lambda program: program.run_all(list(tried.values())), runs):
            for (number, target), result in zip(tried.items(), results, strict=True):
                proven[number] = proven[number].with_checks(check_results(target, result, proof))
    return proven


def _is_extension(package: InstalledPackage) -> bool:
    """Say whether a package has compiled code and requires torch, extras left aside."""
    return any(file.path.lower().endswith((".so", ".pyd")) for file in package.files) and any(
        canonicalize_name(requirement.name) == TORCH and "extra" not in str(requirement.marker)
        for requirement in package.requires
    )


def _module(package: InstalledPackage) -> str:
    """Name the module that a package is imported by."""
    modules = [match[1] for file in package.files if (match := _MODULE.fullmatch(file.path))]
    modules = modules or [package.record.name.partition("-")[0]]
    return next((module for module in modules if canonicalize_name(module) == package.name), modules[0])
