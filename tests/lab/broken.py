"""Environments with a real torch, each broken in one way, as people, disks and other programs break them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gpuinstall.base.reporter import SilentReporter
from gpuinstall.diagnose.examination import Examination, examine
from gpuinstall.diagnose.repair import repair_steps, run_repairs
from gpuinstall.machine.probe import read_machine
from gpuinstall.sources import Sources
from gpuinstall.sources.session import open_session
from tests.lab.environments import copied, packages, rewrite

ARM = 183  # of elf(5)


class Breakage(NamedTuple):
    """One way to break the packages of an environment."""

    what: str
    harm: Callable[[Path], None]
    cuda: bool = False
    """Whether it takes a build for CUDA."""


class Examined(NamedTuple):
    """What became of one broken environment."""

    doctor: str
    """What the doctor said first."""
    verify: str
    steps: tuple[str, ...]
    """What was done."""
    after: str
    """What the doctor said then."""


def _gone(*names: str) -> Callable[[Path], None]:
    """Remove files and folders, by patterns."""

    def harm(site: Path):
        paths = [path for name in names for path in sorted(site.glob(name))]
        assert paths, f"this torch has no {names}"
        for path in paths:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    return harm


def _cut(name: str, size: int = 1000) -> Callable[[Path], None]:
    """Leave the beginning of a file."""

    def harm(site: Path):
        (file,) = site.glob(name)
        with file.open("rb") as opened:
            start = opened.read(size)
        # Not written into: it is a hard link to the file of the sound environment.
        file.unlink()
        file.write_bytes(start)

    return harm


def _emptied(*names: str) -> Callable[[Path], None]:
    """Leave the first folder with nothing in it, and remove the others."""

    def harm(site: Path):
        _gone(*names)(site)
        (site / names[0]).mkdir()

    return harm


def _left_behind(site: Path):
    (site / "~orch").mkdir()
    (site / "~orch" / "libtorch.so").touch()


def _of_another_python(site: Path):
    """Give a package's compiled module, and its record, the name that they have for another Python."""
    for module in list(site.glob("torch/_C.cpython-*.so")):
        minor = module.name.split("-")[1]
        other = f"3{int(minor[1:]) + 1}"
        module.rename(module.with_name(module.name.replace(minor, other)))
        for record in site.glob("torch-*.dist-info/RECORD"):
            rewrite(record, record.read_text().replace(f"cpython-{minor}", f"cpython-{other}"))


def _of_another_processor(site: Path):
    for module in list(site.glob("torch/_C.cpython-*.so")):
        content = bytearray(module.read_bytes())
        content[18:20] = ARM.to_bytes(2, "little")
        module.unlink()
        module.write_bytes(content)


def _twice(site: Path):
    (record,) = site.glob("torch-*.dist-info")
    shutil.copytree(record, site / "torch-2.9.1.dist-info")


def _without_python(site: Path):
    python = site.parents[2] / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3.11")


BROKEN = (
    Breakage("libtorch_cpu.so is gone", _gone("torch/lib/libtorch_cpu.so")),
    Breakage("libc10.so was cut after 1000 bytes", _cut("torch/lib/libc10.so")),
    Breakage(
        "libtorch_python.so was cut after 1 MB", _cut("torch/lib/libtorch_python.so", 1_000_000)
    ),
    Breakage("libshm.so is gone", _gone("torch/lib/libshm.so")),
    Breakage("torch's OpenMP library is gone", _gone("torch/lib/libgomp*")),
    Breakage("the module torch._C is gone", _gone("torch/_C.cpython-*.so")),
    Breakage("torch/__init__.py is gone", _gone("torch/__init__.py")),
    Breakage("torch/version.py was cut", _cut("torch/version.py", 40)),
    Breakage("torch/functional.py is empty", _cut("torch/functional.py", 0)),
    Breakage("torch/nn is gone", _gone("torch/nn")),
    Breakage("the folder torch is empty, its record is there", _emptied("torch")),
    Breakage("the folder torch is empty, its record gone", _emptied("torch", "torch-*.dist-info")),
    Breakage(
        "torch is not there at all", _gone("torch", "torch-*.dist-info", "functorch", "torchgen")
    ),
    Breakage("site-packages is empty", _gone("*")),
    Breakage("torchgen is gone", _gone("torchgen")),
    Breakage("typing_extensions.py is gone, its record is there", _gone("typing_extensions.py")),
    Breakage("typing_extensions was removed", _gone("typing_extensions*")),
    Breakage("sympy was removed", _gone("sympy*")),
    Breakage("mpmath, which sympy needs, was removed", _gone("mpmath*")),
    Breakage("filelock is gone, its record is there", _gone("filelock")),
    Breakage("jinja2 was removed", _gone("jinja2*")),
    Breakage("networkx was removed", _gone("networkx*")),
    Breakage("fsspec is gone, its record is there", _gone("fsspec")),
    Breakage("compiled modules are of another Python", _of_another_python),
    Breakage("a compiled module is for another processor", _of_another_processor),
    Breakage("two records of torch", _twice),
    Breakage("an uninstall left ~orch behind", _left_behind),
    Breakage("the interpreter leads nowhere", _without_python),
    Breakage("cuDNN was removed", _gone("nvidia/cudnn", "nvidia_cudnn*"), cuda=True),
    Breakage(
        "libcudnn.so.9 is gone, its record is there",
        _gone("nvidia/cudnn/lib/libcudnn.so.9"),
        cuda=True,
    ),
    Breakage(
        "cuBLAS was removed", _gone("nvidia/cu13/lib/libcublas*", "nvidia_cublas*"), cuda=True
    ),
    Breakage(
        "libcublasLt was cut after 1 MB",
        _cut("nvidia/cu13/lib/libcublasLt.so.*", 1_000_000),
        cuda=True,
    ),
    Breakage("triton was removed", _gone("triton", "triton-*"), cuda=True),
    Breakage("the folder triton is empty, its record is there", _emptied("triton"), cuda=True),
    Breakage("NCCL was removed", _gone("nvidia/nccl", "nvidia_nccl*"), cuda=True),
    Breakage("libtorch_cuda.so is gone", _gone("torch/lib/libtorch_cuda.so"), cuda=True),
    Breakage("torchvision's compiled module is gone", _gone("torchvision/_C*.so"), cuda=True),
)


@contextmanager
def broken(breakage: Breakage, environment: Path, folder: Path) -> Iterator[Path]:
    """Yield a clone of an environment that is broken, for as long as the block lasts."""
    clone = copied(environment, folder / "env")
    try:
        breakage.harm(packages(clone))
        yield clone
    finally:
        shutil.rmtree(clone.with_name("env.gpuinstall"), ignore_errors=True)
        shutil.rmtree(clone)


def examined(breakage: Breakage, environment: Path, folder: Path, sources: Sources) -> Examined:
    """Break a clone of an environment in ``folder``, have it examined, repaired and examined again."""
    with broken(breakage, environment, folder) as clone:
        before = examine_clone(folder, clone, sources)
        steps = repair_steps(before.findings, clone)
        with open_session(sources, SilentReporter()) as session:
            results = run_repairs(steps, session.environment, SilentReporter())
        after = _first_line(examine_clone(folder, clone, sources))
    failures = [result.message for result in results if result.message]
    if failures:
        after = f"{after} ({failures[0].splitlines()[-1]})"
    return Examined(
        doctor=_portable(_first_line(before), clone),
        verify=_portable(_verify_line(before), clone),
        steps=tuple(_portable(str(result.step), clone) for result in results),
        after=_portable(after, clone),
    )


def examine_clone(folder: Path, environment: Path, sources: Sources) -> Examination:
    """Examine an environment that was named."""
    return examine(
        folder,
        environment,
        read_machine(),
        request=None,
        sources=sources,
        reporter=SilentReporter(),
        named=True,
    )


def _first_line(examination: Examination) -> str:
    """Return what the doctor says first."""
    findings = examination.findings
    return findings[0].message if findings else "healthy"


def _verify_line(examination: Examination) -> str:
    """Return what verify says first: the first fault of a device, else how it ended."""
    environment = examination.environment
    if not environment:
        return "there is no environment"
    verdict = environment.verdict
    if not verdict:
        return "its Python does not run"
    for device in verdict.devices:
        for fault in device.faults:
            return fault.message
    return verdict.status


def _portable(text: str, clone: Path) -> str:
    """Return a text without the paths of this machine."""
    text = text.replace(str(clone), "ENV").replace(str(clone.parent), "FOLDER")
    return re.sub(r"(--find-links )\S+", r"\1WHEELS", text)
