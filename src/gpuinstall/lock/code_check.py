"""Whether what was requested has code for the GPUs, and which older version has if the newest has none."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.units import readable
from gpuinstall.lock.code_rows import CodeRows
from gpuinstall.lock.code_rules import (
    CodeSurroundings,
    against,
    beyond_driver,
    certainly_against,
    is_for_single_chips,
    lacking,
)
from gpuinstall.lock.older_code import OlderVersions
from gpuinstall.lock.resolver import MISSING_EXTRAS
from gpuinstall.machine.vendors import rules_for
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.learned.row import misfit, refused_by_driver

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build, Wheel
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine.protocol import Rules
    from gpuinstall.plan import Plan, Rejected
    from gpuinstall.sources.session import Session
    from gpuinstall.wheels.learned.row import LearnedRow

_BY_NAME = (
    "by its name alone: import torch before it, or put the library's folder into LD_LIBRARY_PATH"
)
NO_CODE = "no-code-in-package"


def install_anyway(package: str) -> str:
    """Return the command that installs a package that was refused."""
    return f"gpuinstall run python -m pip install {package}   # installs it anyway, beside torch"


class Exclusion(NamedTuple):
    """What has to give way, and what the next resolution has to keep for it."""

    package: str
    code: str
    fault: str
    """What is wrong, as a statement."""

    constraint: str
    """The versions of the package that it may take."""

    remedy: str = ""
    """What is done about it, as a statement; empty if another build of torch is taken."""

    older: Version | None = None
    """The older version that is taken, which takes back what was done for newer ones."""

    builds: frozenset[str] = frozenset()
    """The builds of torch that it may not take, by name; the constraint then keeps the program as new as it is."""

    program: str = ""
    """The program, with its version, for which something else than its version was changed."""

    libraries: tuple[str, ...] = ()
    """Packages to add."""

    file: Wheel | None = None
    """The file that its makers have beside that of the default index."""

    target: int = 0
    """The position of the target that it was found for."""

    def reason(self, chosen: Build, versions: Mapping[str, str]) -> Reason:
        """Return what is told of it once a build of torch is chosen, and the version of every package."""
        version = versions.get(self.package)
        remedy = self.remedy or f"{self.package} runs beside torch {chosen.name}"
        if self.older and version is None:
            remedy = "what requires it is taken in a version that does without it"
        elif self.older and Version(str(version)).public != self.older.public:
            remedy = f"{self.package} {version} is the newest that the other versions go with"
        return Reason(self.code, f"{self.fault}; {remedy}")

    @property
    def is_exact(self) -> bool:
        """Whether it allows one version alone."""
        return self.older is not None and "==" in self.constraint

    def loosened(self) -> Exclusion:
        """Return it for any version that is older than the one that it allows, with which nothing goes."""
        return self._replace(constraint=f"{self.package}<{self.older}")

    def __str__(self) -> str:
        return f"{self.fault}; {self.remedy or 'other builds of torch are tried'}"


class CodeCheck:
    """The code of what was requested and resolved, against the GPUs that it was resolved for."""

    def __init__(self, resolution: Resolution, session: Session) -> None:
        self._resolution = resolution
        self._build = resolution.choice.build
        self.around = CodeSurroundings(
            gpus=tuple(served_gpus(resolution.request, resolution.plan)),
            versions=resolution.versions,
        )
        self._rows = CodeRows(resolution, session)
        self._older = OlderVersions(resolution, session, self._rows, self.around)

    def exclusions(self, stuck: Collection[str] = ()) -> list[Exclusion]:
        """Return what has to give way for everything that was requested to have code.

        Args:
            stuck: The programs, with their versions, that go with no other build of torch and no added library.

        Raises:
            NoBuildError: if nothing can give way.
        """
        exclusions = []
        for rejected in self.rejected:
            wheel = rejected.candidate
            if not self._excludes(wheel):
                continue
            exclusion = self._exclusion(rejected, stuck)
            if exclusion is None:
                raise NoBuildError(
                    NO_CODE,
                    self._cause(rejected),
                    why=self._older.why_none(wheel),
                    hint=install_anyway(wheel.package),
                )
            exclusions.append(exclusion)
        return exclusions or self._missing_libraries(stuck)

    def _cause(self, rejected: Rejection[Wheel]) -> str:
        """Return why a wheel runs beside no torch: what its driver or its code says holds beside every one of them."""
        wheel = rejected.candidate
        if refused_by_driver(self.rows[wheel], self._build, self.around.gpus):
            return rejected.reason.message
        if not self.rows[wheel].is_whole:
            self._rows.read_to_the_end(wheel)
        row = self.rows[wheel]
        why = misfit(row, self._build, self.around.gpus) if row.is_whole else None
        return f"{wheel.package} {wheel.version} {why}" if why else rejected.reason.message

    def refused_by_driver(self, stuck: Collection[str]) -> Iterator[Rejection[Wheel]]:
        """Yield what was requested and is for a CUDA that a driver does not run.

        Args:
            stuck: The programs, with their versions, that are not to be changed otherwise than to older ones.
        """
        for rejected in self.rejected:
            wheel = rejected.candidate
            is_stuck = f"{wheel.package} {wheel.version.public}" in stuck
            is_refused = beyond_driver(self.rows[wheel], self._build, self.around)
            if is_refused and not is_stuck and wheel.package in self._rows.requested:
                yield rejected

    def placeholder(self) -> str | None:
        """Return what was requested and came to a pre-release that nobody requested; None if nothing did."""
        for requirement in map(parse_requirement, self._resolution.choice.requirements):
            version = self._resolution.versions.get(requirement.name)
            if version is None or not Version(version).is_prerelease:
                continue
            allows_early = requirement.specifier is not None and requirement.specifier.prereleases
            if not allows_early and self._older.has_release(requirement.name):
                return f"{requirement.name} {version}"
        return None

    def remarks(self) -> Iterator[Reason]:
        """Yield warnings of what excludes nothing: what was not read, what has a fallback, what goes badly together."""
        for package, version, extra in self._resolution.document.get(MISSING_EXTRAS, ()):
            # An extra that a dependency names is its authors' affair.
            if package in self._rows.requested:
                yield Reason("no-such-extra", f"{package} {version} has no extra {extra}")
        for message in load_members().clashes(self.around.versions):
            yield Reason("packages-clash", message)
        for rejected in self.rejected:
            yield Reason("part-without-code", rejected.reason.message)
        yield from self._unproven_code()

    def _unproven_code(self) -> Iterator[Reason]:
        """Yield what is not known of code, and what has to be done for it to load."""
        rejected = {one.candidate for one in self.rejected}
        for wheel, row in self.rows.items():
            if not row.architectures and not row.is_whole and wheel not in rejected:
                yield Reason("code-unread", _unread_text(row))
            if row.opens and row.package in load_members().must_open:
                message = f"{row.package} loads {row.opens[0]} {_BY_NAME}"
                yield Reason("opens-libraries", message)

    @property
    def rows(self) -> Mapping[Wheel, LearnedRow]:
        """What the wheels say of themselves; nothing if the lock is for no GPU."""
        return self._rows.by_wheel if self.around.gpus else {}

    @cached_property
    def rejected(self) -> list[Rejection[Wheel]]:
        """The wheels whose native code does not run on one of the GPUs, or not beside torch."""
        rejected = []
        for wheel in self.rows:
            why = against(self.rows[wheel], self._build, self.around)
            # A refusal would rest on a part of its code.
            if why and self._is_in_doubt(wheel) and self._rows.read_to_the_end(wheel):
                why = against(self.rows[wheel], self._build, self.around)
            if why:
                reason = Reason(NO_CODE, f"{wheel.package} {wheel.version} {why}")
                rejected.append(Rejection(wheel, reason))
        return rejected

    def _excludes(self, wheel: Wheel) -> bool:
        """Whether something has to give way for a wheel that was rejected; else it is only warned of."""
        row = self.rows[wheel]
        if self._rows.has_fallback(wheel.package) or self._is_in_doubt(wheel):
            return False
        is_certain = certainly_against(row, self._build, self.around) is not None
        return is_certain or not is_for_single_chips(row)

    def _is_in_doubt(self, wheel: Wheel) -> bool:
        """Whether what was not read of a package, which may do without it, decides whether it runs."""
        row = self.rows[wheel]
        if row.is_whole or self._rows.has_fallback(wheel.package):
            return False
        return certainly_against(row, self._build, self.around) is None

    def _exclusion(
        self,
        rejected: Rejection[Wheel],
        stuck: Collection[str],
    ) -> Exclusion | None:
        """Return another build of torch, beside which the package runs, before an older package; None: neither."""
        wheel = rejected.candidate
        fault = rejected.reason.message
        package = wheel.package
        program = f"{package} {wheel.version.public}"
        as_new = f"{package}>={wheel.version.public}"
        serving = None if program in stuck else self._older.serving(wheel)
        if serving:
            runnable = {build.name for build in self._resolution.plan.runnable}
            return Exclusion(
                package,
                "other-build-for-code",
                fault,
                constraint=as_new,
                builds=frozenset(runnable - {build.name for build in serving}),
                program=program,
            )
        row = self.rows[wheel]
        does_open = package in load_members().must_open
        if does_open and not misfit(row, self._build, self.around.gpus):
            libraries = lacking(row, self.around)
            if libraries:
                return _added(wheel, fault, libraries, "the library that it loads")
        return self._older_exclusion(rejected)

    def _older_exclusion(self, rejected: Rejection[Wheel]) -> Exclusion | None:
        """Return the newest older version that runs here, if there is one."""
        wheel = rejected.candidate
        package = wheel.package
        is_requested = package in self._rows.requested
        older = self._older.newest_running(wheel, like=self.rows[wheel])
        if older is None:
            without = Exclusion(
                package,
                "older-for-code",
                rejected.reason.message,
                constraint=f"{package}<0",
                remedy="what requires it is taken in a version that does without it"
                + self._older.other_name(wheel),
            )
            return None if is_requested else without
        unread = self._older.but_for()
        if unread or self._resolution.request.machine.glibc is None:
            remedy = f"runs here{unread}"
        else:
            remedy = "is the newest that runs here"
        # Of a dependency, what requires it decides which older version can be had.
        operator = "==" if is_requested else "<="
        return Exclusion(
            package,
            "older-for-code",
            rejected.reason.message,
            constraint=f"{package}{operator}{older.public}",
            remedy=f"{package} {older} {remedy}",
            older=older,
        )

    def _missing_libraries(self, stuck: Collection[str]) -> list[Exclusion]:
        """Return the packages to add whose libraries a package is linked to and nothing has."""
        exclusions = []
        for wheel, row in self.rows.items():
            program = f"{wheel.package} {wheel.version.public}"
            if program in stuck or misfit(row, self._build, self.around.gpus):
                continue
            libraries = tuple(filter(self._is_apart, lacking(row, self.around)))
            if libraries:
                fault = f"{program} is linked to libraries that nothing else has"
                exclusions.append(_added(wheel, fault, libraries, "them"))
        return exclusions

    def _is_apart(self, package: str) -> bool:
        """Whether torch does not bring a package of libraries, in packages of their own or in its own folder."""
        members = load_members()
        if not members.with_torch.fullmatch(package):
            return True
        return any(map(members.runtime.fullmatch, self._resolution.versions))


def _added(wheel: Wheel, fault: str, libraries: tuple[str, ...], what: str) -> Exclusion:
    """Return what adds the packages of libraries that a package lacks."""
    provide = "provide" if len(libraries) > 1 else "provides"
    return Exclusion(
        wheel.package,
        "library-added",
        fault,
        constraint=f"{wheel.package}>={wheel.version.public}",
        remedy=f"{' and '.join(libraries)} {provide} {what}",
        program=f"{wheel.package} {wheel.version.public}",
        libraries=libraries,
    )


def _unread_text(row: LearnedRow) -> str:
    package = f"{row.package} {row.version}"
    read = f"the {readable(row.bytes)} that were read of it hold none"
    return f"whether {package} has code for these GPUs is not known: {read}"


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
