"""Variables of this shell that reach into every environment started from it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.failures.problems import finding_for
from gpuinstall.files import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.doctor.check import DoctorEvidence
    from gpuinstall.failures.problems import FixContext
    from gpuinstall.finding import Finding

CUDA_LIBRARY = re.compile(r"lib(cudart|cublas|cublasLt|cudnn|cusparse|cusolver|nvJitLink|nvrtc|nccl|cupti)\b.*\.so")
ROCM_LIBRARY = re.compile(r"lib(amdhip64|hsa-runtime64|rocblas|hipblaslt|MIOpen|rccl)\b.*\.so")
ENTRIES = {"cublas": "F50", "cublasLt": "F50", "cudnn": "F51", "nccl": "F53"}
TOOLKIT = "F49"
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
    return ShellVariables(
        libraries={folder: _libraries(folder) for folder in _folders(environ, "LD_LIBRARY_PATH")},
        torch_folders=tuple(folder for folder in _folders(environ, "PYTHONPATH") if Path(folder, "torch").is_dir()),
        variables=frozenset(name for name in (*DECIDES_OVER_BUILDS, "PYTHONHOME") if environ.get(name)),
        toolkit=_toolkit(environ.get("CUDA_HOME")),
    )


def library_path(evidence: DoctorEvidence) -> Iterator[Finding]:
    """LD_LIBRARY_PATH leads to libraries that the build brings itself."""
    for folder, present in evidence.shell.libraries.items():
        for_rocm = "+rocm" in evidence.torch
        kind, pattern = ("ROCm", ROCM_LIBRARY) if for_rocm else ("CUDA", CUDA_LIBRARY)
        if names := tuple(filter(pattern.match, present)):
            title = f"LD_LIBRARY_PATH leads to {kind} libraries of a toolkit: {folder}"
            why = f"{names[0]} there is loaded in place of the wheel's own"
            entry = "F114" if for_rocm else _entry(names)
            yield _finding("library-path-poisoned", title, why, evidence.context, entry)


def python_path(evidence: DoctorEvidence) -> Iterator[Finding]:
    """PYTHONPATH leads to another torch."""
    for folder in evidence.shell.torch_folders:
        why = "programs import it in place of the environment's"
        yield _finding("torch-shadowed", f"PYTHONPATH holds another torch: {folder}", why, evidence.context)


def python_home(evidence: DoctorEvidence) -> Iterator[Finding]:
    """PYTHONHOME is set."""
    if "PYTHONHOME" in evidence.shell.variables:
        why = "every Python looks for its library there"
        yield _finding("python-home-set", "PYTHONHOME is set", why, evidence.context)


def overrides(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Variables that decide for uv, pip or conda."""
    left = [name for name in DECIDES_OVER_BUILDS if name in evidence.shell.variables]
    if left:
        title = f"{' and '.join(left)} {'decides' if len(left) == 1 else 'decide'} over builds in this shell"
        why = "uv, pip or conda may take another build than they would without"
        yield _finding("override-left-behind", title, why, evidence.context.knowing(variables=" ".join(left)), "F32")


def toolkit_differs(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A toolkit in CUDA_HOME with which no extension of torch can be built."""
    toolkit, torch = evidence.shell.toolkit, evidence.torch
    built = re.match(r"cu(\d\d)(\d)", torch.partition("+")[2])
    if toolkit and built and built[1] != toolkit:
        title = f"CUDA_HOME is a toolkit of CUDA {toolkit}, torch {torch} is of CUDA {built[1]}"
        why = "torch runs as it is, but refuses to compile extensions with it"
        words = {"cuda": f"{built[1]}.{built[2]}", "toolkit": f"{built[1]}-{built[2]}"}
        yield _finding("toolkit-differs", title, why, evidence.context.knowing(**words), "F57")


def _finding(code: str, title: str, why: str, context: FixContext, identity: str | None = None) -> Finding:
    return finding_for(code, title, context, why=why, entry=identity, where="environment", blocking=False)


def _entry(names: tuple[str, ...]) -> str:
    """A folder of one kind of library has that library's entry; a whole toolkit has its own."""
    kinds = {ENTRIES.get(found[1], TOOLKIT) for name in names if (found := CUDA_LIBRARY.match(name))}
    return kinds.pop() if len(kinds) == 1 else TOOLKIT


def _toolkit(home: str | None) -> str | None:
    """Read the major from a toolkit's version.json, which every one since 11.1 has."""
    try:
        found = parse_json(Path(home, "version.json").read_text(encoding="utf-8")) if home else {}
        return str(found["cuda"]["version"]).partition(".")[0]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _libraries(folder: str) -> tuple[str, ...]:
    try:
        names = (path.name for path in Path(folder).iterdir())
        return tuple(sorted(name for name in names if CUDA_LIBRARY.match(name) or ROCM_LIBRARY.match(name)))
    except OSError:
        return ()


def _folders(environ: Mapping[str, str], variable: str) -> tuple[str, ...]:
    return tuple(folder for folder in environ.get(variable, "").split(os.pathsep) if folder)
