"""What to do about a failure on one machine, and findings with the words of the table, which says it for everybody."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinstall.failures.table import (
    FixTable,
    load_distributions,
    load_failures,
    load_problems,
    load_words,
)
from gpuinstall.finding import Finding, Where

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuinstall.machine import Machine

ANYWHERE = "any"
LINUX = "linux"

_OF_THE_HOST = re.compile(
    r"sudo (reboot|poweroff|modprobe|rmmod|dmesg|nvidia-|systemctl|update-)|[^:]*&& sudo reboot"
)
_OF_LINUX = re.compile(
    r"sudo |env -u |ls -l /|cat /|export LD_LIBRARY|(?!.*Windows).*(\| grep|ldconfig|/etc/ld\.so|~/\.)"
)
_UNSET = re.compile(r"unset ([A-Z_ ]+)\b")
_EXPORT = re.compile(r"\bexport ([A-Z_]+)=(\S+)")


@dataclass(frozen=True)
class FixContext:
    """Where a fix will be applied: the keys of the fixes that fit, the closest first, and the words they need."""

    keys: tuple[str, ...] = ()
    words: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_machine(cls, machine: Machine) -> FixContext:
        """Take from a machine what decides over commands."""
        environment, version = (
            machine.environment,
            machine.driver.version if machine.driver else None,
        )
        closer = (
            *(("jetson",) if environment.l4t else ()),
            *release_keys(machine.distribution or ""),
            machine.os,
        )
        keys = place_keys(environment.container, *closer, wsl=environment.wsl)
        words = {"version": version, "running": version.branch} if version else {}
        return cls(keys).knowing(**words)

    def near(self, *keys: str) -> FixContext:
        """Prefer the fixes of further keys."""
        return FixContext((*keys, *self.keys), self.words)

    def knowing(self, **words: object) -> FixContext:
        """Add words that fixes may name."""
        return FixContext(
            self.keys, (*self.words, *((name, str(word)) for name, word in words.items()))
        )


def place_keys(engine: str | None, *own: str, wsl: bool) -> tuple[str, ...]:
    """Give the keys of a place: those of its container's ``engine`` and of WSL before those of the system itself."""
    return (*((engine, "container") if engine else ()), *(("wsl",) if wsl else ()), *own)


def distribution_keys(*names: str) -> tuple[str, ...]:
    """Give the keys of a distribution and of its package manager, by its name or its IDs; none where it is not known.

    ``names`` are what os-release(5) says, the closest first: ``Ubuntu 22.04``, or ID and each word of ID_LIKE.
    """
    for name in names:
        plain = re.sub(r"[^a-z]+", " ", name.lower()).strip()
        for family in load_distributions():
            if plain.startswith(family.names):
                return family.key, family.manager
    return ()


def release_keys(distribution: str) -> tuple[str, ...]:
    """Give the keys of a distribution by its name, that of its release first: ``debian-12``, ``debian``, ``apt``."""
    keys, release = distribution_keys(distribution), re.search(r"\d+(\.\d+)?", distribution)
    return (f"{keys[0]}-{release[0]}", *keys) if keys and release else keys


def fix(what: str, context: FixContext, *, legacy: bool = False) -> tuple[str, ...]:
    """Choose the commands for a failure's id or a problem's code; ``legacy``: for GPUs that need an old driver.

    Those of the first key that fits, then those that hold anywhere; raise KeyError for what the table does not have.
    """
    words = _Words({**load_words(), **dict(context.words)})
    chosen: dict[str, str] = {}
    for line in said_for(context.keys, _commands(what, context, legacy=legacy)):
        text = line.format_map(words)
        command = text.partition("   #")[0]
        chosen.setdefault(command, text)
    return tuple(chosen.values())


def fix_of(what: str, context: FixContext, *, legacy: bool = False) -> str | None:
    """Write the commands of ``fix`` below each other; None where there is nothing to do."""
    return "\n".join(fix(what, context, legacy=legacy)) or None


def finding_for(
    code: str,
    message: str,
    context: FixContext,
    *,
    why: str | None = None,
    evidence: str | None = None,
    entry: str | None = None,
    where: Where = "machine",
    gpus: tuple[int, ...] = (),
    blocking: bool = True,
    legacy: bool = False,
) -> Finding:
    """Make a finding with the fixes of its ``code``, or of the failure ``entry`` where the table has no such code.

    Raise KeyError where the table has neither. A container needs no reboot.
    """
    kind = load_problems().get(code)
    needs = (
        need
        for need in (kind.needs if kind else ())
        if need != "reboot" or "container" not in context.keys
    )
    return Finding(
        code=code,
        message=message,
        id=entry or (kind.id if kind else None),
        why=why,
        evidence=evidence,
        fixes=fix(code if kind or not entry else entry, context, legacy=legacy),
        where=where,
        gpus=gpus,
        blocking=blocking,
        needs=tuple(needs),
    )


def code_told(message: str) -> str | None:
    """Name the problem that the words of our own checks mean; None where they name none."""
    kinds = load_problems().values()
    return next((kind.code for kind in kinds if any(words in message for words in kind.told)), None)


def said_for(keys: Collection[str], lines: Iterable[str]) -> tuple[str, ...]:
    """Say lines for a place by the keys of its fixes; what has no meaning there is left out where others remain."""
    lines = tuple(lines)
    if "container" in keys:
        return tuple(f"On the host: {line}" if _OF_THE_HOST.match(line) else line for line in lines)
    if "windows" in keys:
        kept = [line for line in lines if not _OF_LINUX.match(line)] or lines
        return tuple(map(_in_powershell, kept))
    return lines


def _commands(what: str, context: FixContext, *, legacy: bool) -> tuple[str, ...]:
    """Give the commands of the closest key that has any; for an old GPU the ``-legacy`` form of each goes first."""
    table = _table(what)
    old = legacy or table.legacy
    keys = (form for key in context.keys for form in ((f"{key}-legacy", key) if old else (key,)))
    own = next((table.commands[key] for key in keys if key in table.commands), None)
    if own is None:
        own = tuple(line for name in table.like for line in _commands(name, context, legacy=old))
    if not own and LINUX in context.keys:
        own = _each_manager(table.commands)
    return (*own, *table.commands.get(ANYWHERE, ())) or table.commands.get(LINUX, ())


def _table(what: str) -> FixTable:
    kind = load_problems().get(what)
    if kind is None:
        return load_failures()[what].fix
    if kind.fix is not None:
        return kind.fix
    return load_failures()[kind.id].fix if kind.id else FixTable({})


def _each_manager(commands: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Give one command for each package manager, where nobody knows which it is, then what is said for all of them."""
    managers = [
        name
        for name in dict.fromkeys(family.manager for family in load_distributions())
        if name in commands
    ]
    prose = dict.fromkeys(
        line for name in managers for line in commands[name] if line[:1].isupper()
    )
    plain = {
        name: [line.partition("   #")[0] for line in commands[name] if line not in prose]
        for name in managers
    }
    return (
        *(f"{' && '.join(lines)}   # with {name}" for name, lines in plain.items() if lines),
        *prose,
    )


class _Words(dict[str, str]):
    """A word that nobody knows stays as its own name."""

    def __missing__(self, name: str) -> str:
        return f"<{name}>"


def _in_powershell(line: str) -> str:
    line = _UNSET.sub(
        lambda names: "Remove-Item " + ", ".join(f"Env:{name}" for name in names[1].split()), line
    )
    return _EXPORT.sub(r'$env:\1 = "\2"', line)
