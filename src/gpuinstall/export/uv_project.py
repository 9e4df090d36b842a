"""A uv project's pyproject.toml: a dependency group for each locked backend, with its index.

uv's lock cannot choose by GPU, so the user does: ``uv sync --group torch-cu126``. TOML is edited
a whole line at a time: what is added says so at its end, what is replaced stays as a comment. So
order, comments and spaces stay as they were, and taking the edit back gives the same bytes.
(tomlkit does neither: of seven files that were edited and restored with it, five had other bytes,
and of four with inline tables and dotted keys, two were no TOML any more.)
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import tomli
from packaging.utils import canonicalize_name

from gpuinstall.base.errors import UsageError
from gpuinstall.base.values import dataclass
from gpuinstall.export.pins import backend_of, requirement_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gpuinstall.lock.lock import Lock

    _Entry = dict[str, str]

_GROUPS = ("dependency-groups",)
_UV = ("tool", "uv")
ADDED = "  # by gpuinstall"
REPLACED = "# by gpuinstall, was: "


@dataclass(frozen=True)
class DependencyGroup:
    """The dependency group of one backend."""

    backend: str
    requirements: tuple[str, ...]
    packages: tuple[str, ...]
    """Those of the family that the requirements name."""
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
    """Return a group for the locks of each backend; raise UsageError if a lock does not say it."""
    by_backend: dict[str, list[Lock]] = defaultdict(list)
    for lock in locks:
        by_backend[backend_of(lock).tag].append(lock)
    return tuple(_group(backend, same, family) for backend, same in sorted(by_backend.items()))


def patched(
    text: str,
    wanted: Sequence[DependencyGroup],
    torch_index: str,
) -> str:
    """Return a pyproject.toml with some groups.

    Args:
        text: The pyproject.toml as it is.
        wanted: The groups.
        torch_index: The base of their indexes.

    Raises:
        UsageError: if the text is no TOML or no project's, has ``[tool.uv]`` in a form that no line
            can be added to, or a group or an index of the same name.
    """
    text = unpatched(text)
    document = _parse(text)
    _refuse(document, wanted)
    old = document.get("tool", {}).get("uv", {})
    for group in wanted:
        requirements = _array(map(json.dumps, group.requirements))
        text = put(text, _GROUPS, group.name, requirements)
        if group.python:
            python = _inline({"requires-python": group.python})
            text = put(text, (*_UV, "dependency-groups"), group.name, [python])
    sources = _sources(old.get("sources", {}), wanted)
    exclusive = _exclusive(document, sources, wanted)
    if len(exclusive) > 1:
        conflicts = [*old.get("conflicts", []), exclusive]
        lists = [", ".join(map(_inline, choices)) for choices in conflicts]
        text = put(text, _UV, "conflicts", _array(f"[{choices}]" for choices in lists))
    for package, entries in sources.items():
        text = put(text, (*_UV, "sources"), package, _array(map(_inline, entries)))
    for group in wanted:
        lines = [
            f"name = {json.dumps(group.index)}",
            f"url = {json.dumps(f'{torch_index}/{group.backend}')}",
            "explicit = true",
        ]
        text = append(text, "[[tool.uv.index]]", [line + ADDED for line in lines])
    try:
        tomli.loads(text)
    except tomli.TOMLDecodeError:
        # What was added does not go with inline tables or dotted keys.
        cause = "its groups, indexes or sources are in a form that cannot be extended"
        raise UsageError(
            "pyproject-inline",
            f"pyproject.toml cannot be patched: {cause}",
            hint="Write [dependency-groups], [tool.uv], [tool.uv.sources] and [[tool.uv.index]] as "
            "tables of their own, each package's source as one line of [tool.uv.sources]\n"
            "Run it again",
        ) from None
    return text


def _exclusive(
    document: dict[str, Any],
    sources: dict[str, list[_Entry]],
    wanted: Iterable[DependencyGroup],
) -> list[_Entry]:
    """Return the extras and groups that decide the build of the family: only one can be had."""
    choices = list(_rivals(document, sources))
    for entries in sources.values():
        choices += map(_choice, entries)
    choices += [{"group": group.name} for group in wanted]
    exclusive: list[_Entry] = []
    for choice in choices:
        if choice not in exclusive:
            exclusive.append(choice)
    return exclusive


def unpatched(text: str) -> str:
    """Return the same bytes as before ``patched``; raise UsageError if the text is no TOML."""
    _parse(text)
    return restored(text)


def _group(
    backend: str,
    locks: Sequence[Lock],
    family: Collection[str],
) -> DependencyGroup:
    """Return the group of a backend.

    What was requested applies everywhere, the rest only if a lock has it. An extension's file
    for one torch has a version that no index of uv's has, and is named by its address.
    """
    holders: dict[tuple[str, str], list[Lock]] = defaultdict(list)
    for lock in locks:
        for package, requirement in _locked(lock, family):
            holders[package, requirement].append(lock)
    inputs = {"torch"}.union(*(lock.requested_names for lock in locks))
    requirements = []
    for (package, requirement), own_locks in holders.items():
        markers = " or ".join(_markers(own_locks))
        is_input_of_all = package in inputs and len(own_locks) == len(locks)
        if markers and not is_input_of_all:
            requirements.append(f"{requirement} ; {markers}")
        else:
            requirements.append(requirement)
    pythons = {str(lock.pylock.requires_python or "") for lock in locks}
    if len(pythons) > 1:
        names = ", ".join(lock.name for lock in locks)
        message = f"{names} are for different Pythons"
        raise UsageError(
            "pythons-differ",
            message,
            hint="gpuinstall lock --upgrade",
        )
    packages = {package for package, _ in holders if package in family}
    return DependencyGroup(
        backend=backend,
        requirements=tuple(requirements),
        packages=tuple(sorted(packages)),
        python=pythons.pop(),
    )


def _locked(lock: Lock, family: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the packages that decide the build, each with its requirement."""
    for package, version in lock.versions_of(family).items():
        yield package, f"{package}=={version.partition('+')[0]}"
    for extension in lock.pylock.packages:
        if extension.name in family or not extension.wheels:
            continue
        if extension.version and extension.version.local:
            yield (
                extension.name,
                requirement_of(extension, extension.wheels, by_address=True),
            )


def _markers(locks: Iterable[Lock]) -> Iterator[str]:
    for lock in locks:
        for marker in lock.pylock.environments or ():
            yield str(marker).replace('"', "'")


def _refuse(document: dict[str, Any], wanted: Sequence[DependencyGroup]) -> None:
    """Raise UsageError if the file is no project's, or has a group or an index of the same name."""
    if "project" not in document:
        cause = "without which uv cannot make groups exclude each other"
        message = f"pyproject.toml has no [project], {cause}"
        hint = "Add a [project] with name, version and requires-python"
        raise UsageError(
            "no-project",
            message,
            hint=hint,
        )
    indexes = document.get("tool", {}).get("uv", {}).get("index", [])
    taken = {index.get("name") for index in indexes}
    taken.update(map(canonicalize_name, document.get(_GROUPS[0], {})))
    for group in wanted:
        for name in (group.name, group.index):
            if name in taken:
                message = f"pyproject.toml has {name} already"
                raise UsageError(
                    "name-taken",
                    message,
                    hint=f"Rename {name} there",
                )


def _sources(table: dict[str, Any], wanted: Sequence[DependencyGroup]) -> dict[str, list[_Entry]]:
    """Return the sources of each package, by its name as the file has it.

    What was said for an extra or a group of its own stays.
    """
    names = {canonicalize_name(package): package for package in table}
    packages = {package for group in wanted for package in group.packages}
    sources: dict[str, list[_Entry]] = {}
    for package in sorted(packages):
        name = names.get(canonicalize_name(package), package)
        old = table.get(name, [])
        entries = old if isinstance(old, list) else [old]
        sources[name] = [entry for entry in entries if _choice(entry)]
        for group in wanted:
            if package in group.packages:
                sources[name].append({"index": group.index, "group": group.name})
    return sources


def _rivals(document: dict[str, Any], packages: Iterable[str]) -> Iterator[_Entry]:
    """Yield the extras and groups that exclude each other already and name one of the packages."""
    family = set(map(canonicalize_name, packages))
    requirements = {
        "extra": document["project"].get("optional-dependencies", {}),
        "group": document.get(_GROUPS[0], {}),
    }
    for choice in chain(*document.get("tool", {}).get("uv", {}).get("conflicts", [])):
        for kind, name in _choice(choice).items():
            if not family.isdisjoint(_names(requirements[kind].get(name, ()))):
                yield {kind: name}


def _names(requirements: Iterable[Any]) -> Iterator[str]:
    for text in requirements:
        # A group may include another, by a table.
        if isinstance(text, str):
            yield canonicalize_name(re.split(r"[^\w.-]", text, maxsplit=1)[0])


def _choice(entry: _Entry) -> _Entry:
    return {key: entry[key] for key in ("extra", "group") if key in entry}


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        message = f"pyproject.toml cannot be patched: {error}"
        raise UsageError(
            "pyproject-malformed",
            message,
            hint="Repair pyproject.toml",
        ) from None


def _array(items: Iterable[str]) -> list[str]:
    return ["[", *(f"    {item}," for item in items), "]"]


def _inline(table: dict[str, Any]) -> str:
    words = []
    for key, value in table.items():
        text = json.dumps(value if isinstance(value, bool) else str(value))
        words.append(f"{key} = {text}")
    return f"{{ {', '.join(words)} }}"


class Statement(NamedTuple):
    """A header, or a key with its value."""

    table: tuple[str, ...]
    header: int
    """The line of its table's header."""
    key: str
    """Empty for a header."""
    start: int
    stop: int


def put(
    text: str,
    table: tuple[str, ...],
    key: str,
    value: Sequence[str],
) -> str:
    """Return the text with a value for ``key`` in ``table``; an old one becomes a comment.

    Args:
        value: Its lines.
    """
    lines = text.split("\n")
    inside = [statement for statement in statements(text) if statement.table == table]
    name = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'
    added = [f"{name} = {value[0]}{ADDED}", *value[1:]]
    if not inside:
        return append(text, f"[{'.'.join(table)}]", added)
    stop = inside[-1].stop
    for old in inside:
        if old.key == key:
            stop = old.stop
            lines[old.start : stop] = [REPLACED + line for line in lines[old.start : stop]]
    return "\n".join([*lines[:stop], *added, *lines[stop:]])


def append(
    text: str,
    header: str,
    lines: Sequence[str],
) -> str:
    """Return the text with a table at its end, after an empty line; its lines are marked."""
    before = text.split("\n")
    last = [before.pop()] if before[-1] == "" else []
    return "\n".join([*before, "", header + ADDED, *lines, *last])


def restored(text: str) -> str:
    """Return the text without any edit of ours.

    A table to which something else was added since stays, with that alone.
    """
    lines = text.split("\n")
    every = list(statements(text))
    kept_headers = set()
    for statement in every:
        if statement.key and not _added(lines[statement.start]):
            kept_headers.add(statement.header)
    gone = set[int]()
    inside_statements = set[int]()
    for statement in every:
        inside_statements.update(range(statement.start, statement.stop))
        if statement.start in kept_headers:
            lines[statement.start] = lines[statement.start].replace(ADDED, "")
        elif _added(lines[statement.start]):
            first = statement.start
            if not statement.key and not lines[first - 1].strip():
                first -= 1
            gone.update(range(first, statement.stop))
    remaining = []
    for at, line in enumerate(lines):
        if at in gone:
            continue
        # A comment that looks like ours within a text of several lines is the user's.
        remaining.append(line if at in inside_statements else line.removeprefix(REPLACED))
    return "\n".join(remaining)


def statements(text: str) -> Iterator[Statement]:
    """Yield the headers and keys of a well-formed document."""
    lines = text.split("\n")
    table: tuple[str, ...] = ()
    header = -1
    start = 0
    while start < len(lines):
        stop, document = _statement(lines, start)
        keys = _keys(document)
        is_header = lines[start].lstrip().startswith("[")
        if is_header:
            table = tuple(keys)
            header = start
        if keys:
            yield Statement(table, header, "" if is_header else keys[0], start, stop)
        start = stop


def _keys(document: Any) -> list[str]:
    """Return the keys that lead to the innermost value of a statement."""
    keys: list[str] = []
    while document and isinstance(document, (dict, list)):
        if isinstance(document, list):
            document = document[0]
        else:
            key, document = next(iter(document.items()))
            keys.append(key)
    return keys


def _statement(lines: Sequence[str], start: int) -> tuple[int, Any]:
    """Return the end of the statement that begins at a line, and what it says.

    It is the fewest lines that are TOML.
    """
    for stop in range(start + 1, len(lines)):
        with suppress(tomli.TOMLDecodeError):
            return stop, tomli.loads("\n".join([*lines[start:stop], ""]))
    return len(lines), tomli.loads("\n".join(lines[start:]))


def _added(line: str) -> bool:
    return line.rstrip().endswith(ADDED)
