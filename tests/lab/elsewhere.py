"""Commands that read another machine's files.

Files below the folder in LAB_MACHINE replace the files of this machine, because no test
can write to sysfs. All other resources of a command are real. The folder has the layout
of a recording. ``/dev/kfd`` in it responds like the kernel's compute driver.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from gpuinstall.machine.source import Access, Source
from tests.lab.recorded import Recording, write_recording

FOLDER = "LAB_MACHINE"


def write_machine_files(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Write a machine's files, and return the variable that selects them."""
    write_recording(folder, files)
    return {FOLDER: str(folder)}


def overlay():
    """Let this process read the files of a simulated machine, if any."""
    if not os.environ.get(FOLDER):
        return
    # Imported late, because most commands of the tests simulate no machine.
    from gpuinstall.machine import probe

    vars(probe)["Source"] = Overlaid


class Overlaid(Source):
    """This machine, with simulated files that take precedence."""

    def text(self, path: str, most: int = -1) -> str | None:
        """Return a file of the simulated machine or of this one."""
        played = _played().text(path, most)
        if played is not None:
            return played
        return super().text(path, most)

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """List a folder of the simulated machine and of this one."""
        names = {*super().names(path, start), *_played().names(path, start)}
        return tuple(sorted(names))

    def link(self, path: str) -> str | None:
        """Return the target of a simulated or real link."""
        return _played().link(path) or super().link(path)

    def access(self, path: str) -> Access | None:
        """Return the access to a simulated or real device node."""
        return _played().access(path) or super().access(path)


def _played() -> Recording:
    return Recording(Path(os.environ[FOLDER]))
