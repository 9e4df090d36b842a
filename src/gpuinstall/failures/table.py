"""The failure catalogue, as frozen values read from ``data/*.toml``.

Keys of an entry: ``says`` is a pattern (:mod:`gpuinstall.failures.pattern`), ``weight`` how sure it makes us, 0 to 1;
``when`` and ``unless`` name circumstances that must and must not hold; ``behind`` names entries that are mere
consequences of this one; ``fix`` has one list of commands a platform; ``detected`` says whether we see it before
an installation, after it, or only in a text. A source is a thread (owner/repository#number) or an address.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gpuinstall.failures.pattern import Pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUPS = ("driver", "detection", "wheel", "libraries", "runtime")


@dataclass(frozen=True)
class Sign:
    """A message that points to a failure."""

    pattern: Pattern
    weight: float
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """One way in which a GPU stack fails: how it shows, why, what to do."""

    id: str
    group: str
    date: str
    title: str
    messages: tuple[str, ...]
    cause: str
    apart: str
    detected: tuple[str, ...]
    signs: tuple[Sign, ...]
    fix: Mapping[str, tuple[str, ...]]
    advice: tuple[str, ...]
    behind: tuple[str, ...]
    sources: tuple[str, ...]
    level: str


@dataclass(frozen=True)
class Advice:
    """What people are often told to do, and why not; ``right`` names the failures for which it is good advice."""

    id: str
    told: str
    why: str
    patterns: tuple[Pattern, ...]
    right: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lookalike:
    """What looks like a fault of the GPU's stack and is none."""

    id: str
    title: str
    why: str
    fix: tuple[str, ...]
    patterns: tuple[Pattern, ...]


@cache
def load_failures() -> Mapping[str, Failure]:
    """Read the catalogue: the entries by their ids, in order."""
    found = [_failure(item, page) for page in map(_read, GROUPS) for item in page["failure"]]
    return {failure.id: failure for failure in sorted(found, key=lambda failure: failure.id)}


@cache
def load_circumstances() -> Mapping[str, tuple[Pattern, ...]]:
    """Read the circumstances: the patterns of each by its name."""
    return {name: tuple(map(Pattern, says)) for name, says in _read("circumstances").items()}


@cache
def load_advice() -> Mapping[str, Advice]:
    """Read the common wrong advice, by its ids."""
    return {
        item["id"]: Advice(
            item["id"], item["told"], item["why"], tuple(map(Pattern, item["says"])), tuple(item.get("right", ()))
        )
        for item in _read("advice")["advice"]
    }


@cache
def load_lookalikes() -> tuple[Lookalike, ...]:
    """Read what only looks like a fault of the GPU's stack."""
    return tuple(
        Lookalike(item["id"], item["title"], item["why"], tuple(item["fix"]), tuple(map(Pattern, item["says"])))
        for item in _read("lookalikes")["lookalike"]
    )


def _read(name: str) -> dict[str, Any]:
    import tomli

    return tomli.loads(files("gpuinstall.failures").joinpath("data", f"{name}.toml").read_text(encoding="utf-8"))


def _failure(item: Mapping[str, Any], page: Mapping[str, Any]) -> Failure:
    return Failure(
        id=item["id"],
        group=page["group"],
        date=page["date"],
        title=item["title"],
        messages=tuple(item["messages"]),
        cause=item["cause"],
        apart=item["apart"],
        detected=tuple(item["detected"]),
        signs=tuple(map(_sign, item["signs"])),
        fix={platform: tuple(commands) for platform, commands in item["fix"].items()},
        advice=tuple(item.get("advice", ())),
        behind=tuple(item.get("behind", ())),
        sources=tuple(item["sources"]),
        level=item.get("level", "reported"),
    )


def _sign(item: Mapping[str, Any]) -> Sign:
    return Sign(Pattern(item["says"]), item["weight"], tuple(item.get("when", ())), tuple(item.get("unless", ())))
