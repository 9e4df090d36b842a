"""Names of nodes as schedulers write them: ``n[1-17,19-64]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NewType, TypeGuard

from gpuinstall.errors import UsageError

NodeName = NewType("NodeName", str)
"""A name that is plain in a path, in a list of nodes and in a shell."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,252}", re.ASCII)
_NUMBERED = re.compile(r"(.*?)(\d{1,9})(\D*)")
_PART = re.compile(r"([^,\[\]]*)(?:\[([^\[\]]*)\])?([^,\[\]]*)(?:,|$)")
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
MOST_NODES = 1_000_000


def is_node_name(text: object) -> TypeGuard[NodeName]:
    """Say whether a text is the name of a node."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def node_name(text: object) -> NodeName:
    """Read the name of a node; raise ValueError."""
    if is_node_name(text):
        return text
    raise ValueError(f"{text!r} is not the name of a node")


def node_list(text: str) -> tuple[NodeName, ...]:
    """Read a list of names, each once, in order; raise ValueError where it is malformed."""
    return tuple(map(node_name, dict.fromkeys(_expanded(text.strip()))))


def expand(text: str) -> tuple[NodeName, ...]:
    """The same; raise UsageError."""
    try:
        return node_list(text)
    except ValueError as error:
        raise UsageError("hostlist-malformed", str(error), hint="the same with --nodes 'n[1-4],m7'") from None


def compress(names: Iterable[str]) -> str:
    """Write names as one list; those that differ in their last number alone are put together."""
    plain: list[str] = []
    groups: dict[tuple[str, str, int], list[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
            continue
        padded = len(match[2]) if match[2].startswith("0") and match[2] != "0" else 0
        groups.setdefault((match[1], match[3], padded), []).append(int(match[2]))
    written = [_written(*key, sorted(set(numbers))) for key, numbers in sorted(groups.items())]
    return ",".join([*sorted(plain), *written])


def chosen(wanted: Sequence[str] | None, nodes: Mapping[str, str]) -> dict[NodeName, str]:
    """Take the nodes that are wanted of those that an engine has; raise UsageError for one that it has not."""
    if missing := [node for node in wanted or () if node not in nodes]:
        hint = f"It has {compress(nodes) or 'none'}"
        raise UsageError("no-such-node", f"the engine has no node {compress(missing)}", hint=hint)
    try:
        return {node_name(node): nodes[node] for node in (nodes if wanted is None else wanted)}
    except ValueError as error:
        raise UsageError("hostlist-malformed", f"the engine has a node, and {error}") from None


def _expanded(text: str) -> Iterator[str]:
    place = count = 0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None or part.end() == place:
            raise ValueError(f"{text!r} is not a list of nodes")
        place = part.end()
        for number in _numbers(part[2]) if part[2] is not None else ("",):
            count += 1
            if count > MOST_NODES:
                raise ValueError(f"a list of nodes may name {MOST_NODES} at most")
            yield f"{part[1].strip()}{number}{part[3].strip()}"


def _numbers(text: str) -> Iterator[str]:
    """Write ``001-003,7`` out."""
    for span in text.split(","):
        match = _SPAN.fullmatch(span)
        if match is None:
            raise ValueError(f"[{text}] is not a range of numbers")
        for number in range(int(match[1]), int(match[2] or match[1]) + 1):
            yield f"{number:0{len(match[1])}d}" if match[1].startswith("0") else str(number)


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
