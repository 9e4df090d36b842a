"""The child processes that run the kernels, one per device and side by side, and what each of them reports."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.facts.children import run_children
from gpuinstall.files import parse_json
from gpuinstall.finding import CheckResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.process import Finished
    from gpuinstall.reporter import Progress
    from gpuinstall.verify.devices import DeviceTarget

_COMPLETE = {"name": {"status", "seconds"}, "measure": {"value", "unit"}}
_STATUSES = ("passed", "failed", "skipped", "unproven")
_TEXTS = ("begin", "name", "message", "text", "architecture", "measure", "unit")
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
GRACE = 15.0

TIMEOUT = "Timeout ("
# What a shell adds to the number of the signal that ended its program.
SHELL = 128
KILLED = {
    "SIGKILL": "the system does that when memory runs out, also at a job's limit",
    "SIGILL": "this processor lacks an instruction that the build uses",
}


@dataclass(frozen=True)
class KernelReport:
    """Everything from one child; ``measures`` are the numbers that it took.

    ``architectures`` are those of the build, None where torch could not be imported; ``architecture`` is the GPU's.
    ``unproven`` says why the device could not be tried, ``loader_variables`` are those without which it passes.
    ``program`` is the module that was put to the proof beside a torch that works; ``loaded`` are the modules that torch
    and its checks have imported.
    """

    records: tuple[CheckResult, ...] = ()
    measures: tuple[dict[str, Any], ...] = ()
    architectures: tuple[str, ...] | None = None
    architecture: str | None = None
    unproven: str | None = None
    loader_variables: tuple[tuple[str, str], ...] = ()
    hung: bool = False
    program: str | None = None
    loaded: frozenset[str] = frozenset()

    @property
    def failed(self) -> bool:
        """Say whether any check failed."""
        return any(record.status == "failed" for record in self.records)


@dataclass(frozen=True)
class KernelRun:
    """How to run one table of kernels (``work``) with one interpreter; a child ends itself after ``seconds``.

    ``program`` is the module of one package that is put to the proof instead, ``script`` its row, as JSON.
    """

    python: Path
    flags: tuple[str, ...]
    work: str
    seconds: float
    program: str | None = None
    script: str | None = None

    def run_all(
        self, targets: Sequence[DeviceTarget], progress: Progress | None = None
    ) -> list[KernelReport]:
        """Run one child per device at once; run those that fail again without the loader's variables, to blame them."""
        reports = self._run(targets, os.environ, progress)
        misleading = tuple((name, os.environ[name]) for name in LOADER if os.environ.get(name))
        suspects = [
            number
            for number, first in enumerate(reports)
            if misleading and first.failed and not first.hung
        ]
        clean = {name: value for name, value in os.environ.items() if name not in LOADER}
        for number, second in zip(
            suspects, self._run([targets[number] for number in suspects], clean), strict=True
        ):
            if not second.failed:
                reports[number] = replace(reports[number], loader_variables=misleading)
        return reports

    def _run(
        self,
        targets: Sequence[DeviceTarget],
        environ: Mapping[str, str],
        progress: Progress | None = None,
    ) -> list[KernelReport]:
        def hear(number: int, line: str) -> None:
            if progress and "name" in (json_object(line) or {}):
                progress(targets[number].part, 1)

        commands = []
        for target in targets:
            kept = {name: value for name, value in environ.items() if name not in target.misleading}
            commands.append((self.argv(target), {**kept, **target.environment}))
        ended = run_children(commands, self.seconds + GRACE, waiting=lambda: None, each_line=hear)
        return [
            replace(read_kernel_report(finished, self.seconds), program=self.program)
            for finished in ended
        ]

    def argv(self, target: DeviceTarget) -> list[str]:
        """Give the child's command line."""
        launch = [str(self.python), *self.flags, "-c", LAUNCH, str(KERNELS / "__init__.py")]
        gpus, programs = (
            max(1, len(target.visible)),
            {"program": self.program, "script": self.script},
        )
        options = {
            "device": target.device,
            "gpus": gpus,
            "work": self.work,
            "seconds": self.seconds,
            **programs,
        }
        given = ((name, value) for name, value in options.items() if value is not None)
        return [*launch, *(word for name, value in given for word in (f"--{name}", str(value)))]


def read_kernel_report(finished: Finished, seconds: float) -> KernelReport:
    """Read a child's lines; a check that began and has no end is the one it crashed, hung or was killed in."""
    lines = list(filter(None, map(json_object, finished.out.splitlines())))
    records = []
    for line in (line for line in lines if "name" in line):
        status: Any = "skipped" if line["status"] == "unproven" else line["status"]
        message, text = line.get("message"), line.get("text") or ""
        records.append(CheckResult(line["name"], status, line["seconds"], message, evidence=text))
    if not (finished.ok and records):
        ending = how_it_ended(finished, seconds)
        records.append(
            CheckResult(_last_begun(lines), "failed", message=ending, evidence=finished.err)
        )
    return KernelReport(
        records=tuple(records),
        measures=tuple(line for line in lines if "measure" in line),
        architectures=next(
            (tuple(map(str, line["architectures"])) for line in lines if "architectures" in line),
            None,
        ),
        architecture=next((line["architecture"] for line in lines if "architecture" in line), None),
        hung=finished.status is None or (not finished.ok and TIMEOUT in finished.err),
        loaded=frozenset(str(name) for line in lines for name in line.get("loaded", ())),
        unproven=next(
            (line["message"] for line in lines if line.get("status") == "unproven"), None
        ),
    )


def json_object(line: str) -> dict[str, Any] | None:
    """Read a line that a child of ours wrote; None where something else wrote it (a start-up file of the user's)."""
    with suppress(ValueError):
        value = parse_json(line)
        return value if isinstance(value, dict) and _is_ours(value) else None
    return None


def _is_ours(line: dict[str, Any]) -> bool:
    """Say whether what a child of ours writes stands there as it writes it."""
    return (
        all(further <= line.keys() for key, further in _COMPLETE.items() if key in line)
        and line.get("status", "passed") in _STATUSES
        and all(isinstance(line.get(key, 0), (int, float)) for key in ("seconds", "value"))
        and all(isinstance(line.get(key) or "", str) for key in _TEXTS)
        and all(isinstance(line.get(key, []), list) for key in ("architectures", "loaded"))
    )


def how_it_ended(finished: Finished, seconds: float) -> str:
    """Say in one line how a child ended."""
    if finished.status is None or TIMEOUT in finished.err:
        return f"not finished after {seconds:.0f} s"
    if finished.status < 0 or SHELL < finished.status <= SHELL + signal.NSIG:
        number = finished.status % SHELL if finished.status > 0 else -finished.status
        name = signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"
        return f"killed by {name}" + (f": {KILLED[name]}" if name in KILLED else "")
    if finished.status > 0x80000000:
        return f"ended by Windows exception 0x{finished.status:08X}"
    lines = finished.err.strip().splitlines() or ["no output"]
    return f"ended with status {finished.status}: {lines[-1]}"


def last_words(finished: Finished, seconds: float) -> str:
    """Say why a program ended: the last line that it wrote, the first of a fatal error of the interpreter's own."""
    lines = [line.strip() for line in finished.err.splitlines() if line.strip()]
    fatal = (line for line in lines if line.startswith("Fatal Python error"))
    return next(fatal, lines[-1] if lines else how_it_ended(finished, seconds))


def _last_begun(lines: list[dict[str, Any]]) -> str:
    """Name the check that began last and has no end; before the first it is the start, after the last the exit."""
    ended = {line["name"] for line in lines if "name" in line}
    begun = [line["begin"] for line in lines if "begin" in line]
    return next(
        (name for name in reversed(begun) if name not in ended), "exit" if begun else "start"
    )
