"""Where every file of a resolution comes from, checked address by address before anything is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuinstall.catalog.pages import Wheel
    from gpuinstall.lock.document import LockedFile


def check(files: Iterable[LockedFile], pages: Mapping[str, tuple[Wheel, ...]]) -> None:
    """Refuse a file that its page does not have; ``pages`` are the packages that have a source of their own.

    Every other file came from the default index alone, the only one that uv was given; it may not be one that a page
    lists for another package.
    """
    listed = {package: {wheel.url for wheel in wheels} for package, wheels in pages.items()}
    for file in files:
        _check_name(file)
        owners = {package for package, urls in listed.items() if file.url in urls}
        if owners - {file.package} or (file.package in listed and not owners):
            raise _strayed(file, "it is not what the source of the PyTorch family lists")


def _check_name(file: LockedFile) -> None:
    if "/" in file.name or "\\" in file.name or file.name in {"", ".", ".."}:
        raise _strayed(file, "its name leads out of its folder")


def _strayed(file: LockedFile, why: str) -> InstallationError:
    address = file.url.partition("?")[0]
    return InstallationError("wrong-source", f"{file.package} would come from {address}", why=why)
