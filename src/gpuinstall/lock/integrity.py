"""Whether a lock of ours is as we write them: nothing changed by hand, nothing that would stay uninstalled."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from packaging.markers import Marker
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from gpuinstall.lock.inputs import digest
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.values import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from packaging.pylock import Package

    from gpuinstall.catalog.build import Build
    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.target import Target
    from gpuinstall.vendors.protocol import Rules


def faults(lock: Lock, target: Target) -> Iterator[Reason]:
    """Say what of a lock of ours is not as it would be made for ``target``."""
    if not lock.is_sealed:
        yield Reason("edited", "it was changed by another hand since it was made")
    if lock.python is None:
        yield Reason("widened", f"it is for Python {lock.pylock.requires_python or 'of any kind'}, not for one minor")
    if [str(marker) for marker in lock.pylock.environments or ()] != [str(Marker(target.marker))]:
        yield Reason("widened", f"it does not say that it is for {target} alone")
    if lock.evidence.get("inputs-digest") != digest(lock.inputs):
        yield Reason("edited", "what it says to be made from is not what it was made from")
    for name, times in Counter(package.name for package in lock.pylock.packages).items():
        if times > 1:
            yield Reason("twice", f"{name} is in it {times} times")
    for asked in map(parse_requirement, lock.inputs):
        if asked.marker is None and asked.url is None and asked.name not in lock.names:
            yield Reason("incomplete", f"{asked.name}, which it was made for, is not in it")
    for package in lock.pylock.packages:
        yield from _package_faults(package, lock, target)


def misdescribed(lock: Lock, build: Build, rules: Rules) -> Iterator[Reason]:
    """Say what a lock tells of its build that is not so."""
    told = lock.evidence.get("torch"), lock.evidence.get("backend")
    if told != (str(build.torch), build.backend.tag):
        yield Reason("evidence", f"it says to hold torch {told[0]} of {told[1]}, and holds {build.name}")
    floors = lock.evidence.get("floors", {})
    said = {name: floor for name, floor in floors.items() if name != "glibc"} if isinstance(floors, dict) else None
    if said != dict(rules.floors(build)):
        yield Reason("evidence", f"the floors that it tells of are not those of {build.name}")


def uninstalled(lock: Lock, target: Target, python: str) -> tuple[str, ...]:
    """The packages that their own markers keep out of every environment that a lock is for; ``python`` is ``X.Y``."""
    environment = target.environment(python)
    marked = ((package.name, package.marker) for package in lock.pylock.packages if package.marker)
    return tuple(name for name, marker in marked if not _holds(marker, environment))


def without_wheel(lock: Lock, family: Collection[str]) -> tuple[str, ...]:
    """The packages of PyTorch that a lock would build, or take from a folder or a repository."""
    return tuple(package.name for package in lock.pylock.packages if package.name in family and not _is_wheel(package))


def _package_faults(package: Package, lock: Lock, target: Target) -> Iterator[Reason]:
    if package.name in uninstalled(lock, target, lock.python or "3.12"):
        yield Reason("uninstalled", f"{package.name} would not be installed: {package.marker} never holds")
    for wheel in package.wheels or ():
        if not _is_of(wheel.filename, package):
            yield Reason("misnamed-file", f"{wheel.filename} is no wheel of {package.name} {package.version}")
    entries: list[Any] = [*(package.wheels or ()), *filter(None, (package.sdist, package.archive))]
    if not all("sha256" in entry.hashes for entry in entries):
        yield Reason("unhashed", f"a file of {package.name} has no sha256")


def _is_wheel(package: Package) -> bool:
    place = (package.archive.url or package.archive.path or "") if package.archive else ""
    return bool(package.wheels) or place.partition("#")[0].endswith(".whl")


def _is_of(filename: str, package: Package) -> bool:
    try:
        name, version, _, _ = parse_wheel_filename(filename)
    except InvalidWheelFilename:
        return False
    return name == canonicalize_name(package.name) and package.version in {None, version}


def _holds(marker: Marker, environment: dict[str, Any]) -> bool:
    try:
        return marker.evaluate(environment)
    except (ValueError, KeyError):  # a marker of names that no environment has
        return False
