"""What Level Zero says: its interface, its GPUs in its own order. It is asked in a child (``level_zero_child``)."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.facts.children import ask_child, death, last_answer

if TYPE_CHECKING:
    from gpuinstall.facts.source import Source
    from gpuinstall.process import Finished

_CHILD = Path(__file__).with_name("level_zero_child.py")
GPUS = 2
"""The number of GPUs that it is given time for."""


class LevelZeroGpu(NamedTuple):
    """One GPU; ``ip`` is the version of its architecture as a number, 0 where the driver does not say it."""

    name: str
    vendor: int
    device: int
    ip: int = 0
    integrated: bool = False
    memory_bytes: int = 0


@dataclass(frozen=True)
class LevelZero:
    """``asked``: somebody did; ``library`` was found; ``api`` is a driver's version of the interface.

    ``error`` says why there is no answer, or what was refused.
    """

    asked: bool = False
    library: bool = False
    api: str | None = None
    gpus: tuple[LevelZeroGpu, ...] = ()
    error: str | None = None


def ask_level_zero(source: Source) -> LevelZero:
    """Ask it."""
    command = ([sys.executable, "-I", "-S", str(_CHILD)], dict(os.environ))
    finished = ask_child(source, "level-zero.txt", "Level Zero", GPUS, command)
    return parse_level_zero(finished) if finished else LevelZero()


def parse_level_zero(finished: Finished) -> LevelZero:
    """Read what the child answered, or how it ended."""
    answer = last_answer(finished)
    if answer is None:
        return LevelZero(asked=True, library=True, error=f"Level Zero {death(finished)}")
    if not answer.get("library"):
        return LevelZero(asked=True, error=str(answer.get("error")))
    refused = f"{answer['call']}: {int(answer['status']):#x}" if answer.get("call") else None
    try:
        gpus = tuple(
            LevelZeroGpu(
                name=str(body["name"]),
                vendor=int(body["vendor"]),
                device=int(body["device"]),
                ip=int(body["ip"]),
                integrated=bool(body["integrated"]),
                memory_bytes=int(body["memory_bytes"]),
            )
            for body in answer.get("devices", ())
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return LevelZero(asked=True, library=True, error="Level Zero's answer cannot be read")
    return LevelZero(asked=True, library=True, api=answer.get("api"), gpus=gpus, error=refused)
