"""Environments by uv, with the small fake torch or a real torch for the CPU.

``python -m tests.lab.environments`` creates the environment with the real torch and
downloads what bootstrap.py needs. The tests then need no network.
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
    """Create an environment with the fake torch; return its site folder."""
    _uv("venv", "--no-project", "--python", sys.executable, str(folder))
    site = packages(folder)
    _write(site, modules(f"2.14.1+{backend}", backend))
    return site


def make_linked_torch(environment: Path) -> Path:
    """Create an environment with the fake CPU torch and a loaded library."""
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
    """Write a package with this ``__init__.py`` and other, empty files."""
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
    """Install a package with its RECORD into a site folder."""
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
        file.write_text(text, "utf-8", newline="\n")


def cpu_torch(*, offline: bool = False) -> Path:
    """Return a shared environment with a real torch. Copy it before a change.

    All sessions share it, because compiling torch's bytecode takes longer than its
    tests.

    Args:
        offline: Whether torch's dependencies come only from uv's cache. If they are not
            in it, the test is skipped.
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
        # Otherwise, each verification would compile its imports again.
        variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        process.run([folder / "bin" / "python", "-c", "import torch"], env=variables)

    return made(ROOT / ".venv-dev" / f"torch-{VERSION}", make)


def cuda_torch(factory: pytest.TempPathFactory) -> Path:
    """Return a shared environment with the latest default torch.

    This CUDA build imports without a GPU. Tests must not change it.
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
    """Copy an environment by hard links.

    Files in the copy may be removed and replaced, but must not be written in place. The
    activate script selects the copy.
    """
    shutil.copytree(environment, folder, symlinks=True, copy_function=link)
    activate = folder / "bin" / "activate"
    if activate.is_file():
        text = activate.read_text().replace(str(environment), str(folder))
        rewrite(activate, text)
    return folder


def link(source: str, target: str):
    """Link or copy a file into another folder."""
    try:
        os.link(source, target)
    except OSError:
        # Temporary files may be on another disk.
        shutil.copy2(source, target)


def packages(environment: Path) -> Path:
    """Return the site folder of an environment."""
    return next(environment.glob("lib/python*/site-packages"))


def rewrite(file: Path, text: str):
    """Replace a file of a copy, and keep the original unchanged."""
    file.unlink(missing_ok=True)
    file.write_text(text)


if __name__ == "__main__":
    with suppress(pytest.skip.Exception, AssertionError):
        cpu_torch()
    fetch_other_wheels()
