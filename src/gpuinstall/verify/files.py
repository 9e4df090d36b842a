"""The files of torch and its family against the lists of their installations.

A torch that answers every kernel as it should may still be another one: its files tell.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.files import open_regular
from gpuinstall.environments.environment import packages_called

if TYPE_CHECKING:
    from gpuinstall.verify.interpreter import FoundTorch

_CODE = {".py", ".pyd", ".so", ".dll", ".pth"}
_CHUNK = 1 << 20
"""How many bytes of a file are read at once."""


def altered_files(torch: FoundTorch, names: Collection[str]) -> Iterator[str]:
    """Yield the files of packages beside a torch that are gone, or not what was installed, by their paths.

    Args:
        torch: The torch, whose folder of packages is looked at.
        names: The packages.
    """
    if torch.torch is None:
        return
    site = Path(torch.torch).parent.parent
    for package in packages_called(names, [site]):
        # What was written at the installation has none.
        digests = {file.path: file.digest for file in package.files if file.digest}
        for path, digest in digests.items():
            if _digest(site / path) != digest:
                yield path
        if package.name == "torch":
            yield from _unrecorded_code(site, digests)


def _unrecorded_code(site: Path, digests: Mapping[str, str]) -> Iterator[str]:
    """Yield the code in torch's folder that its installation does not list: Python would import it."""
    for path in sorted((site / "torch").rglob("*")):
        name = path.relative_to(site).as_posix()
        if path.suffix in _CODE and name not in digests:
            yield name


def _digest(path: Path) -> str | None:
    """Return the SHA-256 of a file as RECORD writes it; None if it cannot be read."""
    sha256 = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while chunk := file.read(_CHUNK):
                sha256.update(chunk)
    except OSError:
        return None
    encoded = base64.urlsafe_b64encode(sha256.digest())
    return encoded.decode().rstrip("=")
