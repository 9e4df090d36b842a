"""What the checks of the doctor are given: the machine, an environment, the variables of the shell, the project."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from struct import unpack_from
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.advice import OURS, Advice
from gpuinstall.doctor.repair import RepairSource
from gpuinstall.environments.packages import InstalledPackage, read_packages, top_packages
from gpuinstall.environments.paths import packages_folders
from gpuinstall.errors import UsageError
from gpuinstall.failures.problems import FixContext
from gpuinstall.files import open_regular, parse_toml, read_document, read_json
from gpuinstall.lock.declaration import Declaration, read_declaration
from gpuinstall.lock.folder_request import read_own_lock
from gpuinstall.text import some

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.catalog import Catalog
    from gpuinstall.machine import Machine


_REPLACE = "--replace"
_WITH_EVERY_ENVIRONMENT = frozenset({"pip", "setuptools", "wheel"})
PROCESSORS = {62: "x86_64", 183: "aarch64"}
"""The machines of elf(5) that PyTorch is built for."""

_VERSION_OF_PYTHON = re.compile(r"^version(?:_info)? *= *(\d+\.\d+)", re.MULTILINE)
_ACTIVATED = re.compile(r"^ *(?:export )?VIRTUAL_ENV=(['\"]?)(/[^'\"$\n]+)\1$", re.MULTILINE)

ELF_64, SEGMENT, GNU_STACK, EXECUTABLE = b"\x7fELF\x02", 56, 0x6474E551, 1
"""Of elf(5): how a 64-bit file begins, the bytes of a segment's header, PT_GNU_STACK, PF_X."""


@dataclass(frozen=True)
class EnvironmentContents:
    """What an environment's folder holds: its packages, a name twice where it is so, and its Python ``X.Y``.

    ``leftovers`` are folders that a broken uninstall has left, ``hollow`` is a folder torch without a torch in it,
    ``conda`` the names of conda's records. ``executable_stack`` says that torch's library asks for one.
    ``activated`` is the folder that its ``activate`` leads to.
    """

    packages: tuple[InstalledPackage, ...] = ()
    python: str | None = None
    leftovers: tuple[Path, ...] = ()
    hollow: Path | None = None
    conda: tuple[str, ...] = ()
    executable_stack: bool = False
    activated: Path | None = None

    @property
    def by_name(self) -> Mapping[str, InstalledPackage]:
        """The packages by their names."""
        return {package.name: package for package in self.packages}

    def version(self, name: str) -> str:
        """The version of a package; empty where it is not there."""
        return next((package.version for package in self.packages if package.name == name), "")


def read_contents(venv: Path) -> EnvironmentContents:
    """Look into the folder of an environment; of its packages the records are read once a check asks for them."""
    sites = packages_folders(venv)
    torches = [site / "torch" for site in sites]
    return EnvironmentContents(
        packages=read_packages(sites),
        python=_python(venv, sites),
        leftovers=tuple(path for site in sites for path in sorted(site.glob("~*"))),
        hollow=next(
            (torch for torch in torches if torch.is_dir() and not (torch / "__init__.py").exists()),
            None,
        ),
        conda=tuple(path.stem for path in sorted(venv.glob("conda-meta/*.json"))),
        executable_stack=any(
            asks_for_executable_stack(torch / "lib" / "libtorch_cpu.so") for torch in torches
        ),
        activated=_activated(venv / "bin" / "activate"),
    )


def asks_for_executable_stack(library: Path) -> bool:
    """Say whether a 64-bit ELF library has an executable PT_GNU_STACK (elf(5)); False where there is none."""
    try:
        with open_regular(library) as file:
            header = file.read(64)
            if not header.startswith(ELF_64) or len(header) < 64:
                return False
            (start,), (size, count) = unpack_from("<Q", header, 32), unpack_from("<HH", header, 54)
            file.seek(start)
            segments = [
                unpack_from("<II", file.read(min(size, SEGMENT)).ljust(8, b"\0"))
                for _ in range(count)
            ]
    except OSError:
        return False
    return any(kind == GNU_STACK and flags & EXECUTABLE for kind, flags in segments)


def processor_of(library: Path) -> str | None:
    """Name what a library runs on; None where it is no library for Linux, or for a processor without PyTorch."""
    with suppress(OSError), open_regular(library) as file:
        header = file.read(20)
        if header.startswith(ELF_64):
            return PROCESSORS.get(int.from_bytes(header[18:20], "little"))
    return None


def _python(venv: Path, sites: list[Path]) -> str | None:
    with suppress(OSError, ValueError):
        if version := _VERSION_OF_PYTHON.search(read_document(venv / "pyvenv.cfg", venv)):
            return version[1]
    names = (re.fullmatch(r"python(3\.\d+)", site.parent.name) for site in sites)
    return next((name[1] for name in names if name), None)


def _activated(script: Path) -> Path | None:
    """Read the folder that a script of activation names; None where it finds out by itself, or is not there."""
    with suppress(OSError, ValueError):
        if line := _ACTIVATED.search(read_document(script)):
            return Path(line[2])
    return None


CUDA_LIBRARY = re.compile(
    r"lib(cudart|cublas|cublasLt|cudnn|cusparse|cusolver|nvJitLink|nvrtc|nccl|cupti)\b.*\.so"
)
ROCM_LIBRARY = re.compile(r"lib(amdhip64|hsa-runtime64|rocblas|hipblaslt|MIOpen|rccl)\b.*\.so")
DECIDES_OVER_BUILDS = (
    "UV_TORCH_BACKEND",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_CONSTRAINT",
    "TORCH_COMMAND",
    "CONDA_OVERRIDE_CUDA",
)


@dataclass(frozen=True)
class ProjectFolder:
    """A folder's pyproject.toml, empty where there is none, its locks, and what a file of it asks for."""

    folder: Path | None = None
    pyproject: Mapping[str, Any] = field(default_factory=dict)
    locks: tuple[Path, ...] = ()
    declaration: Declaration = field(default_factory=Declaration)


def read_project(folder: Path) -> ProjectFolder:
    """Read a project folder; what cannot be parsed is left to the tools that own it."""
    try:
        pyproject = parse_toml(read_document(folder / "pyproject.toml", folder))
    except (OSError, ValueError):
        pyproject = {}
    configured, declaration = (
        toml_table(pyproject, "tool", "gpuinstall").get("requirements"),
        Declaration(),
    )
    with suppress(UsageError, ValueError):
        declaration = read_declaration(folder, configured if isinstance(configured, list) else None)
    return ProjectFolder(
        folder, pyproject, tuple(sorted(folder.glob("pylock.*.toml"))), declaration
    )


class ShellVariables(NamedTuple):
    """``libraries``: those of CUDA and ROCm by folder of LD_LIBRARY_PATH; ``torch_folders``: those of PYTHONPATH.

    ``toolkit`` is the major of the CUDA toolkit in CUDA_HOME.
    """

    libraries: Mapping[str, tuple[str, ...]]
    torch_folders: tuple[str, ...]
    variables: frozenset[str]
    toolkit: str | None = None


def read_shell(environ: Mapping[str, str], backend: str | None = None) -> ShellVariables:
    """Read the variables and look into the folders that they name.

    The ``backend`` of the environment in UV_TORCH_BACKEND is what our ``shellenv`` has set, and decides nothing else.
    """

    def folders(variable: str) -> list[str]:
        return list(filter(None, environ.get(variable, "").split(os.pathsep)))

    return ShellVariables(
        libraries={folder: _libraries(folder) for folder in folders("LD_LIBRARY_PATH")},
        torch_folders=tuple(
            folder for folder in folders("PYTHONPATH") if Path(folder, "torch").is_dir()
        ),
        variables=frozenset(
            name
            for name in (*DECIDES_OVER_BUILDS, "PYTHONHOME")
            if environ.get(name) and (name, environ[name]) != ("UV_TORCH_BACKEND", backend)
        ),
        toolkit=_toolkit(environ.get("CUDA_HOME")),
    )


@dataclass(frozen=True)
class DoctorEvidence:
    """The machine, an environment, the variables of the shell, the project around it.

    ``venv`` is the environment's folder, whether it is there or not. ``machine`` has the GPUs that it was made for,
    ``words`` name it in a fix, ``renewing`` are the arguments by which our ``install`` makes it again.
    """

    machine: Machine
    shell: ShellVariables
    project: ProjectFolder
    catalog: Catalog
    venv: Path = Path(".venv")
    contents: EnvironmentContents = field(default_factory=EnvironmentContents)
    repair: RepairSource = field(default_factory=RepairSource)
    words: Mapping[str, str] = field(default_factory=dict)
    renewing: tuple[str, ...] = ()

    @property
    def torch(self) -> str:
        """The version of the environment's torch; empty where it is not there."""
        return self.contents.version("torch")

    @property
    def context(self) -> FixContext:
        """Where a fix would be applied."""
        return FixContext.of_machine(self.machine).knowing(**self.words)

    @cached_property
    def users_packages(self) -> tuple[InstalledPackage, ...]:
        """The packages that neither our lock holds nor torch's build brings, without those that others require."""
        lock = read_own_lock(self.venv)
        held = {*_WITH_EVERY_ENVIRONMENT, *(lock.names if lock else ())}
        return tuple(
            package
            for package in top_packages(self.contents.packages)
            if package.name not in held and not self.catalog.is_tied(package.name)
        )

    @property
    def carried(self) -> tuple[str, ...]:
        """The requirements by which an environment that is made again has the user's packages as well."""
        if _REPLACE not in self.renewing:
            return ()
        packages = (package for package in self.users_packages if not package.has_address)
        return tuple(f"{package.name}=={package.version}" for package in packages)

    def install(self, *requirements: str, note: str = "") -> Advice:
        """Advise to make the environment again, with further requirements and all that the user has put there."""
        carried = [text for text in self.carried if text.partition("==")[0] not in requirements]
        lost = [package.name for package in self.users_packages if package.has_address]
        if lost and _REPLACE in self.renewing:
            note = f"{note}; " * bool(note) + f"without {some(lost)}, not installed from an index"
        words = ("install", *self.renewing, *requirements, *carried)
        return Advice(OURS, words, self.project.folder, note=note)


def toml_table(document: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Give the table below these names; an empty one where there is none."""
    for name in names:
        table = document.get(name, {})
        document = table if isinstance(table, dict) else {}
    return document


def _toolkit(home: str | None) -> str | None:
    """Read the major from a toolkit's version.json, which every one since 11.1 has."""
    try:
        document = read_json(Path(home, "version.json")) if home else {}
        return str(document["cuda"]["version"]).partition(".")[0]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _libraries(folder: str) -> tuple[str, ...]:
    try:
        names = (path.name for path in Path(folder).iterdir())
        return tuple(
            sorted(name for name in names if CUDA_LIBRARY.match(name) or ROCM_LIBRARY.match(name))
        )
    except OSError:
        return ()
