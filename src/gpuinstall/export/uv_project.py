"""A uv project's pyproject.toml: a dependency group for each backend that is locked, each with its own index.

uv's lock cannot choose by GPU, so the person does: ``uv sync --group torch-cu126``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tomli
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpuinstall.errors import UsageError
from gpuinstall.export.backend import backend_of
from gpuinstall.export.constraints import family_versions
from gpuinstall.export.toml_lines import ADDED, append, put, restored

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gpuinstall.lock.lock import Lock

GROUPS, UV = ("dependency-groups",), ("tool", "uv")


@dataclass(frozen=True)
class Group:
    """The dependency group of one backend: its requirements, the packages they name, and its Python."""

    backend: str
    requirements: tuple[str, ...]
    packages: tuple[str, ...]
    python: str

    @property
    def name(self) -> str:
        """The name of the group."""
        return f"torch-{self.backend}"

    @property
    def index(self) -> str:
        """The name of its index."""
        return f"gpuinstall-{self.backend}"


def groups(locks: Iterable[Lock], family: Collection[str]) -> tuple[Group, ...]:
    """Make a group of the locks of each backend; raise UsageError where a lock does not say its backend."""
    by_backend: dict[str, list[Lock]] = defaultdict(list)
    for lock in locks:
        by_backend[backend_of(lock)].append(lock)
    return tuple(_group(backend, together, family) for backend, together in sorted(by_backend.items()))


def patched(text: str, wanted: Sequence[Group], torch_index: str) -> str:
    """Write ``wanted`` into the text of a pyproject.toml; ``torch_index`` is the base of their indexes.

    Raise UsageError where the text is no TOML, or has ``[tool.uv]`` in a form that no line can be added to.
    """
    text = unpatched(text)
    said = _parse(text).get("tool", {}).get("uv", {})
    for group in wanted:
        text = put(text, GROUPS, group.name, _array(map(_string, group.requirements)))
        text = put(text, (*UV, "dependency-groups"), group.name, [_inline({"requires-python": group.python})])
    sources = _sources(said.get("sources", {}), wanted)
    together = _conflict(sources, wanted)
    if len(together) > 1:
        conflicts = [*said.get("conflicts", []), together]
        text = put(text, UV, "conflicts", _array(f"[{', '.join(map(_inline, clash))}]" for clash in conflicts))
    for package, entries in sources.items():
        text = put(text, (*UV, "sources"), package, _array(map(_inline, entries)))
    for group in wanted:
        address = f"{torch_index}/{group.backend}"
        index = [f"name = {_string(group.index)}", f"url = {_string(address)}", "explicit = true"]
        text = append(text, "[[tool.uv.index]]", [line + ADDED for line in index])
    _parse(text)
    return text


def unpatched(text: str) -> str:
    """Take out what ``patched`` wrote: the same bytes as before; raise UsageError where the text is no TOML."""
    _parse(text)
    return restored(text)


def _group(backend: str, locks: Sequence[Lock], family: Collection[str]) -> Group:
    held: dict[tuple[str, str], list[Lock]] = defaultdict(list)
    for lock in locks:
        for package, version in family_versions(lock, family).items():
            held[package, version.partition("+")[0]].append(lock)
    requirements = [
        f"{package}=={version}{_marker(package, holders, locks)}" for (package, version), holders in held.items()
    ]
    pythons = {str(lock.pylock.requires_python or "") for lock in locks}
    if len(pythons) > 1:
        names = ", ".join(lock.name for lock in locks)
        raise UsageError("pythons-differ", f"{names} are for different Pythons", hint="gpuinstall lock --upgrade")
    packages = sorted({package for package, _ in held})
    return Group(backend, tuple(requirements), tuple(packages), pythons.pop())


def _marker(package: str, holders: Sequence[Lock], locks: Sequence[Lock]) -> str:
    """Say where a requirement applies: everywhere, if it was asked for; else only where a lock holds it."""
    asked = {canonicalize_name(Requirement(text).name) for lock in locks for text in (*lock.inputs, "torch")}
    if package in asked and len(holders) == len(locks):
        return ""
    places = [str(marker).replace('"', "'") for lock in holders for marker in lock.pylock.environments or ()]
    return f" ; {' or '.join(places)}" if places else ""


def _sources(said: dict[str, Any], wanted: Sequence[Group]) -> dict[str, list[dict[str, str]]]:
    """The sources of each package: what was said for an extra or a group of the project's own stays."""
    sources: dict[str, list[dict[str, str]]] = {}
    for package in sorted({package for group in wanted for package in group.packages}):
        old = said.get(package, [])
        kept = [entry for entry in (old if isinstance(old, list) else [old]) if _choice(entry)]
        ours = [{"index": group.index, "group": group.name} for group in wanted if package in group.packages]
        sources[package] = kept + ours
    return sources


def _conflict(sources: dict[str, list[dict[str, str]]], wanted: Sequence[Group]) -> list[dict[str, str]]:
    """Of the extras and groups that say where the family comes from, only one can be had at a time."""
    others = [_choice(entry) for entries in sources.values() for entry in entries]
    every = [*others, *({"group": group.name} for group in wanted)]
    return [choice for at, choice in enumerate(every) if choice not in every[:at]]


def _choice(entry: dict[str, str]) -> dict[str, str]:
    return {key: entry[key] for key in ("extra", "group") if key in entry}


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise UsageError(
            "pyproject-malformed",
            f"pyproject.toml cannot be patched: {error}",
            hint="write [tool.uv], its sources and its indexes as tables of their own, and run the same again",
        ) from None


def _array(items: Iterable[str]) -> list[str]:
    return ["[", *(f"    {item}," for item in items), "]"]


def _inline(table: dict[str, Any]) -> str:
    return f"{{ {', '.join(_members(table))} }}"


def _members(table: dict[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield f"{key} = {str(value).lower() if isinstance(value, bool) else _string(str(value))}"


def _string(text: str) -> str:
    import json

    return json.dumps(text)
