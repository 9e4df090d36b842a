"""Whether every package beside torch has code for the GPUs, and which older version has where the newest has none."""

from __future__ import annotations

from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from gpuinstall.catalog.listing import family_wheels
from gpuinstall.catalog.pages import Wheel, parse_page
from gpuinstall.errors import InstallationError, NoBuildError
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.store import learned_store
from gpuinstall.lock.resolver import ConflictError
from gpuinstall.plan.companions import PAIRED
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.values import Reason
from gpuinstall.vendors import rules_for
from gpuinstall.vendors.protocol import Code
from gpuinstall.wheels import load_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuinstall.backend import Backend
    from gpuinstall.catalog.build import Build
    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.lock.resolver import VersionPins
    from gpuinstall.machine import Gpu
    from gpuinstall.session import Session

    Resolve = Callable[[Sequence[LockRequest], VersionPins], list[Resolution]]

AT_ONCE = 8
ROUNDS = 4
HINT = "ask for something else, or take it all the same: --no-code-check"


@dataclass(frozen=True)
class MissingCode:
    """A locked package without code for GPUs: the wheel, what it has, and the first of its versions to leave out."""

    wheel: Wheel
    row: LearnedRow
    gpus: tuple[Gpu, ...]

    def __str__(self) -> str:
        names = " and ".join(dict.fromkeys(gpu.label for gpu in self.gpus))
        has = f"{self.row.witness} has {' '.join(self.row.architectures)}"
        return f"{self.wheel.package} {self.wheel.version} has no code for {names}: {has}"


@dataclass(frozen=True)
class Exclusion:
    """What the next resolution leaves out, and why: versions, as a constraint, or a build of torch.

    ``said`` is for people.
    """

    said: Reason
    constraint: str | None = None
    build: Build | None = None


class CodeCheck:
    """The code of what was resolved, against the GPUs that it was resolved for."""

    def __init__(self, resolution: Resolution, session: Session) -> None:
        self._resolution, self._session = resolution, session
        planned = resolution.planned
        self._build = planned.choice.build
        self._rules = rules_for(planned.request.machine, planned.request.catalog, {self._build.backend.kind})
        served = {run.index for run in planned.plan.gpus if run.how != "none"}
        self._gpus = tuple(gpu for gpu in planned.request.machine.gpus if gpu.index in served)
        self._reader = Reader(session.sources, session.client, learned_store(), session.reporter)

    def exclusions(self) -> list[Exclusion]:
        """Say what has to give way for every package to have code; raise NoBuildError where nothing helps."""
        return [self._exclusion(fault) for fault in self.faults()]

    def faults(self) -> list[MissingCode]:
        """Find the packages that have GPU code, and none for one of the GPUs."""
        if not (self._gpus and self._session.code_check and self._may_differ()):
            return []
        wheels = [wheel for wheel in map(_wheel, self._suspects()) if wheel]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = pool.map(self._fault, wheels)
        return [fault for fault in found if fault]

    def _may_differ(self) -> bool:
        """Say whether anything can be in it that the catalogue does not answer for with the build of torch."""
        asked = {parse_requirement(text).name for text in self._resolution.planned.choice.requirements}
        return self._build.learned is not None or not asked <= PAIRED

    def _suspects(self) -> Iterable[tuple[str, str, str | None]]:
        answered = set() if self._build.learned else PAIRED
        for file in self._resolution.files:
            if file.package not in answered and not load_members().with_torch.fullmatch(file.package):
                yield file.package, file.url, file.sha256

    def _fault(self, wheel: Wheel) -> MissingCode | None:
        try:
            if not self._reader.may_have_code(wheel):
                return None
            row = self._row(wheel, self._build.backend)
        except InstallationError as error:
            unread = f"whether {wheel.package} {wheel.version} has code for the GPUs here could not be read"
            self._session.reporter.warn(f"{unread}: {error.message}")
            return None
        without = self._without_code(row, self._build)
        return MissingCode(wheel, row, without) if without else None

    def _row(self, wheel: Wheel, backend: Backend) -> LearnedRow:
        return self._reader.companion(wheel, backend, f"{self._build.os}-{self._build.arch}")

    def _without_code(self, row: LearnedRow, build: Build) -> tuple[Gpu, ...]:
        """The GPUs that run nothing of a package; a package without GPU code says nothing of any."""
        if not row.architectures:
            return ()
        as_build = replace(build, code=row.architectures, libraries=())
        return tuple(gpu for gpu in self._gpus if not isinstance(self._rules.code(as_build, gpu), Code))

    def _exclusion(self, fault: MissingCode) -> Exclusion:
        """Prefer another build of the same torch, beside which the package has code, to an older package."""
        package = fault.wheel.package
        for build in self._other_builds():
            if not self._without_code(self._row(fault.wheel, build.backend), build):
                said = Reason(
                    "other-backend-for-code", f"{fault} beside {self._build.backend}; {build.backend} serves it"
                )
                return Exclusion(said, build=self._build)
        older = self._older(fault)
        if older is None:
            raise NoBuildError(
                "no-code-in-package",
                str(fault),
                why="no older version of it that is listed has code for it either",
                hint=HINT,
            )
        said = Reason("older-for-code", f"{fault}; {package} {older} is the newest that has")
        return Exclusion(said, constraint=f"{package}<={older}")

    def _other_builds(self) -> list[Build]:
        """The builds of the same torch that fit too."""
        rejected = self._resolution.planned.plan.rejected
        return [found.build for found in rejected if found.code == "less-preferred"]

    def _older(self, fault: MissingCode) -> str | None:
        """Find the newest older version that has code, taking it that whoever drops a GPU does not take it up again."""
        wheels = self._older_wheels(fault)
        first = bisect_left(wheels, True, key=partial(self._serves, self._build))
        return str(wheels[first].version) if first < len(wheels) else None

    def _serves(self, build: Build, wheel: Wheel) -> bool:
        return not self._without_code(self._row(wheel, build.backend), build)

    def _older_wheels(self, fault: MissingCode) -> Sequence[Wheel]:
        """A wheel for the target of every older version, the newest first."""
        planned, session, package = self._resolution.planned, self._session, fault.wheel.package
        tags = set(self._resolution.target.tags(planned.choice.python))
        listed: Iterable[Wheel] = ()
        if package in planned.request.catalog.family and planned.choice.index:
            listed = family_wheels(session.sources, session.client, self._build.backend.tag, package)
        elif page := session.client.page(f"{session.default_index}/{package}/"):
            listed = parse_page(page.text, page.content_type, page.url)
        older = {
            wheel.version: wheel
            for wheel in listed
            if wheel.package == package and wheel.version < fault.wheel.version and not tags.isdisjoint(wheel.tags)
        }
        return [older[version] for version in sorted(older, reverse=True) if not version.is_prerelease]


def with_code(
    resolve: Resolve, requests: Sequence[LockRequest], pins: VersionPins, session: Session
) -> list[Resolution]:
    """Resolve until every package has code for the GPUs; what had to give way is a warning of the plan.

    Raise NoBuildError where nothing helps.
    """
    given: list[Reason] = []
    for _ in range(ROUNDS):
        try:
            done = resolve(requests, pins)
        except ConflictError as conflict:
            raise _hopeless(given, conflict) if given else conflict from conflict
        found = [CodeCheck(resolution, session).exclusions() for resolution in done]
        if not any(found):
            return [_warned(resolution, given) for resolution in done]
        given += dict.fromkeys(each.said for exclusions in found for each in exclusions)
        session.reporter.step("Code", given[-1].message)
        pins = pins.within(tuple(each.constraint for one in found for each in one if each.constraint))
        requests = [_without(*each) for each in zip(requests, found, strict=True)]
    raise _hopeless(given)


def _without(request: LockRequest, exclusions: Iterable[Exclusion]) -> LockRequest:
    """The same without builds of torch."""
    excluded = tuple(f"torch!={each.build.name}" for each in exclusions if each.build)
    asked = replace(request.request, requirements=(*request.request.requirements, *excluded))
    return replace(request, request=asked)


def _warned(resolution: Resolution, given: Iterable[Reason]) -> Resolution:
    plan = resolution.planned.plan
    told = replace(plan, warnings=(*plan.warnings, *given))
    return replace(resolution, planned=replace(resolution.planned, plan=told))


def _hopeless(given: Sequence[Reason], conflict: ConflictError | None = None) -> NoBuildError:
    return NoBuildError(
        "no-code-in-package",
        given[-1].message,
        why=(conflict.why or conflict.message) if conflict else "each older one that was tried has none either",
        hint=HINT,
    )


def _wheel(file: tuple[str, str, str | None]) -> Wheel | None:
    """The wheel that a resolved file is, where it is for one platform."""
    package, url, sha256 = file
    name = url.rpartition("/")[2].replace("%2B", "+")
    try:
        _, version, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return None
    pure = all(tag.platform == "any" for tag in tags)
    return None if pure else Wheel(package, version, name, url, tags, sha256)
