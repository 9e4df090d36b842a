"""The repairs of an environment: commands that install its packages again, and what is carried out of a fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from gpuinstall.base import process
from gpuinstall.base.advice import OURS, Advice
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.finding import Finding
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.text import without_logins
from gpuinstall.base.uv import BuildVariables, uv
from gpuinstall.lock.file.lock import LOCK_IN_CONFLICT

CLEAN = ("cache", "clean")


_OURS = "import sys; sys.path[:] = filter(None, sys.path); from gpuinstall.__main__ import main; main()"
"""Starts the tool with none of the working folder's modules, in Python 3.10 too."""


class RepairResult(NamedTuple):
    """How a step ended."""

    command: str
    status: str
    message: str | None
    """Why it failed; None if it did not."""


def repair_steps(findings: Collection[Finding], venv: Path) -> tuple[Advice, ...]:
    """Return for each finding of the environment the first fix that can be carried out.

    An environment is made again only if nothing smaller is advised, and if no lock has a conflict, which comes first.

    Args:
        findings: What is wrong.
        venv: The environment: no step is for another.
    """
    steps: dict[Advice, None] = {}
    for finding in findings:
        if finding.where != "environment":
            continue
        advices = [
            fix if isinstance(fix, Advice) else Advice.parse(fix)
            for fix in finding.fixes
        ]
        possible = [advice for advice in advices if advice and _is_step(advice, venv)]
        # The cache is cleaned for what follows, and by itself repairs nothing.
        cleaning = [step for step in possible if step.arguments[:2] == CLEAN]
        # Each further fix is another way to the same end.
        others = [step for step in possible if step not in cleaning]
        steps.update(dict.fromkeys([*cleaning, *others[:1]]))
    smaller = tuple(step for step in steps if step.program != OURS)
    has_conflict = any(finding.code == LOCK_IN_CONFLICT for finding in findings)
    # The examination that follows these shows whether more is needed.
    if smaller or has_conflict:
        return smaller
    return tuple(steps)[:1]


def _is_step(fix: Advice, venv: Path) -> bool:
    """Whether a fix is one of uv in this environment, or of ours for it.

    Some fixes of the table would have other programs change the machine: those are not run.

    Args:
        fix: A command.
        venv: The environment.
    """
    match fix.program, fix.arguments:
        case "uv", ("pip", "install" | "uninstall", "--python", python, *_):
            return python == str(interpreter(venv))
        case "uv", ("venv", "--allow-existing", *_, folder):
            return folder == str(venv)
        case "uv", ("cache", "clean", _):
            return True
        case "gpuinstall", ("install" | "sync", *rest):
            return str(venv) in rest
    return False


def run_repairs(
    steps: Iterable[Advice],
    environment: Mapping[str, str],
    reporter: Reporter,
) -> tuple[RepairResult, ...]:
    """Make the steps in order, up to the first that fails.

    Args:
        steps: The commands.
        environment: The variables of the session for uv, whose tokens no step is given.
        reporter: What is told of the progress.
    """
    results = []
    for step in steps:
        reporter.wait(f"running {step.program}")
        message = _run(step, environment)
        status = "failed" if message else "done"
        results.append(RepairResult(str(step), status, message))
        if message:
            break
    return tuple(results)


def _run(step: Advice, environment: Mapping[str, str]) -> str | None:
    """Make a step.

    Args:
        step: The command.
        environment: The variables of the session for uv.

    Returns:
        Why it failed; None if it did not.
    """
    program = [str(uv())]
    # It may build a package, whose code sees no token; the netrc file of the run has the index's login.
    variables = BuildVariables().given(environment)
    if "UV_DEFAULT_INDEX" in environment:
        variables["UV_DEFAULT_INDEX"] = without_logins(environment["UV_DEFAULT_INDEX"])
    if step.program == OURS:
        program = [sys.executable, "-c", _OURS]
        variables = dict(os.environ)
    done = process.run([*program, *step.arguments], env=variables)
    if done.ok:
        return None
    text = done.err.strip() or done.out.strip() or f"it ended with {done.status}"
    # uv's last lines have the cause, those before them its progress.
    return "\n".join(text.splitlines()[-4:])
