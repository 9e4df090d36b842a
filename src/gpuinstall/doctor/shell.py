"""Variables of this shell that reach into every environment started from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.doctor.evidence import CUDA_LIBRARY, DECIDES_OVER_BUILDS, ROCM_LIBRARY, DoctorEvidence
from gpuinstall.failures.problems import FixContext, finding_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.finding import Finding

ENTRIES = {"cublas": "F50", "cublasLt": "F50", "cudnn": "F51", "nccl": "F53"}
TOOLKIT = "F49"


def library_path(evidence: DoctorEvidence) -> Iterator[Finding]:
    """LD_LIBRARY_PATH leads to libraries that the build brings itself."""
    for folder, present in evidence.shell.libraries.items():
        for_rocm = "+rocm" in evidence.torch
        kind, pattern = ("ROCm", ROCM_LIBRARY) if for_rocm else ("CUDA", CUDA_LIBRARY)
        if names := tuple(filter(pattern.match, present)):
            message = f"LD_LIBRARY_PATH leads to {kind} libraries of a toolkit: {folder}"
            why = f"{names[0]} there is loaded in place of the wheel's own"
            # A folder of one kind of library has that library's entry, a whole toolkit its own.
            kinds = {ENTRIES.get(match[1], TOOLKIT) for name in names if (match := CUDA_LIBRARY.match(name))}
            entry = "F114" if for_rocm else kinds.pop() if len(kinds) == 1 else TOOLKIT
            yield _finding("library-path-poisoned", message, why, evidence.context, entry)


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
    names = [name for name in DECIDES_OVER_BUILDS if name in evidence.shell.variables]
    if names:
        message = f"{' and '.join(names)} {'decides' if len(names) == 1 else 'decide'} over builds in this shell"
        why = "uv, pip or conda may take another build than they would without"
        yield _finding("override-left-behind", message, why, evidence.context.knowing(variables=" ".join(names)), "F32")


def toolkit_differs(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A toolkit in CUDA_HOME with which no extension of torch can be built."""
    toolkit, torch = evidence.shell.toolkit, evidence.torch
    built = re.match(r"cu(\d\d)(\d)", torch.partition("+")[2])
    if toolkit and built and built[1] != toolkit:
        message = f"CUDA_HOME is a toolkit of CUDA {toolkit}, torch {torch} is of CUDA {built[1]}"
        why = "torch runs as it is, but refuses to compile extensions with it"
        words = {"cuda": f"{built[1]}.{built[2]}", "toolkit": f"{built[1]}-{built[2]}"}
        yield _finding("toolkit-differs", message, why, evidence.context.knowing(**words), "F57")


def _finding(code: str, message: str, why: str, context: FixContext, identity: str | None = None) -> Finding:
    return finding_for(code, message, context, why=why, entry=identity, where="environment", blocking=False)
