"""A uv project's pyproject.toml: a dependency group for each backend that is locked, each with an index of its own.

uv's lock cannot choose by GPU, so the person does: ``uv sync --group torch-cu126``. TOML is edited a whole line at a
time: what is added says so at its end, what is replaced stays as a comment. So order, comments and spaces stay as they
were, and taking the edit back gives the same bytes. (tomlkit does neither: of seven files that were edited and
restored with it, five had other bytes, and of four with inline tables and dotted keys, two were no TOML any more.)
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import tomli
from packaging.utils import canonicalize_name

from gpuinstall.errors import UsageError
from gpuinstall.export.pins import backend_of, requirement_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gpuinstall.lock.lock import Lock

GROUPS, UV = ("dependency-groups",), ("tool", "uv")
ADDED = "  # by gpuinstall"
REPLACED = "# by gpuinstall, was: "


@dataclass(frozen=True)
class DependencyGroup:
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


def groups(locks: Iterable[Lock], family: Collection[str]) -> tuple[DependencyGroup, ...]:
    """Make a group of the locks of each backend; raise UsageError where a lock does not say its backend."""
    by_backend: dict[str, list[Lock]] = defaultdict(list)
    for lock in locks:
        by_backend[backend_of(lock).tag].append(lock)
    return tuple(_group(backend, held, family) for backend, held in sorted(by_backend.items()))


def patched(text: str, wanted: Sequence[DependencyGroup], torch_index: str) -> str:
    """Write ``wanted`` into the text of a pyproject.toml; ``torch_index`` is the base of their indexes.

    Raise UsageError where the text is no TOML, has ``[tool.uv]`` in a form that no line can be added to, is no
    project's, or has a group or an index of the same name.
    """
    text = unpatched(text)
    document = _parse(text)
    _refuse(document, wanted)
    old = document.get("tool", {}).get("uv", {})
    for group in wanted:
        text = put(text, GROUPS, group.name, _array(map(json.dumps, group.requirements)))
        if group.python:
            text = put(text, (*UV, "dependency-groups"), group.name, [_inline({"requires-python": group.python})])
    sources = _sources(old.get("sources", {}), wanted)
    chosen = (_choice(entry) for entries in sources.values() for entry in entries)
    exclusive: list[dict[str, str]] = []
    for choice in (*_rivals(document, sources), *chosen, *({"group": group.name} for group in wanted)):
        exclusive += [choice] if choice not in exclusive else []
    if len(exclusive) > 1:  # of those that say which build of the family it is, only one can be had at a time
        conflicts = [*old.get("conflicts", []), exclusive]
        text = put(text, UV, "conflicts", _array(f"[{', '.join(map(_inline, clash))}]" for clash in conflicts))
    for package, entries in sources.items():
        text = put(text, (*UV, "sources"), package, _array(map(_inline, entries)))
    for group in wanted:
        address = f"{torch_index}/{group.backend}"
        index = [f"name = {json.dumps(group.index)}", f"url = {json.dumps(address)}", "explicit = true"]
        text = append(text, "[[tool.uv.index]]", [line + ADDED for line in index])
    try:
        tomli.loads(text)
    except tomli.TOMLDecodeError:  # what was added does not go with inline tables or dotted keys
        raise UsageError(
            "pyproject-inline",
            "pyproject.toml cannot be patched: its groups, indexes or sources are in a form that cannot be extended",
            hint="Write [dependency-groups], [tool.uv], [tool.uv.sources] and [[tool.uv.index]] as tables of their "
            "own, each package's source as one line of [tool.uv.sources]\nthe same again",
        ) from None
    return text


def unpatched(text: str) -> str:
    """Take out what ``patched`` wrote: the same bytes as before; raise UsageError where the text is no TOML."""
    _parse(text)
    return restored(text)


def _group(backend: str, locks: Sequence[Lock], family: Collection[str]) -> DependencyGroup:
    """Make the group of a backend: what was asked for applies everywhere, the rest only where a lock holds it.

    An extension's file for one torch has a version that no index of uv's has, and is named by its address.
    """
    held: dict[tuple[str, str], list[Lock]] = defaultdict(list)
    for lock in locks:
        for package, version in lock.versions_of(family).items():
            held[package, f"{package}=={version.partition('+')[0]}"].append(lock)
        for one in lock.pylock.packages:
            if one.name not in family and one.wheels and one.version and one.version.local:
                held[one.name, requirement_of(one, one.wheels, by_address=True)].append(lock)
    inputs, requirements = {"torch"}.union(*(lock.asked for lock in locks)), []
    for (package, requirement), holders in held.items():
        markers = [str(marker).replace('"', "'") for lock in holders for marker in lock.pylock.environments or ()]
        everywhere = not markers or (package in inputs and len(holders) == len(locks))
        requirements.append(requirement + ("" if everywhere else f" ; {' or '.join(markers)}"))
    pythons = {str(lock.pylock.requires_python or "") for lock in locks}
    if len(pythons) > 1:
        names = ", ".join(lock.name for lock in locks)
        raise UsageError("pythons-differ", f"{names} are for different Pythons", hint="gpuinstall lock --upgrade")
    packages = sorted({package for package, _ in held if package in family})
    return DependencyGroup(backend, tuple(requirements), tuple(packages), pythons.pop())


def _refuse(document: dict[str, Any], wanted: Sequence[DependencyGroup]) -> None:
    """Refuse a file that is no project's, and one that has a group or an index of the same name."""
    if "project" not in document:
        message = "pyproject.toml has no [project], without which uv cannot make groups exclude each other"
        raise UsageError("no-project", message, hint="Add a [project] with name, version and requires-python")
    indexes = document.get("tool", {}).get("uv", {}).get("index", [])
    taken = {*map(canonicalize_name, document.get(GROUPS[0], {})), *(index.get("name") for index in indexes)}
    for name in (name for group in wanted for name in (group.name, group.index) if name in taken):
        raise UsageError("name-taken", f"pyproject.toml has {name} already", hint=f"Rename {name} there")


def _sources(table: dict[str, Any], wanted: Sequence[DependencyGroup]) -> dict[str, list[dict[str, str]]]:
    """The sources of each package, as it is spelled: what was said for an extra or a group of its own stays."""
    spelled = {canonicalize_name(package): package for package in table}
    sources: dict[str, list[dict[str, str]]] = {}
    for package in sorted({package for group in wanted for package in group.packages}):
        key = spelled.get(canonicalize_name(package), package)
        old = table.get(key, [])
        kept = [entry for entry in (old if isinstance(old, list) else [old]) if _choice(entry)]
        ours = [{"index": group.index, "group": group.name} for group in wanted if package in group.packages]
        sources[key] = kept + ours
    return sources


def _rivals(document: dict[str, Any], packages: Iterable[str]) -> Iterator[dict[str, str]]:
    """The extras and groups that exclude each other already, and ask for one of the packages."""
    family = set(map(canonicalize_name, packages))
    asking = {"extra": document["project"].get("optional-dependencies", {}), "group": document.get(GROUPS[0], {})}
    for choice in chain(*document.get("tool", {}).get("uv", {}).get("conflicts", [])):
        for kind, name in _choice(choice).items():
            texts = (text for text in asking[kind].get(name, ()) if isinstance(text, str))
            if family & {canonicalize_name(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in texts}:
                yield {kind: name}


def _choice(entry: dict[str, str]) -> dict[str, str]:
    return {key: entry[key] for key in ("extra", "group") if key in entry}


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        message = f"pyproject.toml cannot be patched: {error}"
        raise UsageError("pyproject-malformed", message, hint="Repair pyproject.toml") from None


def _array(items: Iterable[str]) -> list[str]:
    return ["[", *(f"    {item}," for item in items), "]"]


def _inline(table: dict[str, Any]) -> str:
    words = (f"{key} = {json.dumps(value if isinstance(value, bool) else str(value))}" for key, value in table.items())
    return f"{{ {', '.join(words)} }}"


class Statement(NamedTuple):
    """A header, or a key with its value: its table, the line of that table's header, its key ("" for a header)."""

    table: tuple[str, ...]
    header: int
    key: str
    start: int
    stop: int


def put(text: str, table: tuple[str, ...], key: str, value: Sequence[str]) -> str:
    """Give ``key`` in ``table`` a value, the lines of which are ``value``; an old one becomes a comment."""
    lines = text.split("\n")
    inside = [statement for statement in statements(text) if statement.table == table]
    name = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'
    added = [f"{name} = {value[0]}{ADDED}", *value[1:]]
    if not inside:
        return append(text, f"[{'.'.join(table)}]", added)
    stop = inside[-1].stop
    for old in inside:
        if old.key == key:
            lines[old.start : old.stop] = [REPLACED + line for line in lines[old.start : old.stop]]
            stop = old.stop
    return "\n".join([*lines[:stop], *added, *lines[stop:]])


def append(text: str, header: str, lines: Sequence[str]) -> str:
    """Add a table at the end, after an empty line; its statements are marked already."""
    before = text.split("\n")
    last = [before.pop()] if before[-1] == "" else []
    return "\n".join([*before, "", header + ADDED, *lines, *last])


def restored(text: str) -> str:
    """Take every edit back; a table to which something else was added since stays, with that alone."""
    lines, gone = text.split("\n"), set[int]()
    every = list(statements(text))
    shared = {statement.header for statement in every if statement.key and not _added(lines[statement.start])}
    for statement in every:
        if statement.start in shared:
            lines[statement.start] = lines[statement.start].replace(ADDED, "")
        elif _added(lines[statement.start]):
            empty_before = not statement.key and not lines[statement.start - 1].strip()
            gone.update(range(statement.start - empty_before, statement.stop))
    theirs = {at for statement in every for at in range(statement.start, statement.stop)}
    return "\n".join(
        line if at in theirs else line.removeprefix(REPLACED) for at, line in enumerate(lines) if at not in gone
    )


def statements(text: str) -> Iterator[Statement]:
    """Find the headers and keys of a well-formed document."""
    lines = text.split("\n")
    table: tuple[str, ...] = ()
    start, header = 0, -1
    while start < len(lines):
        stop, document = _statement(lines, start)
        keys: list[str] = []
        while document and isinstance(document, (dict, list)):
            if isinstance(document, list):
                document = document[0]
            else:
                key, document = next(iter(document.items()))
                keys.append(key)
        if lines[start].lstrip().startswith("["):
            table, header = tuple(keys), start
        if keys:
            yield Statement(table, header, "" if start == header else keys[0], start, stop)
        start = stop


def _statement(lines: Sequence[str], start: int) -> tuple[int, Any]:
    """Return the end of the statement that begins at a line, and what it says: the fewest lines that are TOML."""
    for stop in range(start + 1, len(lines)):
        with suppress(tomli.TOMLDecodeError):
            return stop, tomli.loads("\n".join([*lines[start:stop], ""]))
    return len(lines), tomli.loads("\n".join(lines[start:]))


def _added(line: str) -> bool:
    return line.rstrip().endswith(ADDED)
