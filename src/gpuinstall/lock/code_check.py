"""What is wrong with what was resolved, by the code of its wheels, which no METADATA tells.

What was requested, and what the catalogue calls its core, is read, each wheel once. Of a dependency the CUDA major alone
counts, by its name, its METADATA or the catalogue, so that nobody waits for its wheel. What is certain refuses, what is
unknown warns.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from gpuinstall.base.errors import InstallationError, NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import parse_requirement, requirement_names
from gpuinstall.base.threads import side_by_side
from gpuinstall.catalog import Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.catalog.listing import family_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.lock.programs import prereleases
from gpuinstall.lock.resolver import MISSING_EXTRAS
from gpuinstall.lock.source_builds import SDIST, source_builds
from gpuinstall.lock.target import best_by_tags
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.machine.vendors import rules_for
from gpuinstall.plan.companions import PAIRED
from gpuinstall.wheels.judging import (
    judge_file,
    judge_reading,
    misfit_beside,
    missing_libraries,
)
from gpuinstall.wheels.learned.reader import Reader
from gpuinstall.wheels.learned.row import Depth
from gpuinstall.wheels.learned.store import learned_store
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import extra_requirements

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.base.machine import Gpu
    from gpuinstall.base.versions import Backend
    from gpuinstall.catalog import Build
    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.lock.request.lock_request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine.protocol import Rules
    from gpuinstall.plan import Plan, Rejected
    from gpuinstall.sources.session import Session
    from gpuinstall.wheels.judging import Judgement
    from gpuinstall.wheels.learned.row import LearnedRow

NO_CODE = "no-code-in-package"
PART = "part-without-code"
"""The code of what does not run and excludes nothing: what has a fallback, or was read in part."""
WOULD_BE_COMPILED = "would-be-compiled"

_BY_NAME = "by its name alone: import torch before it, or put the library's folder into LD_LIBRARY_PATH"

WHEELS_AT_ONCE = 32
"""How many wheels of a lock are looked at side by side: of nearly all of them METADATA alone, a way to an index and back."""


class Fault(NamedTuple):
    """Something that is wrong with a package of a resolution."""

    code: str
    check: CodeCheck
    package: str
    message: str
    wheel: Wheel | None = None

    @property
    def is_certain(self) -> bool:
        """Whether the package cannot stay as it is."""
        return self.code == NO_CODE

    @property
    def is_of_request(self) -> bool:
        """Whether the package was requested."""
        return self.package in self.check.requested

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells whether it is the same as one that was found before a remedy."""
        return self.code, self.package, self.message

    def refusal(self, message: str, why: str) -> Conflict:
        """Return it as what refuses the requests."""
        command = f"gpuinstall run python -m pip install {self.package}"
        hint = f"{command}   # installs it anyway, beside torch"
        return Conflict(NoBuildError(NO_CODE, message, why=why, hint=hint))


class CodeCheck:
    """The code of a resolution, against the GPUs that it is for."""

    def __init__(
        self,
        resolution: Resolution,
        session: Session,
    ) -> None:
        self.resolution = resolution
        self.session = session
        self.build = resolution.choice.build
        self.platform = f"{self.build.os}-{self.build.arch}"
        self._named = requirement_names(resolution.choice.requirements)
        self._versions = resolution.versions
        self.gpus = tuple(served_gpus(resolution.request, resolution.plan))
        self._reader = Reader(
            session.sources,
            session.client,
            learned_store(),
            session.reporter,
            session.reading,
            session.rows,
        )

    @cached_property
    def requested(self) -> set[str]:
        """The packages that were requested, with those that a requested extra brings."""
        requested = {*self._named}
        requirements = map(parse_requirement, self.resolution.choice.requirements)
        extras = {one.name: one.extra_names for one in requirements if one.extras}
        for file in self.resolution.files:
            wheel = _wheel(file) if file.package in extras else None
            if wheel:
                row = self._metadata_row(wheel)
                added = extra_requirements(
                    row.requires, extras[wheel.package], self.platform
                )
                requested |= requirement_names(added)
        return requested

    def judged(
        self,
        wheel: Wheel,
        build: Build | None = None,
        depths: Sequence[Depth] = tuple(Depth),
    ) -> tuple[LearnedRow, Judgement]:
        """Return what a wheel says and what that means beside a build of torch: that of the resolution, if no other is given.

        Raises:
            InstallationError: if it cannot be read.
        """
        backend = (build or self.build).backend
        if self._decides(wheel.package):
            # What refuses nothing is read in part: that is enough for a warning.
            deepest = Depth.PART if self._has_fallback(wheel.package) else depths[-1]
            depths = [depth for depth in depths if depth <= deepest]
            read = partial(self.row, wheel, backend)
            return judge_file(read, self.gpus, depths)
        row = self._metadata_row(wheel)
        return row, judge_reading(row, self.gpus)

    def misfit(
        self,
        row: LearnedRow,
        judgement: Judgement,
        build: Build,
    ) -> str | None:
        """Return why a package does not run beside a build of torch; None if nothing certain speaks against it."""
        return misfit_beside(row, judgement, build, self._versions)

    def missing_libraries(self, row: LearnedRow) -> list[str]:
        """Return the packages, none of them in the lock, with the libraries that a package opens and does nothing without."""
        return missing_libraries(row, self._versions)

    @cached_property
    def faults(self) -> dict[Wheel, Fault]:
        """The wheels whose code does not run on one of the GPUs, or not beside torch."""
        faults = {}
        for wheel, (row, judgement) in self.judgements.items():
            why = self.misfit(row, judgement, self.build)
            excludes = why is not None and not self._has_fallback(wheel.package)
            if why or judgement.doubt:
                message = f"{wheel.package} {wheel.version} {why or judgement.doubt}"
                code = NO_CODE if excludes else PART
                faults[wheel] = Fault(code, self, wheel.package, message, wheel)
        return faults

    def _has_fallback(self, package: str) -> bool:
        """Whether what was requested is known to do without a package."""
        extension = load_extensions().rows.get(package)
        if extension is None or package in self.requested:
            return False
        return bool(extension.optional_for & {*self.requested, "*"})

    @property
    def prereleases(self) -> frozenset[str]:
        """What was requested and came to a pre-release."""
        return prereleases(self._versions) & self.requested

    def remarks(self) -> Iterator[Reason]:
        """Yield warnings of what excludes nothing: what was not read, what has a fallback, what goes badly together."""
        for package, version, extra in self.resolution.document.get(MISSING_EXTRAS, ()):
            # An extra that a dependency names is its authors' affair.
            if package in self.requested:
                yield Reason(
                    "no-such-extra", f"{package} {version} has no extra {extra}"
                )
        for message in load_members().clashes(self._versions):
            yield Reason("packages-clash", message)
        for fault in self.faults.values():
            yield Reason(PART, fault.message)
        for row, _ in self.judgements.values():
            if row.opens and row.package in load_members().must_open:
                message = f"{row.package} loads {row.opens[0]} {_BY_NAME}"
                yield Reason("opens-libraries", message)

    @cached_property
    def judgements(self) -> dict[Wheel, tuple[LearnedRow, Judgement]]:
        """What the wheels say, but for those that torch's build answers for, and what it means; none of a lock for the CPU."""
        answered = {"torch"} if self.build.learned else PAIRED
        is_for_cpu = not self.gpus and self.build.backend.kind != "cuda"
        if is_for_cpu or self._named <= answered:
            return {}
        # A torch that is not in the catalogue was read before it was chosen.
        files = [
            file
            for file in self.resolution.files
            if file.package not in {*answered, "torch"}
        ]
        # A lock has several wheels of a package for newer glibcs, of which one is installed.
        wheels = best_by_tags(
            filter(None, map(_wheel, files)),
            self.resolution.target.tags(self.resolution.choice.python),
            lambda wheel: (wheel.package, wheel.tags),
        )
        answers = side_by_side(self._judge, wheels, WHEELS_AT_ONCE)
        return {
            wheel: answer
            for wheel, answer in zip(wheels, answers, strict=True)
            if answer
        }

    def _judge(self, wheel: Wheel) -> tuple[LearnedRow, Judgement] | None:
        """Return what a wheel says and means; None if it has no code of its own, or cannot be read."""
        is_for_any = all(tag.platform == "any" for tag in wheel.tags)
        is_answered_for = load_members().with_torch.fullmatch(wheel.package)
        # The name of a file may say any platform, and have libraries for one.
        if (is_for_any or is_answered_for) and wheel.package not in self.requested:
            return None
        try:
            if not is_for_any or self._reader.may_have_code(wheel):
                return self.judged(wheel)
        except InstallationError as error:
            package = f"{wheel.package} {wheel.version}"
            message = f"could not read whether {package} has code for these GPUs: {error.message}"
            self.session.reporter.warn(message)
        return None

    def row(
        self,
        wheel: Wheel,
        backend: Backend,
        depth: Depth,
    ) -> LearnedRow:
        """Return what a wheel says, of this resolution or not.

        Args:
            wheel: The wheel.
            backend: The torch that it is judged beside.
            depth: How much of it is read.

        Raises:
            InstallationError: if it cannot be read.
        """
        return self._reader.companion(wheel, backend, self.platform, depth)

    def _metadata_row(self, wheel: Wheel) -> LearnedRow:
        return self.row(wheel, self.build.backend, Depth.METADATA)

    def _decides(self, package: str) -> bool:
        """Whether a package was requested, or is what the catalogue calls the core of programs."""
        members = load_members()
        is_core = members.names(package) or package in members.stated
        return package in self.requested or is_core

    def usable_wheels(self, package: str) -> list[Wheel]:
        """Return the wheels of a package that its Python and platform can install, of torch's own index if that has it."""
        resolution, session = self.resolution, self.session
        wheels: tuple[Wheel, ...] = ()
        if package in resolution.request.catalog.family and resolution.choice.index:
            backend = self.build.backend.tag
            wheels = family_wheels(session.sources, session.client, backend, package)
        page = None if wheels else session.page_of(package)
        if page:
            wheels = parse_page(page)
        tags = set(resolution.target.tags(resolution.choice.python))
        return [
            wheel for wheel in wheels if wheel.package == package and tags & wheel.tags
        ]

    @property
    def is_spent(self) -> bool:
        """Whether as much of wheels was read as is read for one lock."""
        return self._reader.is_spent


def _wheel(file: LockedFile) -> Wheel | None:
    """Return a resolved file as a wheel; None if it is none."""
    with suppress(InvalidWheelFilename):
        _, version, _, tags = parse_wheel_filename(file.name)
        return Wheel(file.package, version, file.name, file.url, tags, file.sha256)
    return None


def code_faults(check: CodeCheck) -> Iterator[Fault]:
    """Yield what does not run on a GPU, or not beside torch."""
    for fault in check.faults.values():
        if fault.is_certain:
            yield fault


def compiled_dependencies(check: CodeCheck) -> Iterator[Fault]:
    """Yield extensions that other packages require, and that would be compiled."""
    for build in source_builds(check.resolution.document):
        if build.package in load_extensions().rows and build.origin == SDIST:
            yield Fault(
                WOULD_BE_COMPILED, check, build.package, f"{build} would be compiled"
            )


FAULT_RULES = (code_faults, compiled_dependencies)
"""The search meets every fault of the first before any of the next."""


def served_gpus(
    request: LockRequest,
    plan: Plan,
) -> Iterator[tuple[Rules, Gpu]]:
    """Yield the GPUs that a lock is for, each with the rules of its machine: a machine's own, or those of all it serves."""
    kinds = {plan.choice.build.backend.kind}
    for machine in request.serves or (request.machine,):
        outcome: Plan | Rejected = plan
        if request.serves:
            outcome = replace(request, machine=machine, serves=()).outcome
        rules = rules_for(machine, request.catalog, kinds)
        served = {run.index for run in outcome.gpus if run.how != "none"}
        for gpu in machine.gpus:
            if gpu.index in served:
                yield rules, gpu
