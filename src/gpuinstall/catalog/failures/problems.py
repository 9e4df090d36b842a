"""Select the fixes of failures for a machine, and create findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

from gpuinstall.base.advice import Advice, Hint, read_hint
from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import PROBE, Machine
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog.failures.table import (
    FixTable,
    Step,
    load_distributions,
    load_failures,
    load_lookalikes,
    load_problems,
    read_table,
)

ANYWHERE = "any"
LINUX = "linux"

ELSEWHERE = frozenset(("container", "wsl", "jetson", "windows", "macos"))
"""The systems for which driver packages must not be installed directly.

On these systems, the driver is on the host, or is part of Windows, JetPack, or macOS.
"""
_RESTART_OF_WSL = Step("wsl.exe --shutdown", "in Windows")


class FixContext(Value):
    """System and GPUs to which a fix applies."""

    keys: tuple[str, ...] = ()
    """The fix keys of the operating system, most specific first."""
    is_about: Callable[[str], bool] = frozenset[str]().__contains__
    """Return whether a text is about a fix key, whose steps then apply."""
    placeholders: Mapping[str, str] = {}
    """The values for the placeholders in fixes."""
    is_legacy: bool = False
    """Whether the GPUs require an old driver branch."""
    is_for_torch: bool = True
    """Whether to include the steps for torch."""

    @classmethod
    def of_machine(cls, machine: Machine) -> FixContext:
        """Create the context that selects fixes for a machine.

        The keys of the container and of WSL precede the keys of the system.
        """
        environment = machine.environment
        engine = environment.container
        keys = [engine, "container"] if engine else []
        if environment.wsl:
            keys.append("wsl")
        if environment.jetson:
            keys.append("jetson")
        context = cls((*keys, *own_keys(machine.os, machine.distribution)))
        version = machine.driver.version if machine.driver else None
        chips = {str(gpu.compute_capability) for gpu in machine.gpus} - {"None"}
        return context.knowing(
            version=version,
            running=version and version.branch,
            capability=";".join(sorted(chips)) or None,
        )

    def about(self, *keys: str) -> FixContext:
        """Return a copy with subjects that select more specific fixes."""
        return replace(self, is_about=keys.__contains__)

    def knowing(self, **placeholders: object) -> FixContext:
        """Return a copy with more placeholder values. None is unknown."""
        further = {
            name: str(value)
            for name, value in placeholders.items()
            if value is not None
        }
        return replace(self, placeholders={**self.placeholders, **further})


def own_keys(
    os: str,
    distribution: str | None,
) -> tuple[str, ...]:
    """Return the fix keys of an operating system, most specific first.

    A distribution has the keys ``debian-12``, ``debian``, and ``apt``. For an unknown
    distribution, the commands for apt are used.
    """
    name = distribution or ""
    plain = re.sub(r"[^a-z]+", " ", name.lower()).strip()
    release = re.search(r"\d+", name)
    for family in load_distributions():
        if plain.startswith(family.names):
            keys = (family.key, family.manager, os)
            return (f"{family.key}-{release[0]}", *keys) if release else keys
    return (LINUX, "apt") if os == LINUX else (os,)


def fix(what: str, context: FixContext) -> tuple[Hint, ...]:
    """Return the steps that fix a failure or problem in one context.

    Args:
        what: The ID of a failure or the code of a problem.
        context: The context in which the user runs the commands.

    Raises:
        KeyError: The table has no such failure or problem.
    """
    known = {
        "probe": PROBE,
        "release-of-system": _release(context.keys),
        **context.placeholders,
    }
    defaults = read_table("distributions")["placeholders"]
    python = known.get("python", defaults["python"])
    # Some defaults are commands of the environment's Python.
    values = {
        name: default.replace("{python}", python) for name, default in defaults.items()
    } | known
    hints: dict[str, Hint] = {}
    for step in _steps(what, context):
        placed = place(step, context.keys)
        # Skip a step with a placeholder that has no value, such as one that only a text can fill.
        if placed is None or not placeholders_in(str(placed)) <= values.keys():
            continue
        if step.is_for_torch and not context.is_for_torch:
            continue
        line = str(placed).format_map(values)
        # A shell reads <the package> as a redirection.
        sentence = "Fill in the value, and run: " if re.search("<[a-z]", line) else ""
        # If a command occurs several times, the first note is used.
        hints.setdefault(placed.command, read_hint(sentence + line))
    return tuple(hints.values())


def placeholders_in(line: str) -> set[str]:
    """Return the names of the placeholders in a line."""
    from string import Formatter

    return {name for _, name, _, _ in Formatter().parse(line) if name}


def finding_for(
    code: str,
    message: str,
    context: FixContext,
    *,
    entry: str | None = None,
    fixes: tuple[Advice, ...] = (),
    **facts: Any,
) -> Finding:
    """Create a finding with the fixes for its code or failure.

    Args:
        code: The code of the problem.
        message: The problem, in one line.
        context: The context in which the user applies the fixes.
        entry: The ID of the failure, by default the one for the code.
        fixes: The fixes, by default those in the table.
        facts: Other fields of the finding.

    Raises:
        KeyError: The table has neither the code nor the failure.
    """
    kind = load_problems().get(code)
    what = code if kind else entry or code
    return Finding(
        code,
        message,
        id=entry or (kind.id if kind else None),
        fixes=fixes or fix(what, context),
        **facts,
    )


def with_own_fixes(machine: Machine) -> Machine:
    """Replace the fixes in a machine's document with the table's fixes."""
    context = FixContext.of_machine(machine)
    known = load_problems()
    problems = tuple(
        replace(one, fixes=fix(one.code, context) if one.code in known else ())
        for one in machine.problems
    )
    return replace(machine, problems=problems)


def code_told(message: str) -> str | None:
    """Return the code of the problem that a check's message describes."""
    for kind in load_problems().values():
        if any(text in message for text in kind.told):
            return kind.code
    return None


def place(step: Step, keys: Collection[str]) -> Step | None:
    """Adapt a step to a machine; return None if it does not apply there."""
    is_windows = "windows" in keys
    if step.place == "driver" and (is_windows or "wsl" in keys):
        where = "as administrator" if is_windows else "in Windows, as administrator"
        return replace(_noted(step, where), root=False)
    if step.place == "kernel" and "wsl" in keys:
        return _RESTART_OF_WSL
    if is_windows:
        return _in_powershell(step)
    if step.place not in ("", LINUX) and "container" in keys:
        if step.place == "packages":
            return None
        return _noted(step, "on the host")
    return step


def _noted(step: Step, where: str) -> Step:
    return replace(step, note=f"{where}; {step.note}" if step.note else where)


def _in_powershell(step: Step) -> Step | None:
    if step.restart and not step.run:
        return Step("Restart Windows")
    if step.root or step.place:
        return None
    commands = [f"Remove-Item Env:{name}" for name in step.unset]
    commands += [f'$env:{name} = "{value}"' for name, value in step.export.items()]
    return Step("; ".join(commands) or step.run, step.note)


def _steps(
    what: str,
    context: FixContext,
) -> tuple[Step, ...]:
    """Return the steps of a failure or code: see :class:`FixTable`."""
    name = what.removesuffix("-legacy")
    table = _table(name)
    for key, commands in table.commands.items():
        if context.is_about(key):
            return commands
    context = replace(context, is_legacy=context.is_legacy or name != what)
    suffixes = ["-legacy", ""] if context.is_legacy else [""]
    keys = [f"{key}{suffix}" for key in context.keys for suffix in suffixes]
    fitting = [key for key in keys if key in table.commands]
    own: tuple[Step, ...] = ()
    if ELSEWHERE.isdisjoint(context.keys):
        for action in table.packages:
            own += _steps(action, context)
    if table.like:
        # Restart only once, because a later step restarts the machine.
        own = tuple(replace(step, restart=False) for step in own)
    if fitting:
        own += table.commands[fitting[0]]
    else:
        for other in table.like:
            own += _steps(other, context)
    steps = own + table.commands.get(ANYWHERE, ())
    return steps or table.commands.get(LINUX, ())


def _table(what: str) -> FixTable:
    """Return the fix table of a code or failure."""
    packages = load_packages().get(what)
    if packages:
        return packages
    kind = load_problems().get(what)
    if kind and kind.fix:
        return kind.fix
    identity = kind.id if kind else what
    if identity is None:
        return FixTable({})
    return {**load_failures(), **load_lookalikes()}[identity].fix


@cache
def load_packages() -> Mapping[str, FixTable]:
    """Load the steps for driver packages by action."""
    rows = read_table("packages")
    return {name: FixTable.from_document(row, name) for name, row in rows.items()}


def _release(keys: Sequence[str]) -> str:
    """Return the release in a key such as ``debian-12``, or ""."""
    return next(filter(None, (key.partition("-")[2] for key in keys)), "")
