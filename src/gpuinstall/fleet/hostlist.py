"""Names of nodes as schedulers write them: ``n[1-17,19-64]``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,252}", re.ASCII)
_NUMBERED = re.compile(r"(.*?)(\d{1,9})(\D*)")
_PART = re.compile(r"([^,\[\]]*)(?:\[([^\[\]]*)\])?([^,\[\]]*)(?:,|$)")
MOST_NODES = 1_000_000


def expand(text: str) -> tuple[str, ...]:
    """Read a list of names, each once, in order; raise UsageError where it is malformed."""
    found = dict.fromkeys(_expanded(text.strip()))
    for name in found:
        if not _NAME.fullmatch(name):
            raise UsageError("hostlist-malformed", f"{name!r} is no name of a node", hint="--nodes n[1-4],m7")
    return tuple(found)


def compress(names: Iterable[str]) -> str:
    """Write names as one list; those that differ in their last number alone are put together."""
    plain: list[str] = []
    groups: dict[tuple[str, str, int], list[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
            continue
        padded = len(match[2]) if match[2].startswith("0") else 0
        groups.setdefault((match[1], match[3], padded), []).append(int(match[2]))
    written = [_written(*key, sorted(set(numbers))) for key, numbers in sorted(groups.items())]
    return ",".join([*sorted(plain), *written])


def chosen(asked: Sequence[str] | None, said: Mapping[str, str]) -> dict[str, str]:
    """Take the nodes that are asked for of those that an engine has; raise UsageError for one that it has not."""
    if missing := [node for node in asked or () if node not in said]:
        hint = f"it has {compress(said) or 'none'}"
        raise UsageError("no-such-node", f"the engine has no node {compress(missing)}", hint=hint)
    return {node: said[node] for node in (said if asked is None else asked)}


def _expanded(text: str) -> Iterator[str]:
    place = count = 0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None or part.end() == place:
            raise UsageError("hostlist-malformed", f"{text!r} is no list of nodes", hint="--nodes n[1-4],m7")
        place = part.end()
        for number in _numbers(part[2]) if part[2] is not None else ("",):
            count += 1
            if count > MOST_NODES:
                raise UsageError("hostlist-malformed", f"a list of nodes may name {MOST_NODES} at most")
            yield f"{part[1].strip()}{number}{part[3].strip()}"


def _numbers(text: str) -> Iterator[str]:
    """Write ``001-003,7`` out."""
    for span in text.split(","):
        first, _, last = span.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise UsageError("hostlist-malformed", f"[{text}] is no range of numbers", hint="--nodes n[1-4,7]")
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{len(first)}d}" if first.startswith("0") else str(number)


def _written(prefix: str, suffix: str, width: int, numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}" for first, last in spans]
    inside = texts[0] if len(numbers) == 1 else f"[{','.join(texts)}]"
    return f"{prefix}{inside}{suffix}"
