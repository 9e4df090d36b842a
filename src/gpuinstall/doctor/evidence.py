"""What the checks of the doctor are given: the machine, an environment, the variables of the shell, the project."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.advice import OURS, Advice
from gpuinstall.doctor.contents import EnvironmentContents
from gpuinstall.doctor.repair import RepairSource
from gpuinstall.failures.problems import FixContext
from gpuinstall.files import parse_json, parse_toml, read_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.folder_request import FolderRequest
    from gpuinstall.machine import Machine

CUDA_LIBRARY = re.compile(r"lib(cudart|cublas|cublasLt|cudnn|cusparse|cusolver|nvJitLink|nvrtc|nccl|cupti)\b.*\.so")
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
    """A folder's pyproject.toml, empty where there is none, and its locks."""

    folder: Path | None = None
    pyproject: Mapping[str, Any] = field(default_factory=dict)
    locks: tuple[Path, ...] = ()

    @property
    def requirements(self) -> tuple[str, ...]:
        """What ``[tool.gpuinstall]`` asks for."""
        listed = toml_table(self.pyproject, "tool", "gpuinstall").get("requirements")
        return tuple(map(str, listed)) if isinstance(listed, list) else ()

    def declare(self, recorded: FolderRequest) -> FolderRequest:
        """Put what the project asks for today in place of what its locks record."""
        return recorded.declaring(self.requirements) if self.requirements else recorded


def read_project(folder: Path) -> ProjectFolder:
    """Read a project folder; what cannot be parsed is left to the tools that own it."""
    try:
        pyproject = parse_toml(read_document(folder / "pyproject.toml", folder))
    except (OSError, ValueError):
        pyproject = {}
    return ProjectFolder(folder, pyproject, tuple(sorted(folder.glob("pylock.*.toml"))))


@dataclass(frozen=True)
class ShellVariables:
    """``libraries``: those of CUDA and ROCm by folder of LD_LIBRARY_PATH; ``torch_folders``: those of PYTHONPATH.

    ``toolkit`` is the major of the CUDA toolkit in CUDA_HOME.
    """

    libraries: Mapping[str, tuple[str, ...]]
    torch_folders: tuple[str, ...]
    variables: frozenset[str]
    toolkit: str | None = None


def read_shell(environ: Mapping[str, str]) -> ShellVariables:
    """Read the variables and look into the folders that they name."""

    def folders(variable: str) -> list[str]:
        return list(filter(None, environ.get(variable, "").split(os.pathsep)))

    return ShellVariables(
        libraries={folder: _libraries(folder) for folder in folders("LD_LIBRARY_PATH")},
        torch_folders=tuple(folder for folder in folders("PYTHONPATH") if Path(folder, "torch").is_dir()),
        variables=frozenset(name for name in (*DECIDES_OVER_BUILDS, "PYTHONHOME") if environ.get(name)),
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

    def install(self, *requirements: str, note: str = "") -> Advice:
        """Advise to make the environment again, with further requirements."""
        return Advice(OURS, ("install", *self.renewing, *requirements), self.project.folder, note=note)


def toml_table(document: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Give the table below these names; an empty one where there is none."""
    for name in names:
        table = document.get(name, {})
        document = table if isinstance(table, dict) else {}
    return document


def _toolkit(home: str | None) -> str | None:
    """Read the major from a toolkit's version.json, which every one since 11.1 has."""
    try:
        document = parse_json(Path(home, "version.json").read_text(encoding="utf-8")) if home else {}
        return str(document["cuda"]["version"]).partition(".")[0]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _libraries(folder: str) -> tuple[str, ...]:
    try:
        names = (path.name for path in Path(folder).iterdir())
        return tuple(sorted(name for name in names if CUDA_LIBRARY.match(name) or ROCM_LIBRARY.match(name)))
    except OSError:
        return ()
