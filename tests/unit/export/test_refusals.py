"""Unsupported parts of a lock are rejected."""

from functools import partial
from typing import Any

from gpuinstall.base.errors import UsageError
from gpuinstall.export.dockerfile import format_dockerfile, format_image_dockerfile
from gpuinstall.export.formats import format_requirements_file
from gpuinstall.export.pins import read_lock_backend
from gpuinstall.export.uv_project import format_uv_tables
from gpuinstall.lock.file.lock import parse
from tests.unit.export.locks import cpu_lock, cuda_lock, lock, wheel

TORCH = wheel("torch", "2.14.1+cpu")
REPOSITORY = {"type": "git", "url": "https://git.example/a", "commit-id": "0" * 40}
FILE = {
    "path": "wheels/torch-2.14.1+cu126-py3-none-any.whl",
    "hashes": {"sha256": "0" * 64},
}
IN_A_FOLDER = {"name": "torch", "version": "2.14.1+cu126", "wheels": [FILE]}
UNLABELLED = lock("cu130-linux-aarch64", wheel("torch", "2.14.1"))
OF_311 = lock("cpu", TORCH, python="3.11")
OF_ANY_PYTHON = parse(
    "pylock.cpu.toml", cpu_lock().text.replace('"==3.12.*"', '">=3.10"')
)


def test_export_rejection_mentions_unsupported_part_of_lock():
    image = partial(format_image_dockerfile, extras=["jupyter"])
    tables = partial(format_uv_tables, torch_index="https://index.example/whl")
    project = {"name": "mine", "directory": {"path": "../mine"}}
    rows: tuple[Any, ...] = (
        (format_dockerfile, OF_ANY_PYTHON, "unknown Python version"),
        (format_dockerfile, lock("cu130-windows-x86_64", TORCH), "is not for Linux"),
        (format_dockerfile, lock("cpu-macos-arm64", TORCH), "is not for Linux"),
        (
            format_dockerfile,
            lock("cpu", TORCH, {"name": "mine", "vcs": REPOSITORY}),
            "that the image lacks: mine",
        ),
        (format_dockerfile, lock("cpu", TORCH, project), "that the image lacks: mine"),
        (image, [cpu_lock()], "JupyterLab is not in pylock.cpu.toml"),
        (tables, [cuda_lock(), OF_311], "different Python versions"),
        (format_image_dockerfile, [cuda_lock(), OF_311], "different Python versions"),
        (
            format_requirements_file,
            lock("cu126", IN_A_FOLDER),
            "torch is from a local folder",
        ),
        (
            read_lock_backend,
            parse("pylock.toml", UNLABELLED.text),
            "pylock.toml has an unknown build",
        ),
    )
    wrong = []
    for form, locks, message in rows:
        try:
            form(locks)
        except UsageError as error:
            if message in error.message:
                continue
        wrong.append(message)
    assert wrong == []


def test_backend_is_read_from_torch_or_lock_name():
    assert read_lock_backend(parse("pylock.toml", cuda_lock().text)).tag == "cu126"
    assert read_lock_backend(UNLABELLED).tag == "cu130"
