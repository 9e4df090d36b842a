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
    """Whether a text is the name of a node."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def node_name(text: object) -> NodeName:
    """Return a text as the name of a node; raise ValueError if it is none."""
    if is_node_name(text):
        return text
    raise ValueError(f"{text!r} is not the name of a node")


def node_list(text: str) -> tuple[NodeName, ...]:
    """Return the names in a list, each once, in order; raise ValueError if it is malformed."""
    return tuple(map(node_name, dict.fromkeys(_expanded(text.strip()))))


def expand(text: str) -> tuple[NodeName, ...]:
    """Return the same; raise UsageError."""
    try:
        return node_list(text)
    except ValueError as error:
        hint = "the same with --nodes 'n[1-4],m7'"
        raise UsageError(
            "hostlist-malformed",
            str(error),
            hint=hint,
        ) from None


def compress(names: Iterable[str]) -> str:
    """Return names as one list; those that differ in their last number alone are one span."""
    plain: list[str] = []
    groups: dict[tuple[str, str, int], set[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
            continue
        prefix, digits, suffix = match.groups()
        is_padded = digits.startswith("0") and digits != "0"
        width = len(digits) if is_padded else 0
        groups.setdefault((prefix, suffix, width), set()).add(int(digits))
    written = []
    for (prefix, suffix, width), numbers in sorted(groups.items()):
        spans = _spans(sorted(numbers), width)
        written.append(f"{prefix}{spans}{suffix}")
    return ",".join([*sorted(plain), *written])


def _spans(numbers: Sequence[int], width: int) -> str:
    """Return ascending numbers as ``[1-3,7]``, each with at least ``width`` digits."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    texts = ["-".join(f"{end:0{width}d}" for end in span) for span in spans]
    if len(numbers) == 1:
        return texts[0]
    return f"[{','.join(texts)}]"


def chosen(wanted: Sequence[str] | None, nodes: Mapping[str, str]) -> dict[NodeName, str]:
    """Return the selected nodes of an engine; raise UsageError for a node that it has not.

    Args:
        wanted: The selected nodes; None: all.
    """
    if wanted is None:
        wanted = list(nodes)
    missing = [node for node in wanted if node not in nodes]
    if missing:
        message = f"the engine has no node {compress(missing)}"
        hint = f"It has {compress(nodes) or 'none'}"
        raise UsageError(
            "no-such-node",
            message,
            hint=hint,
        )
    try:
        return {node_name(node): nodes[node] for node in wanted}
    except ValueError as error:
        raise UsageError("hostlist-malformed", f"the engine has a node, and {error}") from None


def _expanded(text: str) -> Iterator[str]:
    place = 0
    count = 0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None or part.end() == place:
            raise ValueError(f"{text!r} is not a list of nodes")
        place = part.end()
        prefix, ranges, suffix = part.groups()
        for number in [""] if ranges is None else _numbers(ranges):
            count += 1
            if count > MOST_NODES:
                raise ValueError(f"a list of nodes may name {MOST_NODES} at most")
            yield f"{prefix.strip()}{number}{suffix.strip()}"


def _numbers(text: str) -> Iterator[str]:
    """Yield the numbers in ``001-003,7``, with their zeros."""
    for span in text.split(","):
        match = _SPAN.fullmatch(span)
        if match is None:
            raise ValueError(f"[{text}] is not a range of numbers")
        first, last = match.groups()
        width = len(first) if first.startswith("0") else 0
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{width}d}"
