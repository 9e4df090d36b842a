"""The child processes that run the kernels, one per device and side by side, and what each of them reports."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import make_private_folder, own_cache_folder, parse_json
from gpuinstall.base.finding import CheckResult
from gpuinstall.base.values import Value, replace
from gpuinstall.machine.children import run_children, signal_name
from gpuinstall.verify.kernels.context import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

_TIMEOUT = re.compile(r"(?m)^Timeout \(\d+:\d\d:\d\d")
"""What faulthandler writes, at the start of a line: a library that was at work may log a "ReadTimeout (…)" of its own."""
KILLED = {
    "SIGKILL": "the system does that when memory runs out, also at a job's limit",
    "SIGILL": "this processor lacks an instruction that the build uses",
}


class KernelReport(Value):
    """Everything from one child."""

    records: tuple[CheckResult, ...] = ()
    architectures: tuple[str, ...] | None = None
    """Those of the build; None if torch could not be imported."""

    unproven: str | None = None
    """Why the device could not be tried."""

    loader_variables: tuple[tuple[str, str], ...] = ()
    """Those without which it passes."""

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
        reports = self._run(targets, os.environ)
        misleading = tuple(
            (name, os.environ[name]) for name in LOADER if os.environ.get(name)
        )
        if not misleading:
            return reports
        # One that hung would cost its whole time once more.
        suspects = [
            number
            for number, report in enumerate(reports)
            if report.failed and not report.hung
        ]
        again = self._run(
            [targets[number] for number in suspects],
            {name: value for name, value in os.environ.items() if name not in LOADER},
        )
        for number, report in zip(suspects, again, strict=True):
            if not report.failed:
                reports[number] = replace(reports[number], loader_variables=misleading)
        return reports

    def _run(
        self,
        targets: Sequence[DeviceTarget],
        environ: Mapping[str, str],
    ) -> list[KernelReport]:
        commands = []
        environ = {
            name: value for name, value in environ.items() if name not in INTERPRETING
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
    for line in filter(None, map(json_object, finished.out.splitlines())):
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
        hung=_is_out_of_time(finished),
        unproven=facts.get("unproven"),
    )


def json_object(line: str) -> dict[str, Any] | None:
    """Return what a child of ours wrote in a line; None if something else wrote it (a start-up file of the user's)."""
    if not line.startswith(MARK):
        return None
    with suppress(ValueError):
        value = parse_json(line.removeprefix(MARK))
        return value if isinstance(value, dict) else None
    # The child was ended in the middle of a line.
    return None


def _is_out_of_time(finished: Finished) -> bool:
    """Whether a child was ended because its time was over: by us, or with status 1 by its own faulthandler."""
    ended_itself = finished.status == 1 and _TIMEOUT.search(finished.err) is not None
    return finished.status is None or ended_itself


def how_it_ended(finished: Finished, seconds: float) -> str:
    """Return in one line how a child ended."""
    status = finished.status
    if finished.excess:
        return finished.excess
    if status is None or _is_out_of_time(finished):
        return f"not finished after {seconds:.0f} s"
    if status < 0:
        return _killed_by(-status)
    # Windows returns the exception that ended a process as its status.
    if status > 0x80000000:
        return f"ended by Windows exception 0x{status:08X}"
    lines = finished.err.strip().splitlines() or ["no output"]
    return f"ended with status {status}: {lines[-1]}"


def _killed_by(number: int) -> str:
    name = signal_name(number)
    if name in KILLED:
        return f"killed by {name}: {KILLED[name]}"
    return f"killed by {name}"


def last_words(finished: Finished, seconds: float) -> str:
    """Return why a program ended: the last line that it wrote, the first of a fatal error of the interpreter's own."""
    lines = list(filter(None, map(str.strip, finished.err.splitlines())))
    for line in lines:
        if line.startswith("Fatal Python error"):
            return line
    if lines:
        return lines[-1]
    return how_it_ended(finished, seconds)
