"""The repairs of an environment: commands that install its packages again, and what is carried out of a fix."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.utils import canonicalize_name

from gpuinstall import process
from gpuinstall.advice import OURS, Advice
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.paths import interpreter, packages_folders
from gpuinstall.files import remove_path
from gpuinstall.lock.lock import LOCK_IN_CONFLICT
from gpuinstall.uv import uv

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from packaging.requirements import Requirement

    from gpuinstall.environments.packages import InstalledPackage
    from gpuinstall.finding import Finding
    from gpuinstall.reporter import Reporter
    from gpuinstall.sources import Sources


class RepairSource(NamedTuple):
    """Where the packages of ``venv`` come from: its own ``lock``, else the indexes of what was chosen by hand.

    ``torch`` are the words that lead uv to torch and its family, whose names are ``family``.
    """

    venv: Path = Path(".venv")
    lock: Path | None = None
    torch: tuple[str, ...] = ()
    family: frozenset[str] = frozenset()

    def reinstall(self, package: InstalledPackage) -> Advice:
        """Install a package again that is there, and nothing else."""
        again = ("--reinstall-package", package.name)
        if self.lock:
            return self._with_uv("-r", str(self.lock), *again)
        pinned = f"{package.name}=={package.version}"
        return self._with_uv("--no-deps", *self._where(package.name), *again, pinned)

    def install(self, requirement: Requirement) -> Advice:
        """Install what is required and not there, or there in another version."""
        name = canonicalize_name(requirement.name)
        if self.lock:
            return self._with_uv("-r", str(self.lock), "--reinstall-package", name)
        return self._with_uv(*self._where(name), f"{name}{requirement.specifier}")

    def _with_uv(self, *words: str) -> Advice:
        return Advice("uv", ("pip", "install", "--python", str(interpreter(self.venv)), *words))

    def _where(self, name: str) -> tuple[str, ...]:
        return self.torch if name in self.family else ()


def read_repair(venv: Path, version: str, sources: Sources, family: frozenset[str]) -> RepairSource:
    """Find out where the packages of an environment with this ``version`` of torch come from."""
    marker = read_marker(venv)
    if marker and (venv / marker.lock).is_file():
        return RepairSource(venv, lock=venv / marker.lock)
    label = version.partition("+")[2]
    folders = [
        link for link in sources.find_links if any(Path(link).glob(f"torch-{version}-*.whl"))
    ]
    if version and folders and not sources.named:
        return RepairSource(venv, None, ("--find-links", folders[0]), family)
    # A torch without a label is on every index.
    return RepairSource(
        venv, None, ("--index", f"{sources.torch_index}/{label}") if label else (), family
    )


class RepairResult(NamedTuple):
    """How a step ended; ``message`` says why it failed, and is None where it did not."""

    step: Advice
    message: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Write it for the doctor's document."""
        return {
            "command": str(self.step),
            "status": "failed" if self.message else "done",
            "message": self.message,
        }


def repair_steps(findings: Iterable[Finding], venv: Path) -> tuple[Advice, ...]:
    """Choose of each finding of the environment the first fix that can be carried out.

    An environment is made again only if nothing smaller is advised, and if no lock has a conflict, which comes first.
    """
    steps = dict[Advice, None]()
    findings = tuple(findings)
    for finding in findings:
        commands = (fix if isinstance(fix, Advice) else Advice.parse(fix) for fix in finding.fixes)
        first = next((fix for fix in commands if fix and _is_step(fix, venv)), None)
        if first and finding.where == "environment":
            steps[first] = None
    can_install = all(finding.code != LOCK_IN_CONFLICT for finding in findings)
    renewals = [step for step in steps if step.program == OURS and can_install]
    smaller = [step for step in steps if step.program != OURS]
    return tuple(
        smaller if any(step.program == "uv" for step in smaller) else renewals[:1] or smaller
    )


def run_repairs(
    steps: Iterable[Advice], environment: Mapping[str, str], reporter: Reporter
) -> tuple[RepairResult, ...]:
    """Make the steps in order, up to the first that fails."""
    results: list[RepairResult] = []
    for step in steps:
        reporter.wait(f"running {step.program}")
        results.append(RepairResult(step, _run(step, environment)))
        if results[-1].message:
            break
    return tuple(results)


def _is_step(fix: Advice, venv: Path) -> bool:
    """Say whether a fix is one of uv in this environment, of ours for it, or removes what lies useless in it."""
    match fix.program, fix.arguments:
        case "uv", ("pip", "install" | "uninstall", "--python", python, *_):
            return python == str(interpreter(venv))
        case "gpuinstall", ("install" | "sync", *rest):
            return str(venv) in rest
        case "rm", ("-r", *paths):
            folders = packages_folders(venv)
            return all(
                Path(path).name.startswith("~") and Path(path).parent in folders for path in paths
            )
    return False


def _run(step: Advice, environment: Mapping[str, str]) -> str | None:
    if step.program == "rm":
        paths = [Path(path) for path in step.arguments[1:]]
        for path in paths:
            remove_path(path)
        return next((f"{path} is still there" for path in paths if path.exists()), None)
    ours = step.program == OURS
    program = (sys.executable, "-m", OURS) if ours else (str(uv()),)
    done = process.run([*program, *step.arguments], env=dict(os.environ) if ours else environment)
    lines = (
        done.err.strip().splitlines()
        or done.out.strip().splitlines()
        or [f"it ended with {done.status}"]
    )
    return None if done.ok else "\n".join(lines[-4:])
