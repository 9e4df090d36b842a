"""Whether every package beside torch has code for the GPUs, and which older version has where the newest has none."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from gpuinstall.catalog.build import Wheel
from gpuinstall.catalog.listing import family_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.errors import InstallationError, NoBuildError
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.row import as_build, made_with, misfit, without_code
from gpuinstall.learned.store import learned_store
from gpuinstall.plan.companions import PAIRED
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.values import Reason
from gpuinstall.threads import side_by_side
from gpuinstall.vendors import rules_for
from gpuinstall.wheels import load_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuinstall.backend import Backend
    from gpuinstall.catalog.build import Build
    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine import Gpu
    from gpuinstall.session import Session
    from gpuinstall.vendors.protocol import Rules

AT_ONCE = 8
HINT = "ask for something else, or take it all the same: --no-code-check"


@dataclass(frozen=True)
class MissingCode:
    """A locked package that does not run on the GPUs, and why.

    It ``decides`` where it was asked for, or is known to be of no use without that code.
    """

    wheel: Wheel
    why: str
    decides: bool

    def __str__(self) -> str:
        return f"{self.wheel.package} {self.wheel.version} {self.why}"


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
        self._build = resolution.choice.build
        self._gpus = tuple(_gpus_to_serve(resolution))
        self._reader = Reader(session.sources, session.client, learned_store(), session.reporter)

    def exclusions(self) -> list[Exclusion]:
        """Say what has to give way for every package to have code; raise NoBuildError where nothing can."""
        deciding = [fault for fault in self.faults if fault.decides]
        helping = [exclusion for fault in deciding if (exclusion := self._exclusion(fault))]
        if deciding and not helping:
            why = "no older version of it that is listed runs there either"
            raise NoBuildError("no-code-in-package", str(deciding[0]), why=why, hint=HINT)
        return helping

    def remarks(self) -> list[Reason]:
        """Warn of what came with something else and may be a part of it that it does without on these GPUs."""
        return [Reason("part-without-code", str(fault)) for fault in self.faults if not fault.decides]

    @cached_property
    def faults(self) -> list[MissingCode]:
        """The packages that have GPU code, and none for one of the GPUs.

        Where torch's family alone was asked for, the catalogue answers for it with the build of torch.
        """
        learned = self._build.learned is not None
        if not (self._gpus and self._session.code_check and (learned or not self._requested <= PAIRED)):
            return []
        answered = frozenset[str]() if learned else PAIRED
        files = (file for file in self._resolution.files if file.package not in answered)
        wheels = [wheel for file in files if (wheel := _native_wheel(file))]
        return [fault for fault in side_by_side(self._fault, wheels, AT_ONCE) if fault]

    @cached_property
    def _requested(self) -> set[str]:
        return {parse_requirement(text).name for text in self._resolution.choice.requirements}

    def _fault(self, wheel: Wheel) -> MissingCode | None:
        try:
            if not self._reader.may_have_code(wheel):
                return None
            why = self._against(wheel, self._build)
        except InstallationError as error:
            unread = f"whether {wheel.package} {wheel.version} has code for the GPUs here could not be read"
            self._session.reporter.warn(f"{unread}: {error.message}")
            return None
        decides = wheel.package in self._requested or load_members().names(wheel.package)
        return MissingCode(wheel, why, decides) if why else None

    def _row(self, wheel: Wheel, backend: Backend) -> LearnedRow:
        return self._reader.companion(wheel, backend, f"{self._build.os}-{self._build.arch}")

    def _against(self, wheel: Wheel, build: Build) -> str | None:
        """Say why a package does not run beside a build; one without GPU code runs everywhere.

        The runtime that it is made for comes with torch, or with something else in the lock.
        """
        row = self._row(wheel, build.backend)
        why = misfit(row, build, self._gpus)
        if why or not row.architectures or row.toolkit is None or build.toolkit is None:
            return why
        runtime, versions = load_members().runtime, self._resolution.versions.items()
        brought = {Version(version).major for name, version in versions if runtime.fullmatch(name)}
        if row.toolkit[0] in {build.toolkit[0], *brought}:
            return None
        return f"does not load beside torch {build.name}: {made_with(row, as_build(row, build), self._gpus[0][0])}"

    def _exclusion(self, fault: MissingCode) -> Exclusion | None:
        """Prefer another build of the same torch, beside which the package runs, to an older package; None: neither."""
        for build in (found.build for found in self._resolution.plan.rejected if found.code == "less-preferred"):
            if not self._against(fault.wheel, build):
                message = f"{fault} beside {self._build.backend}; {build.backend} serves it"
                return Exclusion(Reason("other-backend-for-code", message), build=self._build)
        older = self._older(fault)
        if older is None:
            return None
        package = fault.wheel.package
        message = f"{fault}; {package} {older} is the newest that does"
        return Exclusion(Reason("older-for-code", message), constraint=f"{package}<={older}")

    def _older(self, fault: MissingCode) -> Version | None:
        """Find the newest older version that is not too new: it runs, or would beside an older toolkit of torch.

        Whoever drops a GPU or a toolkit is taken not to take it up again.
        """
        wheels, build = self._older_wheels(fault), self._build

        def is_too_old(wheel: Wheel) -> bool:
            """Say whether a version is older than one of the GPUs."""
            row = self._row(wheel, build.backend)
            made = as_build(row, build)
            return any(rules.predates(made, gpu) for rules, gpu in without_code(row, build, self._gpus))

        def is_of_older_toolkit(wheel: Wheel) -> bool:
            toolkit = self._row(wheel, build.backend).toolkit
            return toolkit is not None and build.toolkit is not None and toolkit[0] < build.toolkit[0]

        def has_moved_on(wheel: Wheel) -> bool:
            too_old = is_of_older_toolkit(wheel) or is_too_old(wheel)
            return not too_old and self._against(wheel, build) is not None

        first = bisect_left(wheels, True, key=lambda wheel: not has_moved_on(wheel))
        if first == len(wheels):
            return None
        wheel = wheels[first]
        may_run = is_of_older_toolkit(wheel) and not is_too_old(wheel)
        return wheel.version if may_run or not self._against(wheel, build) else None

    def _older_wheels(self, fault: MissingCode) -> Sequence[Wheel]:
        """A wheel for the target of every older version, the newest first."""
        resolution, session, package = self._resolution, self._session, fault.wheel.package
        tags = set(resolution.target.tags(resolution.choice.python))
        listed: Iterable[Wheel] = ()
        if package in resolution.request.catalog.family and resolution.choice.index:
            listed = family_wheels(session.sources, session.client, self._build.backend.tag, package)
        if not listed and (page := session.client.page(f"{session.default_index}/{package}/")):
            listed = parse_page(page.text, page.content_type, page.url)
        older = {
            wheel.version: wheel
            for wheel in listed
            if wheel.package == package and wheel.version < fault.wheel.version and not tags.isdisjoint(wheel.tags)
        }
        return [older[version] for version in sorted(older, reverse=True) if not version.is_prerelease]


def _gpus_to_serve(resolution: Resolution) -> Iterator[tuple[Rules, Gpu]]:
    """The GPUs that a lock is for, each with the rules of its machine: a machine's own, or those of all it serves."""
    request, kinds = resolution.request, {resolution.choice.build.backend.kind}
    for machine in request.serves or (request.machine,):
        plan = replace(request, machine=machine, serves=()).outcome if request.serves else resolution.plan
        rules = rules_for(machine, request.catalog, kinds)
        served = {run.index for run in plan.gpus if run.how != "none"}
        yield from ((rules, gpu) for gpu in machine.gpus if gpu.index in served)


def _native_wheel(file: LockedFile) -> Wheel | None:
    """The wheel that a resolved file is, where it is for one platform, and not a library that torch brings."""
    try:
        _, version, _, tags = parse_wheel_filename(file.name)
    except InvalidWheelFilename:
        return None
    if load_members().with_torch.fullmatch(file.package) or all(tag.platform == "any" for tag in tags):
        return None
    return Wheel(file.package, version, file.name, file.url, tags, file.sha256)
