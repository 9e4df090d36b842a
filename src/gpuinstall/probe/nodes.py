"""The device nodes below /dev: which cards this process was given, and what it may open."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinstall.probe.source import Source

CARDS = "/proc/driver/nvidia/gpus"
SHARED = ("nvidiactl", "nvidia-uvm")


def card_nodes(source: Source) -> tuple[str, ...]:
    """List the nodes of cards: ``nvidia0``, ``nvidia1``."""
    return tuple(name for name in source.names("/dev", "nvidia") if re.fullmatch(r"nvidia[0-9]{1,4}", name))


def is_given(source: Source, address: str, place: int) -> bool:
    """Say whether the card's node is there and may be opened; ``place`` is the card's on the bus, from 0 up.

    A container shows its own cards below /proc/driver/nvidia/gpus; elsewhere the minor number stands there.
    """
    listed = source.names(CARDS)
    if listed and address not in listed:
        return False
    minor = parse_minor(source.text(f"{CARDS}/{address}/information") or "")
    return source.access(f"/dev/nvidia{place if minor is None else minor}") == "open"


def refused_nodes(source: Source) -> tuple[str, ...]:
    """Say, node by node, what keeps this process from the ones that every GPU program opens."""
    states = ((name, source.access(f"/dev/{name}")) for name in SHARED)
    return tuple(
        f"/dev/{name} {'is missing' if state is None else 'may not be opened'}"
        for name, state in states
        if state != "open"
    )


def parse_minor(text: str) -> int | None:
    """Read ``Device Minor: 3`` of the driver's information file."""
    match = re.search(r"^Device Minor:\s*([0-9]{1,4})\s*$", text, re.MULTILINE)
    return int(match[1]) if match else None
