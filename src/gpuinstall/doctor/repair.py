"""The commands that install a package of an environment again, in the same version and from the same source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.environments.advice import quoted
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.paths import interpreter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from packaging.requirements import Requirement

    from gpuinstall.doctor.contents import EnvironmentContents, PackageContents
    from gpuinstall.sources import Sources


@dataclass(frozen=True)
class RepairSource:
    """Where an environment's packages come from: its own ``lock``, else the indexes of what was chosen by hand.

    ``torch`` are the words that lead uv to torch and its family, whose names are ``family``.
    """

    python: Path = Path("python")
    lock: Path | None = None
    torch: tuple[str, ...] = ()
    family: frozenset[str] = frozenset()

    def reinstall(self, packages: Iterable[PackageContents]) -> tuple[str, ...]:
        """Install packages again that are there, and nothing else."""
        found = list(packages)
        if self.lock:
            return (self._from_lock(package.name for package in found),)
        return tuple(
            self._line("--no-deps", *self._where(package.name), "--reinstall-package", package.name, _pin(package))
            for package in found
        )

    def install(self, missing: Mapping[str, Requirement]) -> tuple[str, ...]:
        """Install what is required and not there, or there in another version."""
        if self.lock:
            return (self._from_lock(missing),)
        return tuple(self._line(*self._where(name), f"{name}{asked.specifier}") for name, asked in missing.items())

    def _from_lock(self, names: Iterable[str]) -> str:
        again = (word for name in names for word in ("--reinstall-package", name))
        return self._line("-r", str(self.lock), *again)

    def _where(self, name: str) -> tuple[str, ...]:
        return self.torch if name in self.family else ()

    def _line(self, *words: str) -> str:
        return " ".join(("uv pip install --python", *map(quoted, (str(self.python), *words))))


def read_repair(venv: Path, contents: EnvironmentContents, sources: Sources, family: frozenset[str]) -> RepairSource:
    """Find out where the packages of an environment come from."""
    python, marker = interpreter(venv), read_marker(venv)
    if marker and (venv / marker.lock).is_file():
        return RepairSource(python, lock=venv / marker.lock)
    torch = contents.packages.get("torch")
    return RepairSource(python, None, _torch_source(torch.version, sources) if torch else (), family)


def _torch_source(version: str, sources: Sources) -> tuple[str, ...]:
    """Lead uv to the folder that holds this torch, else to the index of its build; one without a label is on any."""
    label = version.partition("+")[2]
    folders = [link for link in sources.find_links if any(Path(link).glob(f"torch-{version}-*.whl"))]
    if folders and not sources.named:
        return "--find-links", folders[0]
    return ("--index", f"{sources.torch_index}/{label}") if label else ()


def _pin(package: PackageContents) -> str:
    return f"{package.name}=={package.version}"
