"""Whether every package beside torch has code for the GPUs, and which older version has if the newest has none."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.text import some
from gpuinstall.base.units import readable
from gpuinstall.lock.code_roles import PackageRoles
from gpuinstall.lock.code_rows import CodeRows
from gpuinstall.lock.code_rules import (
    CodeSurroundings,
    against,
    for_another_system,
    lacking,
)
from gpuinstall.lock.extras import MissingExtras, missing_extras, older_with_extras
from gpuinstall.lock.library_majors import OtherMajor, other_majors
from gpuinstall.lock.older_code import OlderVersions
from gpuinstall.machine.vendors import rules_for
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.imports import Loading
from gpuinstall.wheels.learned.row import hint_against, misfit, refused_by_driver, without_code

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
_MAY_LOAD = {
    Loading.REQUIRED: "{} needs it",
    Loading.OPTIONAL: "{} goes on without it",
    Loading.LATER: "importing {} does not load it",
    Loading.UNKNOWN: "whether {} needs it is not known",
}
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
    """The program, with its version, that another build of torch is taken for."""

    libraries: tuple[str, ...] = ()
    """Packages to add."""

    kept: tuple[str, ...] = ()
    """The constraints that keep what was requested as new as it is, where a part of it gives way."""

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
    """The code of what was resolved, against the GPUs that it was resolved for."""

    def __init__(self, resolution: Resolution, session: Session) -> None:
        self._resolution = resolution
        self._session = session
        self._build = resolution.choice.build
        self.around = CodeSurroundings(
            gpus=tuple(served_gpus(resolution.request, resolution.plan)),
            glibc=resolution.request.machine.glibc,
            versions=resolution.versions,
        )
        self._read_rows = CodeRows(resolution, session)
        self.roles = PackageRoles(resolution, self._read_rows)
        self._older = OlderVersions(resolution, session, self._read_rows, self.around)

    def exclusions(self, stuck: Collection[str] = ()) -> list[Exclusion]:
        """Return what has to give way for every package to have code.

        Args:
            stuck: The programs, with their versions, that go with no other build of torch.

        Raises:
            NoBuildError: if nothing can give way.
        """
        excluded = [wheel for wheel in self.rejected if self._excludes(wheel)]
        exclusions = [self._exclusion(wheel, stuck) for wheel in excluded]
        helping = list(filter(None, exclusions))
        certain = [wheel for wheel in excluded if self._is_certain(wheel.candidate)]
        if certain and not helping:
            raise NoBuildError(
                NO_CODE,
                certain[0].reason.message,
                why=self._older.why_none(certain[0].candidate),
                hint=install_anyway(certain[0].candidate.package),
            )
        return (
            helping
            or self._missing_libraries(stuck)
            or self._older_libraries(stuck)
            or self._missing_extras()
            or self._colliding_twins(stuck)
        )

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

    def remarks(self) -> list[Reason]:
        """Return warnings of parts that a program may do without on these GPUs, and of what opens libraries itself."""
        reasons = [Reason("no-such-extra", str(missing)) for missing in self._lacking_extras]
        reasons += self._files_written_twice()
        reasons += self._missing_parts()
        for found in self._other_majors:
            message = f"{found}: this fails unless the system has {found.library}"
            reasons.append(Reason("other-library", message))
        reasons += self._parts_without_code()
        reasons += self._unproven_code()
        return reasons

    def _files_written_twice(self) -> Iterator[Reason]:
        """Yield the packages that write the same files."""
        if self.around.gpus:
            for pair in self._read_rows.same_files():
                yield Reason("same-files", str(pair))
        if self._twins:
            names = some([name for name, _ in self._twins])
            message = f"{names} and what torch has for its CUDA write the same files"
            yield Reason("same-files", f"{message}: the one that is installed last counts")

    def _parts_without_code(self) -> Iterator[Reason]:
        """Yield the parts that do not run here, with whether their packages need them."""
        for wheel in self.rejected:
            message = wheel.reason.message
            package = wheel.candidate.package
            if self.roles.decides(package):
                loading = self.rows[wheel.candidate].loading
                message += f"; {_MAY_LOAD[Loading(loading)].format(package)}"
            twin = self._older.twin_text(wheel.candidate)
            if twin:
                message += f"; {twin}"
            yield Reason("part-without-code", message)

    def _unproven_code(self) -> Iterator[Reason]:
        """Yield what is not known of code, and what has to be done for it to load."""
        rejected = {one.candidate for one in self.rejected}
        for wheel, row in self.rows.items():
            if not row.architectures and not row.is_whole and wheel not in rejected:
                yield Reason("code-unread", _unread_text(row))
            hint = hint_against(row, self._build, self.around.gpus)
            if hint and row.package in self.roles.requested:
                yield Reason("driver-may-be-too-old", hint)
            if row.opens and row.package in load_members().must_open:
                message = f"{row.package} loads {row.opens[0]} {_BY_NAME}"
                yield Reason("opens-libraries", message)

    def _missing_parts(self) -> Iterator[Reason]:
        """Yield that an sdist may need what is named after it and torch's CUDA: its build decides what it requires."""
        toolkit = self._build.toolkit
        if toolkit is None or not self.around.gpus:
            return
        for file in self._resolution.files:
            part = f"{file.package}-cu{toolkit[0]}"
            is_wheel = file.url.endswith(".whl")
            if is_wheel or file.package not in self.roles.requested or part in self.around.versions:
                continue
            version = self.around.versions.get(file.package)
            if any(wheel.version.public == version for wheel in self._older.listed(part)):
                need = f"may need {part} {version}, which its metadata does not require"
                message = f"{file.package} {version} is built from its sdist and {need}"
                yield Reason("part-not-required", message)

    @property
    def rows(self) -> Mapping[Wheel, LearnedRow]:
        """What the wheels with native code say of themselves; nothing if the lock is for no GPU."""
        return self._read_rows.by_wheel if self.around.gpus else {}

    @cached_property
    def rejected(self) -> list[Rejection[Wheel]]:
        """The wheels whose native code does not run on one of the GPUs, or not beside torch."""
        rejected = []
        for wheel in self.rows:
            why = against(self.rows[wheel], self._build, self.around)
            if why and self._is_read_to_the_end(wheel):
                why = against(self.rows[wheel], self._build, self.around)
            if why:
                package = f"{wheel.package} {wheel.version}"
                if not self._may_be_needed(wheel):
                    # Another one may have what this one lacks.
                    package = f"a part of {package}"
                reason = Reason(NO_CODE, f"{package} {why}")
                rejected.append(Rejection(wheel, reason))
        return rejected

    def _is_read_to_the_end(self, wheel: Wheel) -> bool:
        """Read a library to its end if a refusal would rest on a part of it; return whether that gave a new row."""
        row = self.rows[wheel]
        may_exclude = self.roles.decides(wheel.package) and row.loading == Loading.REQUIRED.value
        if row.is_whole or not may_exclude or not self._is_lacking(row):
            return False
        return self._read_rows.read_to_the_end(wheel)

    def _excludes(self, rejected: Rejection[Wheel]) -> bool:
        """Whether something has to give way for a wheel; a library that its package does without only warns."""
        wheel = rejected.candidate
        if self._is_unknown(self.rows[wheel]):
            return False
        return self.roles.decides(wheel.package) and self._may_be_needed(wheel)

    def _may_be_needed(self, wheel: Wheel) -> bool:
        """Whether the import of a package may fail without its native code."""
        return Loading(self.rows[wheel].loading) in {Loading.REQUIRED, Loading.UNKNOWN}

    def _is_certain(self, wheel: Wheel) -> bool:
        """Whether a package cannot work with what was read of it."""
        row = self.rows[wheel]
        members = load_members()
        if row.package in members.stated or for_another_system(row, self._build, self.around):
            return True
        is_named = row.package in self.roles.requested or members.names(row.package)
        if not is_named and row.package in self.roles.pinned:
            return False
        is_lacking = self._is_lacking(row)
        if row.package not in self.roles.requested and self._older.twin_text(wheel):
            # The build of an sdist decides which of the two it requires.
            return False
        is_read = not is_lacking or (row.is_whole and not row.unlinked)
        return is_read and row.loading == Loading.REQUIRED.value

    def _is_unknown(self, row: LearnedRow) -> bool:
        """Whether the part that was read of a package has no code for a GPU, and the rest may have."""
        return not row.is_whole and self._is_lacking(row)

    def _is_lacking(self, row: LearnedRow) -> bool:
        """Whether it is its code alone that a GPU has none of: the driver runs its CUDA."""
        if refused_by_driver(row, self._build, self.around.gpus):
            return False
        return bool(without_code(row, self._build, self.around.gpus))

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
        is_certain = self._is_certain(wheel)
        if program in stuck and not is_certain:
            return None
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
        libraries = self._helping_libraries(self.rows[wheel])
        if libraries:
            provide = "provide" if len(libraries) > 1 else "provides"
            return Exclusion(
                package,
                "library-added",
                fault,
                constraint=as_new,
                remedy=f"{' and '.join(libraries)} {provide} the library that it loads",
                libraries=libraries,
            )
        is_part = package in self.roles.pinned and package not in self.roles.requested
        if (
            is_part
            and not is_certain
            and not misfit(self.rows[wheel], self._build, self.around.gpus)
        ):
            return None
        exclusion = self._older_exclusion(rejected)
        # What is not certain is taken back where nothing goes with it.
        return exclusion and exclusion._replace(program="" if is_certain else program)

    def _older_exclusion(self, rejected: Rejection[Wheel]) -> Exclusion | None:
        """Return the newest older version that runs here, if there is one."""
        wheel = rejected.candidate
        package = wheel.package
        older = self._older.newest_running(wheel)
        if older is None:
            return None
        unread = self._older.but_for()
        if unread or self._resolution.request.machine.glibc is None:
            remedy = f"runs here{unread}"
        else:
            remedy = "is the newest that runs here"
        # Of a dependency, what requires it decides which older version can be had.
        operator = "==" if package in self.roles.requested else "<="
        return Exclusion(
            package,
            "older-for-code",
            rejected.reason.message,
            constraint=f"{package}{operator}{older.public}",
            remedy=f"{package} {older} {remedy}",
            older=older,
        )

    @property
    def _kept(self) -> tuple[str, ...]:
        """The constraints that keep what was requested as new as it is."""
        names = self.roles.requested - self._resolution.request.catalog.family
        versions = self._resolution.versions
        kept = []
        for name in names & versions.keys():
            version = versions[name].partition("+")[0]
            kept.append(f"{name}>={version}")
        return tuple(sorted(kept))

    def _helping_libraries(self, row: LearnedRow) -> tuple[str, ...]:
        """Return the missing packages with which a package runs that opens their libraries; empty if it does not."""
        if row.package not in load_members().must_open or misfit(
            row, self._build, self.around.gpus
        ):
            return ()
        return lacking(row, self.around)

    def _missing_libraries(self, stuck: Collection[str]) -> list[Exclusion]:
        """Return the packages to add whose libraries a package is linked to and nothing has."""
        exclusions = []
        for wheel, row in self.rows.items():
            program = f"{wheel.package} {wheel.version.public}"
            is_needed = row.loading == Loading.REQUIRED.value and self.roles.decides(wheel.package)
            if not is_needed or program in stuck:
                continue
            libraries = tuple(filter(self._is_apart, lacking(row, self.around)))
            if not libraries:
                continue
            provide = "provide" if len(libraries) > 1 else "provides"
            exclusion = Exclusion(
                wheel.package,
                "library-added",
                f"{program} is linked to libraries that nothing else has",
                remedy=f"{' and '.join(libraries)} {provide} them",
                constraint=f"{wheel.package}>={wheel.version.public}",
                program=program,
                libraries=libraries,
            )
            exclusions.append(exclusion)
        return exclusions

    def _older_libraries(self, stuck: Collection[str]) -> list[Exclusion]:
        """Return the older versions of libraries that have the major version that a package is linked to."""
        exclusions = []
        for found in self._other_majors:
            package = found.provider.package
            program = f"{package} {found.provider.version.public}"
            if not found.is_linked or program in stuck:
                continue
            older = self._older.newest_having(found.provider, found.library)
            if older is None:
                continue
            exclusion = Exclusion(
                package,
                "older-library",
                str(found),
                constraint=f"{package}<={older}",
                remedy=f"{package} {older} has it",
                older=older,
                program=program,
                kept=self._kept,
            )
            exclusions.append(exclusion)
        return exclusions

    @cached_property
    def _other_majors(self) -> list[OtherMajor]:
        """The libraries that the lock has in another major version than a package of it loads."""
        toolkit = self._build.toolkit
        rows = self._read_rows
        found = other_majors(self.rows, rows.locked, toolkit and toolkit[0], rows.names_in)
        return list(found)

    def _missing_extras(self) -> list[Exclusion]:
        """Return the newest older versions that have the extras which were requested and these lack."""
        exclusions = []
        for missing in self._lacking_extras:
            listed = self._older.listed(missing.package)
            older = older_with_extras(missing, listed, self._session.client)
            if older is None:
                continue
            exclusion = Exclusion(
                missing.package,
                "older-for-extra",
                str(missing),
                constraint=f"{missing.package}<={older}",
                remedy=f"{missing.package} {older} has",
                older=older,
            )
            exclusions.append(exclusion)
        return exclusions

    @cached_property
    def _lacking_extras(self) -> list[MissingExtras]:
        """The requested extras that the versions of the resolution lack."""
        resolution = self._resolution
        return missing_extras(resolution.choice.requirements, resolution.document)

    def _colliding_twins(self, stuck: Collection[str]) -> list[Exclusion]:
        """Return the other builds of torch if two packages write the same files, one for each CUDA."""
        toolkit = self._build.toolkit
        for name, twin in self._twins:
            program = f"{name} {self._resolution.versions[name]}"
            if program in stuck or toolkit is None:
                continue
            runnable = self._resolution.plan.runnable
            same = set()
            for build in runnable:
                if build.toolkit and build.toolkit[0] == toolkit[0]:
                    same.add(build.name)
            if len(same) == len(runnable):
                continue
            exclusion = Exclusion(
                name,
                "other-build-for-code",
                f"{name} and {twin} write the same files",
                remedy="torch for another CUDA is taken",
                constraint=f"{name}>=0",
                builds=frozenset(same),
                program=program,
                kept=self._kept,
            )
            return [exclusion]
        return []

    @cached_property
    def _twins(self) -> list[tuple[str, str]]:
        """The libraries for another CUDA than torch's, each with the one that torch has of it."""
        versions = self._resolution.versions
        toolkit = self._build.toolkit
        twins = []
        for name in versions:
            stem, _, major = name.rpartition("-cu")
            twin = f"{stem}-cu{toolkit[0]}" if toolkit else name
            is_other = major.isdecimal() and name != twin and twin in versions
            if is_other and load_members().with_torch.fullmatch(name):
                twins.append((name, twin))
        return twins

    def _is_apart(self, package: str) -> bool:
        """Whether torch does not bring a package of libraries, in packages of their own or in its own folder."""
        members = load_members()
        if not members.with_torch.fullmatch(package):
            return True
        return any(map(members.runtime.fullmatch, self._resolution.versions))


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
