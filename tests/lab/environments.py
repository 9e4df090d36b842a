"""Environments by uv: one with the small torch of the stand-in wheels, one with a real torch for the CPU.

``python -m tests.lab.environments`` makes that of the real torch and fetches what bootstrap.py needs, so that the tests
need no network.
"""

import os
import shutil
import sys
import sysconfig
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import uv

from gpuinstall.base import process
from tests.lab.clone import ROOT
from tests.lab.native import native_library
from tests.lab.pythons import interpreter
from tests.lab.shared import made, once
from tests.lab.stub_torch import modules
from tests.lab.wheelhouse import fetch_other_wheels
from tests.lab.wheels import make_wheel, record

VERSION = "2.13.0+cpu"
WHEEL = f"torch-{VERSION}-cp311-*linux*_x86_64.whl"
CUDA_TORCH_BYTES = 8 * 10**9
LOADING = """
import ctypes, os
ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libc10.so"))
from . import _C
"""


def small_torch(folder: Path, backend: str = "cu126") -> Path:
    """Make an environment with this Python that holds the small torch; return the folder of its packages."""
    _uv("venv", "--no-project", "--python", sys.executable, str(folder))
    site = packages(folder)
    _write(site, modules(f"2.14.1+{backend}", backend))
    return site


def make_linked_torch(environment: Path) -> Path:
    """Make an environment with the small torch of the CPU, as installed, and a library and a module that it loads."""
    site = small_torch(environment)
    shutil.rmtree(site / "torch")
    library = native_library(environment / "made" / "libc10.so", soname="libc10.so")
    module = native_library(environment / "made" / "_C.so", modules=["_C"])
    sources = modules(VERSION, "cpu")
    sources["torch/__init__.py"] = f"{LOADING}{sources['torch/__init__.py']}"
    files: dict[str, str | bytes] = {**sources}
    files["torch/lib/libc10.so"] = library.read_bytes()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    files[f"torch/_C{suffix}"] = module.read_bytes()
    wheel = make_wheel(environment / "made", "torch", VERSION, modules=files)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return environment


def small_package(
    site: Path,
    name: str,
    text: str = "",
    *,
    requires: str = "",
    files: tuple[str, ...] = (),
):
    """Put a package with this ``__init__.py`` into a folder of packages; its other ``files`` are empty."""
    module = name.replace("-", "_")
    put_package(
        site,
        name,
        {f"{module}/__init__.py": text, **dict.fromkeys(files, "")},
        requires=[requires] if requires else [],
    )


def put_package(
    site: Path,
    name: str,
    files: Mapping[str, str],
    *,
    version: str = "1.0",
    requires: Sequence[str] = (),
):
    """Install a package into a folder of packages, with its RECORD."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    files = {**files, f"{info}/METADATA": "\n".join(metadata) + "\n"}
    data = {path: text.encode() for path, text in files.items()}
    files[f"{info}/RECORD"] = record(data, f"{info}/RECORD").decode()
    _write(site, files)


def _write(folder: Path, files: Mapping[str, str]):
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


def cpu_torch(*, offline: bool = False) -> Path:
    """Return an environment that holds a real torch from pip's find-links; it is shared: copy it before changing it.

    It is made once for all sessions: to compile torch takes longer than the tests of it.

    Args:
        offline: Whether what torch needs comes from uv's cache alone; if it is not there, the test is skipped.
    """
    find_links = os.environ.get("PIP_FIND_LINKS", "")
    python = str(interpreter("3.11"))
    if not any(Path(find_links).glob(WHEEL)):
        pytest.skip(
            f"no wheel of torch {VERSION} in PIP_FIND_LINKS ({find_links or 'not set'})"
        )

    def make(folder: Path):
        _uv("venv", "--no-project", "--python", python, str(folder))
        options = [
            "--python",
            str(folder / "bin" / "python"),
            "--find-links",
            find_links,
        ]
        if offline:
            options.append("--offline")
        _uv("pip", "install", *options, f"torch=={VERSION}")
        # What verify starts compiles all that it imports, each time, and keeps none of it.
        variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        process.run([folder / "bin" / "python", "-c", "import torch"], env=variables)

    return made(ROOT / ".venv-dev" / f"torch-{VERSION}", make)


def cuda_torch(factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the newest torch of the default index, which is for CUDA; it is not to be changed.

    It imports without a GPU.
    """

    def make(folder: Path):
        free = shutil.disk_usage(folder.parent).free
        if free < CUDA_TORCH_BYTES:
            pytest.skip(
                f"torch and CUDA's libraries take 6 GB, and {free} bytes are free"
            )
        _uv("venv", "--no-project", "--python", str(interpreter("3.11")), str(folder))
        _uv(
            "pip",
            "install",
            "--python",
            str(folder / "bin" / "python"),
            "torch",
            "numpy",
        )

    return once(factory, "cuda-torch", make)


def _uv(*words: str):
    done = process.run([uv.find_uv_bin(), *words, "-q"])
    if not done.ok and "--offline" in words:
        pytest.skip("what torch needs is not in uv's cache: make test-all fetches it")
    assert done.ok, done.err


def copied(environment: Path, folder: Path) -> Path:
    """Copy an environment by hard links: files may be removed and replaced in the copy, never written into.

    Its activate script leads to the copy, as if it had been made there.
    """
    shutil.copytree(environment, folder, symlinks=True, copy_function=link)
    activate = folder / "bin" / "activate"
    if activate.is_file():
        text = activate.read_text().replace(str(environment), str(folder))
        rewrite(activate, text)
    return folder


def link(source: str, target: str):
    """Put a file into another folder too, where that can be done without a copy."""
    try:
        os.link(source, target)
    except OSError:
        # Temporary files may lie on another disk.
        shutil.copy2(source, target)


def packages(environment: Path) -> Path:
    """Return the folder of an environment's packages."""
    return next(environment.glob("lib/python*/site-packages"))


def rewrite(file: Path, text: str):
    """Replace a file of a copy, leaving the original alone."""
    file.unlink(missing_ok=True)
    file.write_text(text)


if __name__ == "__main__":
    with suppress(pytest.skip.Exception, AssertionError):
        cpu_torch()
    fetch_other_wheels()
