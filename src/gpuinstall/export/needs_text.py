"""What locks need of a machine, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.export.needs import MachineNeeds

_SYSTEMS = {"linux": "Linux", "windows": "Windows", "macos": "macOS"}
_MAKERS = {"nvidia": "compute capability", "amd": "AMD", "intel": "Intel"}


def describe(needs: Iterable[MachineNeeds]) -> str:
    """Return the text: a paragraph for each lock and system."""
    return "\n".join("".join(f"{line}\n" for line in _lines(one)) for one in needs)


def _lines(needs: MachineNeeds) -> Iterator[str]:
    for lock, torch in zip(needs.locks, needs.torch, strict=True):
        yield f"{lock}: torch {torch}, Python {', '.join(needs.python)}"
    glibc = f", glibc {needs.glibc} or newer" if needs.glibc else ""
    yield f"  system    {_SYSTEMS[needs.os]} {needs.arch}{glibc}"
    if needs.maker is None:
        yield "  GPU       none"
    for gpus in needs.gpus:
        driver = f": driver {gpus.driver} or newer (CUDA {gpus.cuda})" if gpus.driver else ""
        yield f"  GPU       {_MAKERS[str(needs.maker)]} {', '.join(gpus.codes)}{driver}"
