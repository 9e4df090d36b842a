"""Extensions: one prebuilt file of each, and the torch that it loads beside, chosen together (rule 13 of the design).

Pure, but for what ``read`` does and what sources are asked. A file and a build are judged first by what names say, for
nothing, then by what the file itself says, read by range. Both may reject, and neither proves: after the installation
the same is looked at on the disk, and a kernel runs.
"""

from __future__ import annotations

from dataclasses import field, replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import Requirement
from packaging.version import Version

from gpuinstall.base.errors import InstallationError, NoBuildError
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.requirement import (
    ParsedRequirement,
    marker_holds,
    parse_requirement,
    requirement_names,
)
from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.catalog.extensions import (
    NAMED,
    Beside,
    Extension,
    ExtensionFile,
    ExtensionSource,
    list_files,
    load_extensions,
    program_source,
)
from gpuinstall.lock.code_check import served_gpus
from gpuinstall.lock.programs import torch_requirements
from gpuinstall.lock.source_builds import build_needs, known_builds, this_site
from gpuinstall.machine.protocol import Rules
from gpuinstall.plan import Rejected
from gpuinstall.wheels.learned.reader import Reader
from gpuinstall.wheels.learned.row import LearnedRow, misfit
from gpuinstall.wheels.learned.store import learned_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from packaging.tags import Tag

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build, Wheel
    from gpuinstall.catalog.extensions import ExtensionFile
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.sources.session import Session
    from gpuinstall.wheels.learned.row import LearnedRow

    Read = Callable[[ExtensionFile, Build], LearnedRow]
    """Reads what a file says of itself; raises InstallationError if it cannot."""
    Pair = tuple[ExtensionFile, Build]
    """A file, and a build of torch beside which it may load."""

MOST_READ = 24
"""How many files of an extension to read, from 0.6 to 16 MB each; the rest is not looked at."""

_STAGES = (
    "other-platform",
    "other-cuda",
    "other-torch",
    "replaced",
    "not-read",
    "torch-unknown",
    "torch-pinned",
    "torch-abi",
    "cuda-of-code",
    "glibc-too-old",
    "no-code",
)
"""What speaks against files; the further down, the closer one came."""

MIRROR = "GPUINSTALL_EXTENSION_INDEX"
"""The variable that names a mirror of Astral's index."""

TORCHES = 3
"""For how many versions of torch files of extensions are tried."""

REASONS = 3
"""How many files that were passed over a refusal names."""


@dataclass(frozen=True)
class Surroundings:
    """What an extension has to run in."""

    builds: Sequence[Build]
    """The builds of torch that run on the GPUs, the best first."""
    gpus: Sequence[tuple[Rules, Gpu]]
    tags: Collection[Tag]
    """Those of the wheels that fit Python and platform."""
    glibc: str | None = None
    """The machine's; None if it is not known."""
    locked: Mapping[str, str] = field(default_factory=dict)
    """The sha256, by name, of the files that a lock holds and that are to stay."""
    constraints: Mapping[Version, Sequence[Requirement]] = field(default_factory=dict)
    """What goes with a release of torch, whatever the files say of themselves."""

    def constraint(self, file: ExtensionFile, build: Build) -> Requirement | None:
        """Return what goes with a build of the package of a file; None if nothing is known of it."""
        for constraint in self.constraints.get(build.torch, ()):
            if constraint.name == file.wheel.package:
                return constraint
        return None


class ExtensionFit(NamedTuple):
    """A file, the build of torch that it loads beside, and what the file says of itself."""

    file: ExtensionFile
    build: Build
    row: LearnedRow

    @property
    def wheel(self) -> Wheel:
        """The file as it is locked."""
        return replace(self.file.wheel, by_address=self.row.metadata_version is not None)


class ExtensionChoice(NamedTuple):
    """The best pair of a file and a build, and what was passed over for it."""

    fit: ExtensionFit | None
    rejected: tuple[Rejection[Pair], ...] = ()
    """The files, the newest first, each with the build that it came closest to."""

    refusal: Reason | None = None
    """Why no file of this extension can fit."""

    @property
    def closest(self) -> list[Rejection[Pair]]:
        """The files for this platform that were passed over, those that came closest first, of each reason one."""
        by_reason: dict[str, Rejection[Pair]] = {}
        for row in sorted(self.rejected, key=_closeness, reverse=True):
            if row.reason.code != "other-platform":
                by_reason.setdefault(row.reason.message, row)
        return list(by_reason.values())


def choose_extension(
    extension: Extension,
    files: Iterable[ExtensionFile],
    here: Surroundings,
    read: Read,
) -> ExtensionChoice:
    """Return the newest version of an extension that has a file for a build that runs here.

    For several builds, the newest torch. A file is read only if its name speaks for it, and no more
    once one fits, nor beyond ``MOST_READ``.
    """
    refusal = _refusal(extension, here)
    if refusal:
        return ExtensionChoice(None, refusal=refusal)
    rejected: dict[str, Rejection[Pair]] = {}
    pairs: list[Pair] = []
    for file, build in product(sorted(files, key=_age, reverse=True), here.builds):
        reason = _reject_by_name(file, build, here)
        if reason:
            _note(rejected, (file, build), reason)
        else:
            pairs.append((file, build))
    read_so_far: set[str] = set()
    for file, build in _preferred(pairs, here):
        read_so_far.add(file.wheel.url)
        if len(read_so_far) > MOST_READ:
            message = f"was not read: {MOST_READ} newer files do not run here"
            _note(rejected, (file, build), Reason("not-read", message))
            break
        try:
            row = read(file, build)
        except InstallationError as error:
            reason = Reason("not-read", f"cannot be read: {error.message}")
        else:
            reason = _reject_by_contents(file, row, build, here)
            if reason is None:
                rejected.pop(file.wheel.url, None)
                return ExtensionChoice(ExtensionFit(file, build, row), tuple(rejected.values()))
        _note(rejected, (file, build), reason)
    return ExtensionChoice(None, tuple(rejected.values()))


def _note(rejected: dict[str, Rejection[Pair]], pair: Pair, reason: Reason) -> None:
    """Keep of each file the reason of the build that it came closest to."""
    url = pair[0].wheel.url
    known = rejected.get(url)
    if known is None or _STAGES.index(known.reason.code) < _STAGES.index(reason.code):
        rejected[url] = Rejection(pair, reason)


def _refusal(extension: Extension, here: Surroundings) -> Reason | None:
    lowest = ComputeCapability.parse(extension.lowest or "0.0")
    for _, gpu in here.gpus:
        if gpu.compute_capability and gpu.compute_capability < lowest:
            need = f"{extension.name} requires compute capability {lowest} or newer"
            return Reason("no-code", f"{need}, and {gpu.label} has {gpu.compute_capability}")
    return None


def _reject_by_name(file: ExtensionFile, build: Build, here: Surroundings) -> Reason | None:
    """Return why a file is not for a build, by what its name says."""
    wheel = file.wheel
    if here.tags and wheel.tags.isdisjoint(here.tags):
        first, *others = sorted(map(str, wheel.tags))
        return Reason("other-platform", f"is for {first}{' and others' if others else ''}")
    if file.cpu and build.toolkit:
        return Reason("other-cuda", "is for the CPU alone")
    if file.cuda and not _has_major(build, file.cuda):
        kind = build.backend.kind.upper()
        return Reason("other-cuda", f"is for {kind} {file.cuda}, not for torch {build.name}")
    reason = _reject_other_torch(file, build, here)
    if reason:
        return reason
    locked = here.locked.get(wheel.filename)
    if locked and wheel.sha256 not in {None, locked}:
        hashes = f"sha256 {locked} is locked, {wheel.sha256} listed"
        return Reason("replaced", f"was replaced under its name: {hashes}")
    return None


def _reject_other_torch(file: ExtensionFile, build: Build, here: Surroundings) -> Reason | None:
    torch = build.torch
    is_for_torch = file.torch in {None, build.minor}
    if file.torch and file.and_newer:
        is_for_torch = torch >= Version(file.torch)
    if not is_for_torch:
        return Reason("other-torch", f"is for torch {file.torch}, not {torch}")
    constraint = here.constraint(file, build)
    if constraint and file.wheel.version not in constraint.specifier:
        return Reason("other-torch", f"does not go with torch {torch}, but {constraint} does")
    return None


def _has_major(build: Build, cuda: str) -> bool:
    major, _, _ = cuda.partition(".")
    return build.toolkit is not None and int(major) == build.toolkit[0]


def _reject_by_contents(
    file: ExtensionFile,
    row: LearnedRow,
    build: Build,
    here: Surroundings,
) -> Reason | None:
    """Return why a file does not run beside a build, by what its METADATA and its code say."""
    reason = _reject_by_torch(file, row, build, here)
    if reason:
        return reason
    if row.toolkit and build.toolkit and row.toolkit[0] != build.toolkit[0]:
        kind = build.backend.kind.upper()
        name = f"its name says {kind} {file.cuda}, and " if file.cuda else ""
        code = f"its code needs {kind} {row.toolkit[0]}, not {build.toolkit[0]}"
        return Reason("cuda-of-code", f"{name}{code}")
    if here.glibc and row.glibc and Version(row.glibc) > Version(here.glibc):
        message = f"its code requires glibc {row.glibc}, and this system has {here.glibc}"
        return Reason("glibc-too-old", message)
    why = misfit(row, build, here.gpus)
    return Reason("no-code", why) if why else None


def _reject_by_torch(
    file: ExtensionFile,
    row: LearnedRow,
    build: Build,
    here: Surroundings,
) -> Reason | None:
    """Return why a file does not load beside a torch: both METADATA and symbols must allow it.

    If the symbols cannot be judged, something has to name torch.
    """
    needs = row.of_torch
    torch = f"torch {build.torch}"
    name = f"its name says torch {file.torch}, and " if file.torch else ""
    pins = [
        pin
        for pin in torch_requirements(row.requires)
        if pin.specifier and "extra" not in str(pin.marker)
    ]
    for pin in pins:
        if not pin.allows(build.torch):
            message = f"{name}its METADATA requires {pin.text}, not {torch}"
            return Reason("torch-pinned", message)
        is_exact = any(clause.operator == "==" for clause in pin.specifier or ())
        if is_exact and needs.kind == "none" and not row.architectures:
            # xformers 0.0.31 for Windows: its libraries have names that Python does not look for.
            message = f"its METADATA requires {pin.text}, and it has no library for it"
            return Reason("no-code", message)
    loads = needs.verdict(build.minor)
    if loads is None and not (file.torch or pins or here.constraint(file, build)):
        return Reason("torch-unknown", f"it shows no code for {torch}")
    if loads is False and needs.kind == "stable":
        oldest = needs.oldest or "newer than is known"
        return Reason("torch-abi", f"{name}its code needs torch {oldest}, not {torch}")
    if loads is False:
        code = f"its code works with {needs.torches}: {torch} lacks a symbol that it uses"
        return Reason("torch-abi", f"{name}{code}")
    return None


def _closeness(row: Rejection[Pair]) -> tuple[int, Version]:
    _, build = row.candidate
    return _STAGES.index(row.reason.code), build.torch


def _age(file: ExtensionFile) -> tuple[bool, Version]:
    version = file.wheel.version
    return not version.is_prerelease, Version(version.public)


def _preferred(pairs: Iterable[Pair], here: Surroundings) -> list[Pair]:
    """Return pairs in order: the newest version, the best build, the first source.

    Then torch's very CUDA, and a name that says a glibc.
    """
    ranks = {build: rank for rank, build in enumerate(here.builds)}

    def pair_key(pair: Pair) -> tuple[object, ...]:
        file, build = pair
        toolkit = ".".join(map(str, build.toolkit or ()))
        is_vague = any(tag.platform.startswith("linux_") for tag in file.wheel.tags)
        return (
            ranks[build],
            file.source.rank,
            file.cuda != toolkit,
            is_vague,
            file.wheel.filename,
        )

    preferred = sorted(pairs, key=pair_key)
    preferred.sort(key=lambda pair: _age(pair[0]), reverse=True)
    return preferred


class Opening(NamedTuple):
    """Requests that are narrowed to a torch with a file of each extension, as a search may begin."""

    requests: list[LockRequest]
    torch: Version | None = None
    """That torch; None if the extensions leave it open."""

    remarks: tuple[Reason, ...] = ()
    """What to say of the choice."""


def openings(requests: Sequence[LockRequest], session: Session) -> Iterator[Opening]:
    """Yield requests that name extensions with a file of each; then for older versions of torch.

    Raises:
        NoBuildError: if there is no file, and what is requested is not built from source.
    """
    remaining = list(requests)
    for _ in range(TORCHES):
        opening = Opening(remaining)
        for extension, requirement in _requested_extensions(remaining, session):
            for position in range(len(remaining)):
                opening = _with_extension(extension, requirement, opening, position, session)
        yield opening
        if opening.torch is None:
            return
        for position, request in enumerate(remaining):
            others = {build.name for build in request.builds if build.torch != opening.torch}
            remaining[position] = _only(request, others)


def _requested_extensions(
    requests: Sequence[LockRequest],
    session: Session,
) -> Iterator[tuple[Extension, ParsedRequirement]]:
    """Yield the extensions that are requested and that a source may have prebuilt files of."""
    for text in requests[0].request.requirements:
        requirement = parse_requirement(text)
        if requirement.url:
            continue
        extension = extension_row(requirement.name, session)
        has_source = any(source.url for source in extension.sources)
        if has_source and _is_served(extension, requests, session):
            yield extension, requirement


def prebuilt_choices(
    request: LockRequest,
    session: Session,
    build: Build | None = None,
) -> list[tuple[Extension, ExtensionChoice]]:
    """Return the prebuilt file of each requested extension, and why not the others.

    Args:
        request: What is requested.
        session: What the sources have said.
        build: The torch that was chosen; None if none was.
    """
    choices = []
    for extension, requirement in _requested_extensions([request], session):
        choice = choose_prebuilt(extension, request, session, requirement)
        if build and choice.fit and choice.fit.build != build:
            # What else was requested took another torch.
            beside = _only(request, {build.name})
            choice = choose_prebuilt(extension, beside, session, requirement)
        choices.append((extension, choice))
    return choices


def _with_extension(
    extension: Extension,
    requirement: ParsedRequirement,
    opening: Opening,
    position: int,
    session: Session,
) -> Opening:
    """Choose a file of one extension for the request at ``position``, and narrow the others to its torch."""
    request = opening.requests[position]
    if isinstance(request.outcome, Rejected):
        return opening
    best = request.choice
    marker = requirement.marker
    if marker and not marker_holds(marker, request.machine, best.python):
        return opening
    choice = choose_prebuilt(extension, request, session, requirement)
    if choice.fit is None:
        check_compiling(extension, choice, request, session)
        return opening
    torch = choice.fit.build.torch
    same_torch = {build.name for build in request.builds if build.torch == torch}
    narrowed = [_only(other, same_torch) for other in opening.requests]
    narrowed[position] = replace(
        _only(request, {choice.fit.build.name}),
        files={**request.files, extension.name: (choice.fit.wheel,)},
        python=best.python,
    )
    remarks = opening.remarks
    if torch < best.build.torch:
        version = choice.fit.wheel.version.public
        message = (
            f"{extension.name} {version} has prebuilt files only up to torch {torch}; "
            f"without it torch {best.build.name} would run here"
        )
        remarks = (*remarks, Reason("extension-wants-torch", message))
    return Opening(narrowed, torch, tuple(dict.fromkeys(remarks)))


def _is_served(
    extension: Extension,
    requests: Sequence[LockRequest],
    session: Session,
) -> bool:
    """Whether a name is an extension's: it has a row, or a source that the user names has compiled files of it."""
    if extension.name in load_extensions().rows:
        return True
    if extension.name in requests[0].catalog.family:
        return False
    places = {Beside.of(build) for one in requests for build in one.builds}
    for source in extension.sources:
        if source.id != NAMED:
            continue
        own = extension._replace(sources=(source,))
        try:
            files = list_files(own, sorted(places), session.sources, session.client).files
        except InstallationError:
            if "{name}" in (source.url or ""):
                continue  # it has pages of other names
            raise
        if any(tag.platform != "any" for file in files for tag in file.wheel.tags):
            return True
    return False


def extension_row(name: str, session: Session) -> Extension:
    """Return the row of a name with the sources that the user names; without a row, these and the default index."""
    table = load_extensions()
    row = table.rows.get(name) or Extension(name, (table.sources["default"],))
    mirror = session.environment.get(MIRROR)
    sources = list(row.sources)
    for position, source in enumerate(sources):
        if mirror and source.id == "astral":
            address = f"{mirror.rstrip('/')}/{{backend}}/{{name}}/"
            sources[position] = source._replace(url=address)
    own = [ExtensionSource(NAMED, rank=4, url=url) for url in session.sources.extension_sources]
    return row._replace(sources=(*sources, *own))


def own_build(
    package: str,
    version: str,
    request: LockRequest,
    session: Session,
) -> Wheel | None:
    """Return the file that a program's makers have of a version and that runs here; None if there is none."""
    source = program_source(package, version, session.environment)
    if source is None:
        return None
    program = Extension(package, (source,))
    same = parse_requirement(f"{package}=={version}")
    fit = choose_prebuilt(program, request, session, same).fit
    return fit.wheel if fit else None


def choose_prebuilt(
    extension: Extension,
    request: LockRequest,
    session: Session,
    requirement: ParsedRequirement | None = None,
) -> ExtensionChoice:
    """Choose a file of an extension by what the names of all files say, and the nearest files themselves.

    A file of the version that is to stay comes first.
    """
    plan = request.plan
    builds = plan.runnable or (plan.choice.build,)
    constraints = {
        build.torch: list(map(Requirement, request.catalog.constraints(build.torch)))
        for build in builds
    }
    here = Surroundings(
        builds=builds,
        gpus=tuple(served_gpus(request, plan)),
        tags=frozenset(request.target.tags(plan.choice.python)),
        glibc=request.machine.glibc,
        locked=request.locked,
        constraints=constraints,
    )
    sources = replace(session.sources, default_index=session.default_index)
    reader = Reader(sources, session.client, learned_store(), session.reporter)

    def read(file: ExtensionFile, build: Build) -> LearnedRow:
        return reader.companion(file.wheel, build.backend, f"{build.os}-{build.arch}")

    locked = request.pins.preferred.get(extension.name)
    if locked:
        version = locked.partition("+")[0]
        files = _list_files(extension, requirement, here, session)
        same = (file for file in files if file.wheel.version.public == version)
        choice = choose_extension(extension, same, here, read)
        if choice.fit or choice.refusal:
            return choice
    files = _list_files(extension, requirement, here, session)
    return choose_extension(extension, files, here, read)


def _list_files(
    extension: Extension,
    requirement: ParsedRequirement | None,
    here: Surroundings,
    session: Session,
) -> Iterator[ExtensionFile]:
    """Yield the files of an extension that a requirement allows, with the hashes that a lock has of them."""
    places = [Beside.of(build) for build in here.builds]
    sources = replace(session.sources, default_index=session.default_index)
    listing = list_files(extension, places, sources, session.client)
    for host in listing.silent:
        session.reporter.warn(f"{host} is unreachable: its files of {extension.name} are not known")
    specifier = requirement.specifier if requirement else None
    files = list(listing.files)
    if not (specifier and specifier.prereleases):
        final = [file for file in files if not file.wheel.version.is_prerelease]
        files = final or files
    for file in files:
        wheel = file.wheel
        if requirement is None or requirement.allows(wheel.version):
            sha256 = wheel.sha256 or here.locked.get(wheel.filename)
            wheel = replace(wheel, sha256=sha256)
            yield file._replace(wheel=wheel)


def file_beside(package: str, resolution: Resolution, session: Session) -> Wheel | None:
    """Return the prebuilt file of an extension that loads beside the torch of a resolution; None if there is none."""
    alone = _only(resolution.request, {resolution.choice.build.name})
    fit = choose_prebuilt(extension_row(package, session), alone, session).fit
    return fit.wheel if fit else None


def optional_extensions(resolution: Resolution) -> str | None:
    """Return, in one line, which extensions the requested programs can use and do without; None if there are none."""
    if resolution.choice.build.toolkit is None:
        return None
    requested = requirement_names(resolution.request.request.requirements)
    rows = [
        row
        for row in load_extensions().rows.values()
        if row.optional_for & requested and row.name not in resolution.versions
    ]
    if not rows:
        return None
    users = requested & frozenset().union(*(row.optional_for for row in rows))
    names = [row.name for row in rows]
    command = f"gpuinstall plan --live {' '.join(names)}"
    return f"{', '.join(sorted(users))} can use {', '.join(names)}; what fits here: {command}"


def check_compiling(
    extension: Extension,
    choice: ExtensionChoice,
    request: LockRequest,
    session: Session,
) -> None:
    """Raise NoBuildError, with the command that compiles it, for an extension without a file that fits."""
    name = extension.name
    known = known_builds().get(name)
    if choice.refusal:
        raise NoBuildError(
            choice.refusal.code,
            choice.refusal.message,
            hint=f"Leave {name} out",
        )
    if known and not known.compiles:
        return
    needs = ""
    if known:
        torch = str(request.choice.build.torch)
        site = this_site(
            request.choice,
            {"torch": torch},
            request.machine,
            session,
        )
        needs = ", ".join(build_needs(known, site))
    hint = (
        f"gpuinstall run python -m pip install --no-build-isolation {name}   "
        f"# compiles it{f', {needs}' if needs else ''}, once torch is installed"
    )
    if extension.unclaimed:
        hint = f"Leave {name} out: its name on the default index is nobody's"
    raise NoBuildError(
        "no-prebuilt-extension",
        f"no prebuilt file of {name} runs here",
        why=_why_none(extension, choice),
        hint=hint,
    )


def _why_none(extension: Extension, choice: ExtensionChoice) -> str:
    """Return what is against the files that came closest, or that no source has any."""
    rows = choice.closest
    if not rows:
        names = [source.id for source in extension.sources]
        return f"there is no file of it from {' or '.join(names) or 'any source'}"
    lines = [f"{row.candidate[0].wheel.filename} {row.reason.message}" for row in rows[:REASONS]]
    more = len(rows) - REASONS
    if more > 0:
        lines.append(f"{more} other reasons: gpuinstall plan --live --all {extension.name}")
    return "\n".join(lines)


def _only(request: LockRequest, names: Collection[str]) -> LockRequest:
    """Return the same request with these builds alone."""
    catalog = request.catalog.without(
        lambda build: not (build.absent or build.name in names),
        "without-extension",
    )
    return replace(request, catalog=catalog)
