"""The child processes that run the kernels: one per device, side by side, none able to take another down."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuinstall.facts.children import run_children
from gpuinstall.verify import report
from gpuinstall.verify.environment import KERNELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpuinstall.verify.report import Report
    from gpuinstall.verify.targets import Target

LAUNCH = "import sys; sys.path.insert(0, sys.argv.pop(1)); from kernels.main import main; sys.path.pop(0); main()"
LOADER = ("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH")
SECONDS = {"quick": 180.0, "deep": 900.0, "bench": 1200.0}
GRACE = 15.0


@dataclass(frozen=True)
class Child:
    """How to run one table of kernels (``work``) with one interpreter; a child ends itself after ``seconds``."""

    python: Path
    flags: tuple[str, ...]
    work: str
    seconds: float

    def run_all(self, targets: Sequence[Target]) -> list[Report]:
        """Run one child per device at once; run those that fail again without the loader's variables, to blame them."""
        reports = self._run(targets, os.environ)
        misleading = [name for name in LOADER if os.environ.get(name)]
        suspect = [place for place, first in enumerate(reports) if misleading and first.failed and not first.hung]
        clean = {name: value for name, value in os.environ.items() if name not in LOADER}
        for place, second in zip(suspect, self._run([targets[place] for place in suspect], clean), strict=True):
            if not second.failed:
                blamed = " ".join(f"{name}={os.environ[name]}" for name in misleading)
                reports[place] = replace(reports[place], blamed=blamed)
        return reports

    def _run(self, targets: Sequence[Target], environ: Mapping[str, str]) -> list[Report]:
        commands = [(self.argv(target), {**environ, **target.environment}) for target in targets]
        ended = run_children(commands, self.seconds + GRACE, waiting=lambda: None)
        return [report.read(finished, self.seconds) for finished in ended]

    def argv(self, target: Target) -> list[str]:
        """Give the child's command line."""
        launch = [str(self.python), *self.flags, "-c", LAUNCH, str(KERNELS.parent)]
        return [*launch, "--device", target.device, "--work", self.work, "--seconds", str(self.seconds)]
