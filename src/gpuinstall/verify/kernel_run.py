"""Child processes that run kernels, one per device, and their reports."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import make_private_folder, own_cache_folder
from gpuinstall.base.finding import CheckResult, CheckStatus
from gpuinstall.base.values import Value, convert, replace
from gpuinstall.machine.children import (
    describe_end,
    is_timeout,
    json_lines,
    json_or_none,
    run_children,
)
from gpuinstall.verify.kernels.context import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuinstall.base.process import Finished
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.verify.devices import DeviceTarget

KERNELS = Path(__file__).parent / "kernels"
LOADER = ("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH")
KERNEL_SECONDS = {"quick": 300.0, "deep": 900.0, "bench": 1200.0}
"""Time limits that allow for PTX compilation and slow network disks."""
# At its time limit, a child prints its call trace and exits. A child that does not exit is killed after GRACE seconds.
GRACE = 15.0
COUNT_S = 10.0
"""Seconds between two reports of the finished checks."""
INTERPRETING = ("TRITON_INTERPRET", "TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
"""Environment variables that disable the compilation of kernels."""


class KernelReport(Value):
    """Report of a child process that ran kernels on one device."""

    records: tuple[CheckResult, ...] = ()
    architectures: tuple[str, ...] | None = None
    """The GPU architectures of torch; None if torch cannot be imported."""

    unproven: str | None = None
    """The reason why the device could not be tested, if any."""

    loader_settings: str = ""
    """Loader variables without which, and only then, the checks pass."""

    hung: bool = False

    @property
    def failed(self) -> bool:
        """Whether any check on the device failed."""
        return any(record.status == "failed" for record in self.records)


class KernelRun(Value):
    """Kernels to run with an interpreter."""

    python: Path
    flags: tuple[str, ...]
    work: str
    """The table of checks: quick, deep, or bench."""

    program: str | None = None
    """The module to test instead of torch, if any."""

    @property
    def seconds(self) -> float:
        """The time limit of a child process in seconds."""
        return KERNEL_SECONDS["quick" if self.program else self.work]

    def run_all(
        self,
        targets: Sequence[DeviceTarget],
        each_line: Callable[[str], None] | None = None,
    ) -> list[KernelReport]:
        """Run one child process per device, in parallel.

        If the checks of a device fail, they run again without variables such as
        LD_LIBRARY_PATH, which may be the cause.

        Args:
            targets: The devices.
            each_line: Receives each line of the first run, in other threads.
        """
        reports = self._run(targets, each_line=each_line)
        present = filter(os.environ.get, LOADER)
        settings = " ".join(f"{name}={os.environ[name]}" for name in present)
        if not settings:
            return reports
        # A child that hung would use its full time limit again.
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
        each_line: Callable[[str], None] | None = None,
    ) -> list[KernelReport]:
        excluded = {*INTERPRETING, *without}
        environ = {
            name: value for name, value in os.environ.items() if name not in excluded
        }
        # Unlike /tmp, this folder allows compiled code.
        temporary = own_cache_folder() / "temporary"
        with suppress(InstallationError):
            make_private_folder(temporary)
            environ["TMPDIR"] = str(temporary)
        # The device's variables override a user's CUDA_VISIBLE_DEVICES.
        commands = [
            (self.argv(target), target.select_environment(environ))
            for target in targets
        ]
        # Programs and compilers start further interpreters, which import modules of their working folder.
        with TemporaryDirectory(ignore_cleanup_errors=True) as empty:
            ended = run_children(
                commands,
                self.seconds + GRACE,
                cwd=Path(empty).absolute(),
                each_line=each_line,
            )
        return [read_kernel_report(finished, self.seconds) for finished in ended]

    def argv(self, target: DeviceTarget) -> list[str]:
        """Return the command line of a child process for a device."""
        options = {
            "device": target.device,
            "gpus": max(1, len(target.visible)),
            "work": self.work,
            "seconds": self.seconds,
            "program": self.program,
        }
        script = str(KERNELS / "launch.py")
        return [
            str(self.python.absolute()),
            *self.flags,
            script,
            json.dumps(options),
        ]


def read_kernel_report(finished: Finished, seconds: float) -> KernelReport:
    """Parse a child's report. An unfinished check counts as failed.

    torch can change any value, so a malformed line is a failure, too.
    """
    records = []
    last = "start"
    failure = ""
    architectures = unproven = None
    for text in json_lines(finished, MARK):
        try:
            line = convert(text, _Line)
        except ValueError as error:
            failure = f"torch reported a malformed value: {error}"
            break
        if line.architectures is not None:
            architectures = line.architectures
        unproven = line.unproven or unproven
        last = line.begin or last
        if line.name:
            records.append(line.check)
            last = "exit"
    if not (finished.ok and records):
        failure = failure or describe_end(finished, seconds)
    if failure:
        records.append(
            CheckResult(last, "failed", message=failure, evidence=finished.err)
        )
    return KernelReport(
        records=tuple(records),
        architectures=architectures,
        hung=is_timeout(finished),
        unproven=unproven,
    )


def count_checks(text: str, reporter: Reporter) -> Callable[[str], None]:
    """Return a function that reports how many checks are finished.

    Args:
        text: The work, for the reports.
        reporter: Receives a report every ``COUNT_S`` seconds.
    """
    totals: list[int] = []
    finished: list[str] = []
    times = [monotonic()]

    def receive(line: str) -> None:
        record = json_or_none(line.removeprefix(MARK))
        with suppress(ValueError):
            read = convert(record, _Line)
            totals.append(read.checks)
            # The import of torch precedes the checks.
            if read.name not in {"", "import"}:
                finished.append(read.name)
            if any(totals) and monotonic() - times[-1] >= COUNT_S:
                times.append(monotonic())
                reporter.wait(f"{text} ({len(finished)} of {sum(totals)})")

    return receive


class _Line(Value):
    """Line of a child's report: a started or finished check, or a fact."""

    begin: str = ""
    checks: int = 0
    """The number of the checks that follow."""
    name: str = ""
    status: CheckStatus = "failed"
    seconds: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    message: str | None = None
    evidence: str = ""
    architectures: tuple[str, ...] | None = None
    unproven: str | None = None

    @property
    def check(self) -> CheckResult:
        """The result of a finished check."""
        return CheckResult(
            self.name, self.status, self.seconds, self.message, evidence=self.evidence
        )
