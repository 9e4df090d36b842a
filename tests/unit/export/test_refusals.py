"""What a format cannot have is refused by its name, and never left out in silence."""

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.export.dockerfile import any_dockerfile, dockerfile
from gpuinstall.export.formats import requirements
from gpuinstall.export.uv_project import uv_tables
from gpuinstall.lock.file.lock import parse
from tests.unit.export.locks import cpu_lock, cuda_lock, lock, wheel

TORCH = wheel("torch", "2.14.1+cpu")
CHECKOUT = {
    "name": "mine",
    "vcs": {"type": "git", "url": "https://git.example/mine", "commit-id": "0" * 40},
}
IN_A_FOLDER = wheel("torch", "2.14.1+cu126")
IN_A_FOLDER["wheels"] = [
    {
        "path": "wheels/torch-2.14.1+cu126-py3-none-any.whl",
        "hashes": {"sha256": "0" * 64},
    }
]
OF_311 = lock("cpu", TORCH, python="3.11")
OF_ANY_PYTHON = parse(
    "pylock.cpu.toml", cpu_lock().text.replace('"==3.12.*"', '">=3.10"')
)


def tables(locks):
    return uv_tables(locks, "https://index.example/whl")


def only(form):
    return lambda locks: form(*locks)


def image_with_jupyter(locks):
    return any_dockerfile(locks, ["jupyter"])


ROWS = [
    (only(dockerfile), [OF_ANY_PYTHON], "which Python"),
    (only(dockerfile), [lock("cu130-windows-x86_64", TORCH)], "is not for Linux"),
    (only(dockerfile), [lock("cpu-macos-arm64", TORCH)], "is not for Linux"),
    (only(dockerfile), [lock("cpu", TORCH, CHECKOUT)], "mine in pylock.cpu.toml"),
    (
        only(dockerfile),
        [lock("cpu", TORCH, {"name": "mine", "directory": {"path": "../mine"}})],
        "mine in pylock.cpu.toml",
    ),
    (image_with_jupyter, [cpu_lock()], "pylock.cpu.toml holds no JupyterLab"),
    (tables, [cuda_lock(), OF_311], "different Pythons"),
    (
        only(requirements),
        [lock("cu126", IN_A_FOLDER)],
        "torch comes from a local folder",
    ),
]


def test_what_a_format_cannot_have_is_refused_by_name():
    wrong = []
    for form, locks, message in ROWS:
        with pytest.raises(UsageError) as refused:
            form(locks)
        if message not in refused.value.message:
            wrong.append((message, refused.value.message))

    assert wrong == []
