"""The child processes that run the kernels, one per device and side by side, and what each of them reports."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import make_private_folder, own_cache_folder
from gpuinstall.base.finding import CheckResult
from gpuinstall.base.values import Value, replace
from gpuinstall.machine.children import (
    how_it_ended,
    is_timeout,
    json_lines,
    run_children,
)
from gpuinstall.verify.kernels.context import MARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.base.process import Finished
    from gpuinstall.verify.devices import DeviceTarget

KERNELS = Path(__file__).parent / "kernels"
# Under a name that no package has: ``kernels`` is one on the index, and programs import it.
LAUNCH = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
compiling, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing is written beside these modules
spec = spec_from_file_location("gpuinstall_kernels", sys.argv.pop(1))
spec.loader.exec_module(sys.modules.setdefault(spec.name, module_from_spec(spec)))
from gpuinstall_kernels.main import main
sys.dont_write_bytecode = compiling
main()
"""
LOADER = ("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH")
KERNEL_SECONDS = {"quick": 300.0, "deep": 900.0, "bench": 1200.0}
"""Room for a driver that compiles a build's PTX at its first use, and for eight imports of torch from a network."""
# A child ends itself when its time is over, and says where it was: only one that cannot is ended from here.
GRACE = 15.0
INTERPRETING = ("TRITON_INTERPRET", "TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
"""The variables with which what should be compiled for the GPU runs in Python, and passes."""


class KernelReport(Value):
    """Everything from one child."""

    records: tuple[CheckResult, ...] = ()
    architectures: tuple[str, ...] | None = None
    """Those of the build; None if torch could not be imported."""

    unproven: str | None = None
    """Why the device could not be tried."""

    loader_settings: str = ""
    """The loader's variables without which it passes, with their values."""

    hung: bool = False
    program: str | None = None
    """The module that was put to the proof beside a torch that works."""

    @property
    def failed(self) -> bool:
        """Whether any check failed."""
        return any(record.status == "failed" for record in self.records)


class KernelRun(Value):
    """How to run kernels with one interpreter."""

    python: Path
    flags: tuple[str, ...]
    work: str
    """The table of checks: quick, deep or bench."""

    program: str | None = None
    """The module of one package that is put to the proof instead."""

    @property
    def seconds(self) -> float:
        """After which a child ends itself: one package has the time of the quick checks."""
        return KERNEL_SECONDS["quick" if self.program else self.work]

    def run_all(self, targets: Sequence[DeviceTarget]) -> list[KernelReport]:
        """Run one child per device, all at once; run those that fail again without the loader's variables, to blame them."""
        reports = self._run(targets)
        present = filter(os.environ.get, LOADER)
        settings = " ".join(f"{name}={os.environ[name]}" for name in present)
        if not settings:
            return reports
        # One that hung would cost its whole time once more.
        suspects = [
            number
            for number, report in enumerate(reports)
            if report.failed and not report.hung
        ]
        again = self._run([targets[number] for number in suspects], without=LOADER)
        for number, report in zip(suspects, again, strict=True):
            if not report.failed:
                reports[number] = replace(reports[number], loader_settings=settings)
        return reports

    def _run(
        self,
        targets: Sequence[DeviceTarget],
        without: tuple[str, ...] = (),
    ) -> list[KernelReport]:
        commands = []
        left_out = {*INTERPRETING, *without}
        environ = {
            name: value for name, value in os.environ.items() if name not in left_out
        } | _temporary_folder()
        for target in targets:
            # The device's own variables come last: a user's CUDA_VISIBLE_DEVICES would hide what is to be tried.
            variables = environ | target.environment
            for name in target.misleading - target.environment.keys():
                variables.pop(name, None)
            commands.append((self.argv(target), variables))
        reports = []
        for finished in run_children(commands, self.seconds + GRACE):
            report = read_kernel_report(finished, self.seconds)
            reports.append(replace(report, program=self.program))
        return reports

    def argv(self, target: DeviceTarget) -> list[str]:
        """Return the child's command line."""
        options = {
            "device": target.device,
            "gpus": max(1, len(target.visible)),
            "work": self.work,
            "seconds": self.seconds,
            "program": self.program,
        }
        launch = (
            str(self.python),
            *self.flags,
            "-c",
            LAUNCH,
            str(KERNELS / "__init__.py"),
        )
        return [*launch, json.dumps(options)]


def _temporary_folder() -> dict[str, str]:
    """Return the variable that has a child compile where its code may be run: /tmp is often mounted noexec."""
    folder = own_cache_folder() / "temporary"
    with suppress(InstallationError):
        make_private_folder(folder)
        return {"TMPDIR": str(folder)}
    return {}


def read_kernel_report(finished: Finished, seconds: float) -> KernelReport:
    """Read a child's lines; a check that began and has no end is the one it crashed, hung or was killed in."""
    records = []
    facts: dict[str, Any] = {}
    last = "start"
    for line in json_lines(finished, MARK):
        if "name" in line:
            records.append(CheckResult(**line))
            last = "exit"
        else:
            facts |= line
            last = line.get("begin", last)
    if not (finished.ok and records):
        message = how_it_ended(finished, seconds)
        records.append(
            CheckResult(last, "failed", message=message, evidence=finished.err)
        )
    architectures = facts.get("architectures")
    return KernelReport(
        records=tuple(records),
        architectures=None if architectures is None else tuple(architectures),
        hung=is_timeout(finished),
        unproven=facts.get("unproven"),
    )
