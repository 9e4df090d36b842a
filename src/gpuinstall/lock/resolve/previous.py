"""The versions of locks or of an environment, to keep where possible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from gpuinstall.base.errors import NoBuildError, UsageError
from gpuinstall.base.location import Location
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Constraint, is_file_url, requirement_names
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import COMPANIONS, DEFAULT_INDEX, Wheel
from gpuinstall.catalog.catalog import WheelSource
from gpuinstall.catalog.listing import Listing, update_catalog
from gpuinstall.catalog.pages import PageFile, wheels_from_files
from gpuinstall.lock.file.lock import (
    Lock,
    Record,
    compare_requests,
    find_version_conflicts,
)
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.resolve.question import Alternative, Requests
from gpuinstall.plan import Plan
from gpuinstall.plan.alternatives import runs_on_same_gpus
from gpuinstall.plan.demand import parse_request


class Previous(Value):
    """The previous versions, and the packages to upgrade."""

    locks: Sequence[Lock] = ()

    moving: Collection[str] = ()
    """The only packages to upgrade."""

    upgrade: bool = False
    """Whether to upgrade everything, and keep only the Python of the locks."""

    installed: Mapping[str, str] = {}
    """The installed versions, if they take the place of locks."""

    @property
    def releases(self) -> set[tuple[str, str]]:
        """The packages in the locks with their versions."""
        return {pair for lock in self.locks for pair in lock.all_versions.items()}

    def may_move_torch(self, request: LockRequest) -> bool:
        """Return whether torch or a package of its family is upgraded."""
        return self.upgrade or not request.catalog.family.isdisjoint(self.moving)

    def create_alternatives(self, requests: Requests) -> Iterator[Alternative]:
        """Yield alternatives: pin the locked torch first, then only prefer it.

        Raises:
            UsageError: A package to upgrade is in no lock.
        """
        first = requests[0]
        alternative = Alternative(other_python=self._find_python(first))
        if self.installed:
            yield Alternative(preferences=self.installed)
            return
        if self.upgrade:
            yield alternative
            return
        versions = self._find_versions(first.request)
        moved = {name: versions.pop(name) for name in self.moving}
        alternative = replace(
            alternative,
            preferences=versions,
            moving=moved,
            hashes=dict(self._list_hashes()),
        )
        torch = versions.get("torch", "")
        # Without a torch version, the build of the other PyTorch packages is unknown.
        is_kept = torch and not self._has_new_programs(first)
        is_kept = is_kept and _can_keep_torch(first, torch)
        if is_kept:
            members = sorted(first.catalog.family & versions.keys())
            yield replace(
                alternative,
                pins={name: versions[name] for name in members},
                locks=self._list_unchanged(first.request),
            )
        if not self.moving or not is_kept:
            yield alternative

    def _list_unchanged(self, request: Request) -> Mapping[str, Mapping[str, str]]:
        """Return the versions of each target if all of them can be kept."""
        by_target = {lock.target: lock.versions for lock in self.locks}
        # Conflicting locks, such as the sides of a merge, cannot be kept unchanged.
        is_whole = len(by_target) == len(self.locks)
        is_whole = is_whole and not (self.moving or find_version_conflicts(self.locks))
        return by_target if is_whole and self._is_current(request) else {}

    def _find_python(self, request: LockRequest) -> str | None:
        """Return the Python version in lock files if the request allows it."""
        demand = parse_request(request.request, request.catalog, request.machine)
        pythons = (lock.python for lock in self.locks)
        return next(filter(demand.pythons.__contains__, pythons), None)

    def _find_versions(self, request: Request) -> dict[str, str]:
        """Return locked versions, also from ``uv.lock`` or ``poetry.lock``."""
        locked = dict[str, str]()
        for lock in self.locks:
            locked |= lock.versions
        is_ignored = self.moving and self.locks
        preferred = {} if is_ignored else map_pins_by_name(request.preferred)
        is_current = self._is_current(request)
        versions = preferred | locked if is_current else locked | preferred
        for name in self.moving:
            if name not in versions:
                message = f"no lock in this folder has a package named {name}"
                raise UsageError("not-locked", message, hint="Check the name")
        return versions

    def _is_current(self, request: Request) -> bool:
        """Return whether lock files match the current ``uv.lock``.

        If so, the versions of the locks take precedence.
        """
        now = Record.from_request(request)
        changes = (compare_requests(lock.record, now) for lock in self.locks)
        return not any(one.has_other_versions for one in changes)

    def _list_hashes(self) -> Iterator[tuple[str, str]]:
        """Yield the SHA-256 hashes of locked files, by name and by URL."""
        for lock in self.locks:
            for file in lock.files:
                if file.sha256 and file.package not in self.moving:
                    yield file.name, file.sha256
                    # A local file may have changed.
                    if not is_file_url(file.url):
                        yield file.url, file.sha256

    def _has_new_programs(self, request: LockRequest) -> bool:
        """Return whether the request has a program that no lock includes.

        The version of a new program is selected before torch's version. The project
        itself, requested by path, and packages that are tied to torch are not programs.
        """
        locked = set(map_pins_by_name(request.request.preferred))
        for lock in self.locks:
            locked |= lock.requested
        return not self.moving and any(
            one.url is None
            and one.name not in locked
            and not request.catalog.is_tied(one.name)
            for one in request.request.requirements
        )


NOTHING = Previous()


def _can_keep_torch(request: LockRequest, torch: str) -> bool:
    """Return whether a request allows a torch version for the same GPUs."""
    for requirement in request.request.requirements:
        if requirement.name == "torch" and not requirement.allows(torch):
            return False
    locked = request.choose_build(torch=parse_public_version(torch))
    return runs_on_same_gpus(locked, request.outcome)


def map_pins_by_name(preferred: Iterable[Constraint]) -> dict[str, str]:
    """Return pinned versions by package."""
    return {one.name: one.pinned or "" for one in preferred}


# The locked torch.


def keep_torch(
    request: LockRequest, locks: Sequence[Lock], index: str
) -> tuple[LockRequest, tuple[Wheel, ...]]:
    """Return the request with only the locked build, and the locked wheels.

    There are no wheels if torch is from the default index.

    Args:
        request: The request.
        locks: The existing locks.
        index: The torch index.

    Raises:
        NoBuildError: The request may need another torch.
    """
    changed = NoBuildError("torch-kept", "the request may need another torch")
    own = [one for one in locks if len(locks) == 1 or one.target == request.label]
    names = requirement_names(request.request.requirements)
    if len(own) != 1 or own[0].find_unhashed_packages:
        raise changed
    [lock] = own
    is_similar = names <= lock.requested or names >= lock.requested
    if "torch" not in lock.versions or not is_similar:
        raise changed
    wheels = _list_wheels(lock, request, index)
    backend = lock.record.backend
    packages = COMPANIONS & names | {"torch"}
    listing = Listing(wheels, frozenset([backend]), packages, default_listed=True)
    catalog = replace(request.catalog, torch_index=index)
    catalog = update_catalog(catalog, listing, request.machine)
    limited = replace(request, catalog=catalog).limit_to_locked_backends(own)
    plan = limited.outcome
    if not isinstance(plan, Plan) or not runs_on_same_gpus(plan, request.outcome):
        raise changed
    build, torch = plan.choice.build, parse_public_version(lock.versions["torch"])
    if (build.torch, build.backend.tag) != (torch, backend):
        raise changed
    return limited, tuple(one for one in wheels if one.source != DEFAULT_INDEX)


def _list_wheels(lock: Lock, request: LockRequest, index: str) -> tuple[Wheel, ...]:
    """Return the locked wheels of torch, its family, and its server."""
    server = Location.parse(index).server
    source: WheelSource = DEFAULT_INDEX
    files = []
    for file in lock.files:
        if file.package == "torch":
            own = file.location.server
            # The default index has no labels.
            if own == server or "+" in lock.versions["torch"]:
                server, source = own, f"{index}/{lock.record.backend}"
    for file in lock.files:
        is_own = file.location.server == server
        if is_own or file.package in request.catalog.family:
            files.append(PageFile(file.url, file.name, file.sha256, metadata=True))
    return wheels_from_files(files, lock.record.backend, source)
