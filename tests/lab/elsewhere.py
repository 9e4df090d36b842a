"""A command that reads another machine's files: those below the folder LAB_MACHINE lie over this machine's own.

No file can be put into sysfs, and no card of another maker is here; everything else of a command stays real. The
folder is laid out as a recording is. ``/dev/kfd`` among its files answers as a kernel's compute driver does.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from gpuinstall.machine.source import Access, Source
from tests.lab.recorded import Recording, write_recording

FOLDER = "LAB_MACHINE"


def lay(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Write the files of a machine; return the variable that plays them."""
    write_recording(folder, files)
    return {FOLDER: str(folder)}


def overlay():
    """Let this process read the played files, if there are any."""
    if not os.environ.get(FOLDER):
        return
    # Not at the top: most commands of the tests play no machine, and need not wait for these.
    from gpuinstall.machine import probe

    vars(probe)["Source"] = Overlaid


class Overlaid(Source):
    """This machine with the played files over its own."""

    def text(self, path: str, most: int = -1) -> str | None:
        """Return a played file, else the machine's own."""
        played = _played().text(path, most)
        if played is not None:
            return played
        return super().text(path, most)

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """Return what both have in a folder."""
        names = {*super().names(path, start), *_played().names(path, start)}
        return tuple(sorted(names))

    def link(self, path: str) -> str | None:
        """Return where a played link points, else the machine's own."""
        return _played().link(path) or super().link(path)

    def access(self, path: str) -> Access | None:
        """Return what a played node allows, else the machine's own."""
        return _played().access(path) or super().access(path)


def _played() -> Recording:
    return Recording(Path(os.environ[FOLDER]))
