"""Commands for NVIDIA's driver on one system, from ``packages.toml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product

from gpuinstall.base.values import Value
from gpuinstall.catalog.failures.table import FixTable, Step, read_table, rows_of

ELSEWHERE = frozenset(("container", "wsl", "jetson", "windows", "macos"))
"""The places with a driver from the host, Windows, or JetPack."""


class DriverPackages(Value):
    """How one system does one thing with the driver."""

    system: str
    """A distribution, release, or package manager; else ``linux``."""
    action: str
    steps: tuple[Step, ...]
    checked: str
    """How the names of the packages were: the head of the file tells."""
    to: int | None = None
    """The newest branch that the packages have; None: they follow NVIDIA's."""
    first: str | None = None
    """The repository that has to be added before."""


@cache
def load_packages() -> tuple[DriverPackages, ...]:
    """Return the rows in their order: of those that fit, the first counts."""
    return rows_of(DriverPackages, "packages")


@cache
def load_repositories() -> Mapping[str, tuple[Step, ...]]:
    """Return the steps that add each repository."""
    rows = read_table("packages")["repositories"]
    return FixTable.from_document(rows, "repositories").commands


def driver_steps(
    action: str,
    keys: Sequence[str],
    branch: int,
) -> tuple[Step, ...]:
    """Return the steps of an action on a driver, if this system has one.

    Args:
        action: A name of the file, such as ``install``.
        keys: The keys of the place, the closest first.
        branch: The driver's branch.
    """
    if not ELSEWHERE.isdisjoint(keys):
        return ()
    for key, row in product((*keys, "linux"), load_packages()):
        # A row of rhel-9 is for rhel-9.4 too.
        is_system = key == row.system or key.startswith(f"{row.system}.")
        has_branch = row.to is None or branch <= row.to
        if row.action == action and is_system and has_branch:
            repository = load_repositories().get(row.first or "", ())
            return repository + row.steps
    return ()


def release_of(keys: Sequence[str]) -> str:
    """Return the major release in a key ``debian-12``; empty if unknown."""
    for key in keys:
        _, _, release = key.partition("-")
        if release:
            return release.partition(".")[0]
    return ""
