"""What a node has beside its GPUs: the speed of its network, and the programs that unpack an image."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

_NETWORK, _INFINIBAND = Path("/sys/class/net"), Path("/sys/class/infiniband")
_PROGRAMS = ("mksquashfs", "unsquashfs")


def link_speed() -> float | None:
    """What the links of this node carry, in Gbit/s each way: InfiniBand's where it has that, else the fastest card's.

    None where the system does not say.
    """
    fabric = [_gigabits(rate) for rate in _INFINIBAND.glob("*/ports/*/rate")]
    cards = [_gigabits(speed, 1000) for speed in _NETWORK.glob("*/speed") if speed.parent.name != "lo"]
    return sum(filter(None, fabric)) or max(filter(None, cards), default=None)


def image_tools() -> list[str]:
    """The programs for images that are here."""
    return [name for name in _PROGRAMS if shutil.which(name)]


def _gigabits(file: Path, unit: int = 1) -> float | None:
    """Read ``400 Gb/sec (4X NDR)`` or a number of Mbit/s; a link that is down says nothing, or -1."""
    with suppress(OSError, ValueError, IndexError):
        rate = float(file.read_text(encoding="ascii").split()[0]) / unit
        return rate if rate > 0 else None
    return None
