"""Faults of an environment that its list of packages and the variables around it show; torch is not imported."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.doctor.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.machine import Machine

CUDA_LIBRARY = re.compile(r"lib(cudart|cublas|cublasLt|cudnn|cusparse|cusolver|nvJitLink|nvrtc|nccl|cupti)\b.*\.so")
LEFT_BEHIND = (
    "UV_TORCH_BACKEND",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_CONSTRAINT",
    "TORCH_COMMAND",
    "CONDA_OVERRIDE_CUDA",
)
REBUILD = "gpuinstall install"


@dataclass(frozen=True)
class Installed:
    """An environment as it lies on the disk: ``packages`` are (name, version) pairs, a name twice where it is so.

    ``conda`` are the packages that conda put there; ``libraries`` the CUDA libraries in each folder of
    LD_LIBRARY_PATH; ``torch_on_path`` the folders of PYTHONPATH that hold a torch.
    """

    packages: tuple[tuple[str, str], ...]
    conda: tuple[str, ...] = ()
    libraries: Mapping[str, tuple[str, ...]] | None = None
    torch_on_path: tuple[str, ...] = ()
    variables: Mapping[str, str] | None = None

    def versions(self, name: str) -> tuple[str, ...]:
        """Every version of a package that is there."""
        return tuple(version for package, version in self.packages if package == name)

    def version(self, name: str) -> str | None:
        """The version of a package, where it is there."""
        return next(iter(self.versions(name)), None)


def read_installed(venv: Path, environ: Mapping[str, str]) -> Installed:
    """Read an environment's folder and the variables that reach into it."""
    return Installed(
        packages=tuple(_packages(venv)),
        conda=tuple(path.stem for path in sorted((venv / "conda-meta").glob("*.json"))),
        libraries={folder: _libraries(folder) for folder in _folders(environ, "LD_LIBRARY_PATH")},
        torch_on_path=tuple(folder for folder in _folders(environ, "PYTHONPATH") if Path(folder, "torch").is_dir()),
        variables={name: environ[name] for name in (*LEFT_BEHIND, "PYTHONHOME") if environ.get(name)},
    )


def environment_findings(installed: Installed, machine: Machine) -> Iterator[Finding]:
    """Find what is wrong with an environment. Pure."""
    yield from _torch_twice(installed)
    yield from _torch_of_two_tools(installed)
    yield from _cpu_build_over_cuda(installed)
    yield from _two_majors(installed)
    yield from _companions(installed)
    yield from _numpy(installed)
    yield from _cudnn(installed, machine)


def variable_findings(installed: Installed) -> Iterator[Finding]:
    """Find the variables of this shell that reach into every environment. Pure."""
    for folder, names in (installed.libraries or {}).items():
        if names:
            yield Finding(
                "environment",
                "library-path-poisoned",
                f"LD_LIBRARY_PATH leads to CUDA libraries of a toolkit: {folder}",
                f"{names[0]} there is loaded in place of the wheel's own",
                "unset LD_LIBRARY_PATH",
                "F49",
            )
    for folder in installed.torch_on_path:
        why = "programs import it in place of the environment's"
        yield Finding("environment", "torch-shadowed", f"PYTHONPATH holds another torch: {folder}", why, "unset PYTHONPATH", "F46")
    variables = installed.variables or {}
    if "PYTHONHOME" in variables:
        title = f"PYTHONHOME is set: {variables['PYTHONHOME']}"
        yield Finding("environment", "python-home-set", title, "it moves every Python's library", "unset PYTHONHOME", "F46")
    left = [name for name in LEFT_BEHIND if name in variables]
    if left:
        title = f"{', '.join(left)} {'decides' if len(left) == 1 else 'decide'} over builds in this shell"
        why = "uv, pip or conda take another build than they would without"
        yield Finding("environment", "override-left-behind", title, why, f"unset {' '.join(left)}", "F32")


def _torch_twice(installed: Installed) -> Iterator[Finding]:
    versions = installed.versions("torch")
    if len(versions) > 1:
        title = f"torch is installed {len(versions)} times in one environment: {', '.join(versions)}"
        yield _blocking("torch-twice", title, "the files of both lie over each other", "F34")


def _torch_of_two_tools(installed: Installed) -> Iterator[Finding]:
    ours = [name for name in installed.conda if re.match(r"(pytorch|libtorch)-\d", name)]
    by_pip = installed.version("torch")
    if ours and by_pip and not any(f"-{by_pip.partition('+')[0]}-" in name for name in ours):
        title = f"conda installed {ours[0]} and pip torch {by_pip} into the same environment"
        fix = "pip uninstall -y torch   # then conda's is whole: conda install --force-reinstall pytorch"
        yield Finding("environment", "conda-and-pip", title, "the files of both lie over each other", fix, "F34", blocking=True)


def _cpu_build_over_cuda(installed: Installed) -> Iterator[Finding]:
    torch = installed.version("torch") or ""
    runtime = next((name for name, _ in installed.packages if re.match(r"nvidia-(cudnn|cublas|nccl)", name)), None)
    if torch.endswith("+cpu") and runtime:
        title = f"the CPU build torch {torch} lies over a CUDA build: {runtime} is still there"
        yield _blocking("cpu-build-over-cuda", title, "another package's requirements replaced the CUDA build", "F34")


def _two_majors(installed: Installed) -> Iterator[Finding]:
    majors = {found[1]: name for name, _ in installed.packages if (found := re.match(r"nvidia-.*-(cu1[1-9])$", name))}
    if len(majors) > 1:
        title = f"CUDA libraries of two majors: {' and '.join(majors[major] for major in sorted(majors))}"
        yield _blocking("two-cuda-majors", title, "both write into the same nvidia folder", "F54")


def _companions(installed: Installed) -> Iterator[Finding]:
    """torchvision is 0.(torch's minor + 15) for torch 2.0 to 2.13, torchaudio is torch's own version up to 2.10."""
    minor = _minor(installed.version("torch"), "2")
    vision, audio = installed.version("torchvision"), installed.version("torchaudio")
    if minor is not None and minor <= 13 and vision and _minor(vision, "0") != minor + 15:
        title = f"torchvision {vision} does not belong to torch {installed.version('torch')}, which needs 0.{minor + 15}"
        yield Finding("environment", "torchvision-mismatch", title, None, "gpuinstall install torch torchvision", "F47", blocking=True)
    if minor is not None and minor <= 10 and audio and _minor(audio, "2") != minor:
        title = f"torchaudio {audio} does not belong to torch {installed.version('torch')}, which needs 2.{minor}"
        yield Finding("environment", "torchaudio-mismatch", title, None, "gpuinstall install torch torchaudio", "F48", blocking=True)


def _numpy(installed: Installed) -> Iterator[Finding]:
    minor = _minor(installed.version("torch"), "2")
    numpy = installed.version("numpy") or ""
    if minor is not None and minor < 3 and numpy.startswith("2."):
        title = f"numpy {numpy} with torch {installed.version('torch')}, which was compiled with NumPy 1"
        yield Finding("environment", "numpy-too-new", title, None, "uv pip install 'numpy<2'", "F66", blocking=True)


def _cudnn(installed: Installed, machine: Machine) -> Iterator[Finding]:
    version = installed.version("nvidia-cudnn-cu12") or ""
    number = re.match(r"9\.(\d+)", version)
    old = [gpu for gpu in machine.gpus if gpu.compute_capability and gpu.compute_capability < (7, 5)]
    if number and int(number[1]) >= 11 and old:
        title = f"cuDNN {version} has no code for {old[0].label}"
        fix = "uv pip install 'nvidia-cudnn-cu12<9.11'"
        yield Finding("environment", "cudnn-too-new", title, "9.11 dropped cards older than Turing", fix, "F55", blocking=True)


def _blocking(code: str, title: str, why: str, identity: str) -> Finding:
    return Finding("environment", code, title, why, REBUILD, identity, blocking=True)


def _minor(version: str | None, major: str) -> int | None:
    found = re.match(rf"{major}\.(\d+)", version or "")
    return int(found[1]) if found else None


def _packages(venv: Path) -> Iterator[tuple[str, str]]:
    for pattern in ("lib*/python*/site-packages", "Lib/site-packages"):
        for folder in sorted(venv.glob(pattern)):
            if not folder.parent.parent.is_symlink():
                for entry in sorted(folder.glob("*.dist-info")):
                    name, _, version = entry.stem.partition("-")
                    yield re.sub(r"[-_.]+", "-", name).lower(), version


def _libraries(folder: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(name for name in os.listdir(folder) if CUDA_LIBRARY.match(name)))
    except OSError:
        return ()


def _folders(environ: Mapping[str, str], variable: str) -> tuple[str, ...]:
    return tuple(folder for folder in environ.get(variable, "").split(os.pathsep) if folder)
