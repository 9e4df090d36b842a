"""A plan as people read it: the choice, why, and what was passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.backend import CPU
from gpuinstall.cli.machine import machine_line
from gpuinstall.errors import NoBuildError
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import error_of

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.machine import Machine
    from gpuinstall.plan import Plan


def show_plan(plan: Plan, machine: Machine, terminal: Terminal) -> None:
    """Print the choice and its reasons, or the refusal."""
    error = error_of(plan, machine)
    if plan.choice is None or error is not None:
        terminal.fault(error or NoBuildError("refused", "no build fits"))
        return
    title = f"torch {plan.choice.build.name} · Python {plan.choice.python}"
    terminal.line(f"{terminal.style(title, 'bold')}        for {machine_line(machine)}")
    for reason in plan.reasons:
        terminal.line(f"  {reason.message}")
    terminal.line(f"  index  {plan.choice.index or 'the default index'}")
    if len(plan.choice.requirements) > 1:
        terminal.line(f"  with   {', '.join(plan.choice.requirements[1:])}")
    if plan.rejected:
        terminal.line(f"  more   {_more(plan)}")
    for warning in plan.warnings:
        terminal.warn(warning.message)


def show_rejected(plan: Plan, machine: Machine, terminal: Terminal) -> None:
    """Print every build that was passed over, as a table, then the refusal if it is one."""
    if plan.choice:
        terminal.line(f"torch {plan.choice.build.name} is chosen; {len(plan.rejected)} builds were passed over")
    if plan.rejected:
        _show_table(plan, terminal)
    if error := error_of(plan, machine):
        terminal.fault(error)


def answer(question: str, plan: Plan) -> str:
    """Say why a backend, a torch version or a build was passed over."""
    if plan.choice and question in _names(plan.choice.build.torch, plan.choice.build.backend.tag):
        return f"torch {plan.choice.build.name} is chosen: {'; '.join(reason.message for reason in plan.reasons)}"
    asked = [found for found in plan.rejected if question in _names(found.build.torch, found.build.backend.tag)]
    if asked:
        best = next((found for found in asked if found.code not in NOT_THERE), asked[0])
        return f"not torch {best.build.name}: {best.message}"
    if plan.choice is None:
        return f"nothing is chosen: {plan.reasons[0].message}"
    if question.endswith(CPU.tag) and plan.choice.build.backend != CPU:
        return "the CPU build is taken where there is no NVIDIA GPU, or with --backend cpu"
    return f"there is no build {question} for this platform"


def _show_table(plan: Plan, terminal: Terminal) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("torch", "backend", "why not", box=None, pad_edge=False)
    for rejection in plan.rejected:
        table.add_row(str(rejection.build.torch), rejection.build.backend.tag, rejection.message)
    Console(file=terminal.out, no_color=not terminal.colored(terminal.out)).print(table)


def _names(torch: object, backend: str) -> tuple[str, ...]:
    return str(torch), backend, f"{torch}+{backend}"


def _more(plan: Plan) -> str:
    example = next((found.build.backend for found in plan.rejected if found.code not in NOT_THERE), None)
    rest = f", --why {example} one of them" if example else ""
    return f"--all shows the {len(plan.rejected)} builds passed over{rest}"
