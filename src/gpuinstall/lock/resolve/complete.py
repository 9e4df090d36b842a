"""Add the facts that an explanation needs to an answer or a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.requirement import Requirement
from gpuinstall.base.values import replace
from gpuinstall.catalog import PAIRED
from gpuinstall.lock.file.target import find_required_glibc
from gpuinstall.lock.resolve.found import Found, Newest, Refused
from gpuinstall.lock.resolve.inspect import find_sdists
from gpuinstall.lock.resolve.question import is_library_of_torch
from gpuinstall.lock.resolve.reading import Reading, open_scope
from gpuinstall.lock.uv.conflict import IncompatibleWheel
from gpuinstall.lock.uv.errors import find_failed_package

if TYPE_CHECKING:
    from gpuinstall.catalog import Wheel
    from gpuinstall.lock.resolve.lane import Lane


def complete(found: Found, lane: Lane) -> Found:
    """Return an answer with the facts that its explanation needs."""
    scope = open_scope(found.answer, found.known, lane)
    reading = Reading(scope, found.known, lane)
    return replace(
        found,
        newest=_find_newest(found, lane),
        inspected=reading.results,
        unread=reading.find_unread(),
        lacking=reading.find_lacking_libraries(),
    )


def complete_refusal(refused: Refused, lane: Lane) -> Refused:
    """Return a refusal with the facts that its explanation needs."""
    is_listed = refused.conflict.unlisted in lane.pages.listed()
    listed = {
        name: tuple(wheel.version for wheel in wheels)
        for name, wheels in lane.pages.read_pages().items()
        if name in lane.question.requested - PAIRED
    }
    wheel = refused.conflict.incompatible
    packages = [*map(find_failed_package, refused.known.unbuildable.values())]
    if wheel and wheel.glibc:
        packages.insert(0, wheel.package)
    for package in packages:
        demands = refused.known.log.find_demands(package)
        releases = lane.releases.find_releases(package)
        newest = max(releases, default=Version("0"))
        one = lane.releases.find_wheel_for_newer_glibc(package, newest, demands)
        if one:
            wheel = IncompatibleWheel(package, str(one.version), _find_glibc(one))
            break
    return replace(
        refused,
        listed=listed,
        is_listed=is_listed and not lane.session.sources.uv.exclude_newer,
        incompatible=wheel,
    )


def _find_newest(found: Found, lane: Lane) -> dict[str, Newest]:
    """Return the latest releases of packages that may be older."""
    listed = lane.releases.newest_releases()
    newest: dict[str, Newest] = {}
    for package in dict.fromkeys([*listed, *find_sdists(found.answer)]):
        selected = found.find_version(package)
        if selected:
            one = _find_limit(package, selected, found, lane)
            newest |= {package: one} if one else {}
    return newest


def _find_limit(
    package: str, selected: Version, found: Found, lane: Lane
) -> Newest | None:
    """Return a later release, with its requirement of torch or glibc."""
    releases = lane.releases
    listed = releases.newest_releases().get(package)
    demands = found.known.log.find_demands(package, found.answer.versions)
    wheel = releases.find_wheel_for_newer_glibc(package, selected, demands)
    if wheel:
        torch = _find_torch_demand(wheel, lane)
        if torch is None:
            return Newest(wheel.version, glibc=_find_glibc(wheel))
        return Newest(max(wheel.version, listed or wheel.version), torch=torch)
    if listed is None or listed <= selected:
        return None
    wheel = releases.find_releases(package).get(listed)
    # The METADATA of a library or a locked package does not change the answer.
    is_unread = is_library_of_torch(package) or found.is_kept(package)
    if wheel is None or is_unread:
        return Newest(listed)
    return Newest(listed, torch=_find_torch_demand(wheel, lane))


def _find_torch_demand(wheel: Wheel, lane: Lane) -> Requirement | None:
    """Return a wheel's requirement of torch, if no build satisfies it."""
    for one in lane.releases.read_metadata_requirements(wheel):
        if one.name == "torch" and not any(map(one.allows, lane.question.torches)):
            return one
    return None


def _find_glibc(wheel: Wheel) -> str:
    return find_required_glibc([(wheel.package, wheel.filename)], least="2.5") or ""
