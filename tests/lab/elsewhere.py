"""A command that reads another machine's files: those below the folder LAB_MACHINE lie over this machine's own.

No file can be put into sysfs, and no card of another maker is here; everything else of a command stays real. The
folder is laid out as a recording is. ``/dev/kfd`` among its files answers as a kernel's compute driver does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.facts.source import Recorder, Recording, ThisMachine, own_words, recorded_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.facts.source import Access

FOLDER = "LAB_MACHINE"
KFD_VERSION = (1, 17)


@dataclass(frozen=True)
class Overlaid(ThisMachine):
    """This machine with the played files over its own."""

    def text(self, path: str, most: int = -1) -> str | None:
        """Read a played file, else the machine's own."""
        played = _played().text(path, most)
        return super().text(path, most) if played is None else played

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """List both."""
        return tuple(sorted({*super().names(path, start), *_played().names(path, start)}))

    def is_folder(self, path: str) -> bool:
        """Say so of either."""
        return super().is_folder(path) or _played().folder.joinpath(recorded_name(path)).is_dir()

    def link(self, path: str) -> str | None:
        """Read a played link, else the machine's own."""
        return _played().link(path) or super().link(path)

    def access(self, path: str) -> Access | None:
        """Say what a played node allows."""
        return _played().access(path) or super().access(path)


def lay(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Write the files of a machine; return the variable that plays them."""
    for path, text in files.items():
        place = folder / recorded_name(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return {FOLDER: str(folder)}


def overlay() -> None:
    """Let this process read the played files, where it was told of some."""
    if not os.environ.get(FOLDER):
        return
    from gpuinstall import probe
    from gpuinstall.vendors.amd import prober

    vars(probe)["ThisMachine"] = Overlaid
    vars(probe)["recorder"] = lambda folder, reporter: Recorder(
        folder, own_words(), Overlaid(reporter)
    )
    if _played().access(prober.KFD):
        prober.kfd_version = lambda path=prober.KFD: KFD_VERSION  # noqa: ARG005


def _played() -> Recording:
    return Recording(Path(os.environ[FOLDER]))
