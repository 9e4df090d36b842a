"""Select a prebuilt file for each extension, and a compatible torch.

File names are checked first, then file contents, with range requests. Both checks can
only reject a file. After the installation, gpuinstall checks the file again and runs a
kernel.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import groupby

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuinstall.base.advice import Advice, Hint, make_change, make_command
from gpuinstall.base.errors import InstallationError, NoBuildError
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.requirement import COMMAND_LINE, Requirement
from gpuinstall.base.text import join_names
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import ComputeCapability, parse_public_version
from gpuinstall.catalog import Build, Wheel
from gpuinstall.catalog.extensions import (
    Extension,
    ExtensionFile,
    TorchKey,
    list_files,
    load_extensions,
)
from gpuinstall.lock.request.lock_sources import find_extension
from gpuinstall.lock.resolve.question import (
    Question,
    suggest_request_without,
)
from gpuinstall.lock.uv.builds import (
    COMPILE,
    CXX_20_SINCE,
    KnownBuild,
    format_build_needs,
    load_known_builds,
    needs_older_torch,
)
from gpuinstall.sources.addresses import Addresses
from gpuinstall.sources.session import Session
from gpuinstall.wheels.compatibility import BuildVerdict, can_load_with
from gpuinstall.wheels.inspector import Context, Inspector
from gpuinstall.wheels.learned.reader import make_reader
from gpuinstall.wheels.learned.row import Depth, WheelRow

Read = Callable[
    [Wheel, Build, Mapping[str, str], Depth], Generator[WheelRow, None, None]
]
"""A function that yields facts about a wheel or raises InstallationError."""
Pair = tuple[ExtensionFile, Build]
"""An extension file and a torch build that may load it."""

MAX_READ = 24
"""Maximum number of files to read per extension, from 0.6 to 16 MB each."""

TORCHES = 3
"""Maximum number of torch versions for which files are selected."""

REASONS = 3
"""Maximum number of rejected files that an error lists."""


_OTHER_PLATFORM = "other-platform"


class CompatibleFile(Value):
    """An extension file with a compatible torch build and other facts."""

    file: ExtensionFile
    build: Build
    row: WheelRow

    @property
    def wheel(self) -> Wheel:
        """The wheel to write into the lock file."""
        return replace(
            self.file.wheel, by_address=self.row.metadata_version is not None
        )


class ExtensionChoice(Value):
    """The best extension file with its torch build, and the rejected files."""

    fit: CompatibleFile | None
    rejected: tuple[Rejection[Pair], ...] = ()
    """Rejected files with their first builds, best file names first."""

    refusal: Reason | None = None
    """The reason why no file of the extension can run."""

    silent: tuple[str, ...] = ()
    """The hosts of sources that could not be reached."""

    nearest: tuple[Advice, ...] = ()
    """The command for another build or Python for which a file exists."""


_Choose = Callable[[Extension, Question, Requirement], ExtensionChoice]


class ExtensionChooser:
    """Selects a file for the builds, Python, and platform of a resolution."""

    def __init__(self, question: Question, read: Read) -> None:
        self._question = question
        self._read = read
        self._tags = set(question.tags)
        self._minors = {build.minor for build in question.builds}

    def choose(self, files: Iterable[ExtensionFile]) -> ExtensionChoice:
        """Select the latest version of an extension with a compatible file.

        The latest torch is preferred. At most ``MAX_READ`` files with a suitable name
        are read.
        """
        read = set[str]()
        by_name: dict[str, Rejection[Pair]] = {}
        by_bytes: dict[str, Rejection[Pair]] = {}
        fit = None
        for pair in self._sort_by_preference(files):
            url = pair[0].wheel.url
            mismatch = self._find_name_mismatch(*pair, self._tags)
            if mismatch:
                by_name.setdefault(url, Rejection(pair, mismatch))
                continue
            outcome: CompatibleFile | Reason
            if url in read or len(read) < MAX_READ:
                read.add(url)
                outcome = self._read_file(*pair)
            else:
                message = f"was not read: {MAX_READ} newer files do not run here"
                outcome = Reason("not-read", message)
            if isinstance(outcome, CompatibleFile):
                fit = outcome
                break
            by_bytes.setdefault(url, Rejection(pair, outcome))
        # Files that were read have suitable names, so they are listed first.
        rejected = by_bytes | by_name | by_bytes
        if fit:
            rejected.pop(fit.wheel.url, None)
            return ExtensionChoice(fit, tuple(rejected.values()))
        named = [by_name[url].candidate[0] for url in by_name.keys() - by_bytes]
        # The other targets may have no file.
        has_one_target = self._question.common is None
        nearest = tuple(self._suggest_nearest(named)) if has_one_target else ()
        return ExtensionChoice(None, tuple(rejected.values()), nearest=nearest)

    def _suggest_nearest(self, files: Iterable[ExtensionFile]) -> Iterator[Advice]:
        """Yield a command for the nearest build and Python with a file."""
        own = self._question
        wanted, request = own.lock_request, own.lock_request.request
        typed = [one for one in request.requirements if one.origin == COMMAND_LINE]
        torches = [one.written or one.text for one in typed if one.name == "torch"]
        builds = wanted.catalog.builds_for(own.target.os, own.target.arch)
        for python in dict.fromkeys((own.python, *builds[0].pythons)):
            tags = {*own.target.tags(python)}
            for build in builds:
                toolkit = ".".join(map(str, build.toolkit or ()))
                if all(
                    # A page of a backend has no file for another CUDA.
                    ("{backend}" in str(one.source.url) and one.cuda != toolkit)
                    or self._find_name_mismatch(one, build, tags)
                    for one in files
                ):
                    continue
                tag, torch = build.backend.tag, build.torch
                other = wanted.with_request_changes(backend=tag)
                is_of_target = tag == request.backend or not request.targets
                if (
                    is_of_target
                    and other.choose_build(torch=torch, python=python).choice
                ):
                    backend = () if request.targets else ("--backend", tag)
                    words = ("--python", python, *backend, f"torch=={torch}")
                    note = "has a prebuilt wheel"
                    yield make_change(*words, note=note, without=torches)
                    return

    def _sort_by_preference(self, files: Iterable[ExtensionFile]) -> Iterator[Pair]:
        """Yield pairs of extension file and torch build, preferred first.

        The order is: the locked version, the latest version, the best build, the first
        source, the exact CUDA of torch, and a file name with a glibc.
        """
        locked_versions = self._question.preferences

        def age(file: ExtensionFile) -> tuple[bool, Version]:
            wheel = file.wheel
            locked = locked_versions.get(wheel.package, "").partition("+")[0]
            return wheel.version.public == locked, parse_public_version(wheel.version)

        def file_key(file: ExtensionFile) -> tuple[object, ...]:
            is_vague = any(tag.platform.startswith("linux_") for tag in file.wheel.tags)
            return (
                file.source.rank,
                file.cuda != toolkit,
                is_vague,
                file.wheel.filename,
            )

        newest_first = sorted(files, key=age, reverse=True)
        for _, group in groupby(newest_first, age):
            same_version = list(group)
            for build in self._question.builds:
                toolkit = ".".join(map(str, build.toolkit or ()))
                for file in sorted(same_version, key=file_key):
                    yield file, build

    def _find_name_mismatch(
        self, file: ExtensionFile, build: Build, tags: Collection[object]
    ) -> Reason | None:
        """Return why the name of an extension file excludes a torch build."""
        wheel = file.wheel
        torch = build.torch
        if wheel.tags.isdisjoint(tags):
            return Reason(_OTHER_PLATFORM, f"is for {min(map(str, wheel.tags))}")
        major = (file.cuda or "").partition(".")[0]
        is_cuda_fine = not major or (build.toolkit and int(major) == build.toolkit[0])
        if not is_cuda_fine or (file.cpu and build.toolkit):
            cuda = f"CUDA {file.cuda}" if major else "the CPU"
            message = f"is for {cuda}, not for torch {build.name}"
            return Reason("other-cuda", message)
        serves_newer = file.and_newer and torch >= Version(file.torch or "0")
        if file.torch and file.torch != build.minor and not serves_newer:
            message = f"is for torch {file.torch}, not {torch}"
            if len(self._minors) > 1 and file.torch not in self._minors:
                message = f"is for torch {file.torch}, which is not available here"
            return Reason("other-torch", message)
        paired = self._find_paired_versions(wheel.package, torch)
        if paired and not paired.allows(wheel.version):
            message = f"is incompatible with torch {torch}; {paired.text} is compatible"
            return Reason("other-torch", message)
        locked = self._question.hashes.get(wheel.filename)
        if locked and wheel.sha256 not in {None, locked}:
            hashes = f"expected sha256 {locked}, got {wheel.sha256}"
            return Reason(
                "replaced", f"was replaced by a file with the same name: {hashes}"
            )
        return None

    def _find_paired_versions(
        self,
        package: str,
        torch: Version,
    ) -> Requirement | None:
        """Return a package's versions for a torch version; None if unknown."""
        constraints = self._question.catalog.constraints(torch)
        return next((one for one in constraints if one.name == package), None)

    def _read_file(
        self,
        file: ExtensionFile,
        build: Build,
    ) -> CompatibleFile | Reason:
        """Read a file, and return the fit or the reason for its rejection."""
        markers = self._question.markers
        inspector = Inspector(
            {build.name: build},
            self._question.gpus,
            markers,
        )
        wheel = file.wheel
        try:
            *_, found = inspector.steps(
                wheel,
                lambda one: self._read(wheel, one, markers, Depth.PART),
                Context(),
                Depth.WHOLE,
            )
        except InstallationError as error:
            return Reason("not-read", f"cannot be read: {error.message}")
        verdict = found.verdicts[build.name]
        why = self._find_file_mismatch(file, build, verdict)
        if why:
            return Reason("misfit", why)
        return CompatibleFile(file, build, verdict.row)

    def _find_file_mismatch(
        self,
        file: ExtensionFile,
        build: Build,
        verdict: BuildVerdict,
    ) -> str | None:
        """Return why the METADATA or code of a wheel excludes a torch build.

        If the file's symbols are unknown, its name or METADATA must mention torch.

        Args:
            file: The file with its parsed name.
            build: The build of torch.
            verdict: The compatibility of the file with the build.
        """
        row = verdict.row
        torch = f"torch {build.torch}"
        pins = [
            one
            for one in row.requirements()
            if one.name == "torch"
            and one.specifier
            and self._question.is_applicable(one)
        ]
        for pin in pins:
            demand = f"its METADATA requires {pin.text}"
            if not pin.allows(build.torch):
                return f"{demand}, not {torch}"
            if pin.is_exact and row.torch.kind == "none" and not row.architectures:
                # xformers 0.0.31 for Windows has libraries that Python does not load.
                return f"{demand}, but it has no library that is linked to torch"
        why = verdict.rejection or verdict.warning
        if why:
            return why.message
        glibc = self._question.lock_request.machine.glibc
        if glibc and row.glibc and Version(row.glibc) > Version(glibc):
            return f"its code requires glibc {row.glibc}, but this system has {glibc}"
        is_named = (
            file.torch
            or pins
            or self._find_paired_versions(file.wheel.package, build.torch)
        )
        if can_load_with(row.torch, build) is None and not is_named:
            return f"it has no known code for {torch}"
        return None


class QuestionsWithFiles(Value):
    """Questions with one torch and a compatible file per extension."""

    questions: list[Question]

    remarks: tuple[Reason, ...] = ()
    """The reasons for the selected extension files."""

    refusal: NoBuildError | None = None
    """The reason why an extension has no compatible file."""


def create_questions_with_files(
    questions: Sequence[Question],
    choose: _Choose,
    addresses: Addresses,
    reporter: Reporter,
) -> Iterator[QuestionsWithFiles]:
    """Yield questions with a file of each extension, latest torch first.

    The order of the requirements does not affect the result.

    Args:
        questions: The question for each target.
        choose: Selects a file for an extension.
        addresses: The sources of the extensions.
        reporter: Reports the selected and rejected files.

    Raises:
        NoBuildError: No torch version has a file of each extension, and an extension
            cannot be built.
    """
    requested = _find_requested_extensions(questions[0], addresses)
    extensions = sorted(requested, key=lambda one: one[0].name)
    refusal: NoBuildError | None = None
    found = 0
    while found < TORCHES and all(question.builds for question in questions):
        chosen = _choose_files(extensions, questions, choose, reporter)
        if chosen.refusal is None:
            found += 1
            yield chosen
        # Raise the error of the first torch version.
        refusal = refusal or chosen.refusal
        tried = chosen.questions[0].torches
        questions = [
            question.with_torch_versions(question.torches - tried)
            for question in questions
        ]
    if refusal and not found:
        raise refusal


def _choose_files(
    extensions: Sequence[tuple[Extension, Requirement]],
    questions: Sequence[Question],
    choose: _Choose,
    reporter: Reporter,
) -> QuestionsWithFiles:
    """Select a file for each extension and the torch version of all targets.

    Args:
        extensions: The extensions with their requirements.
        questions: The question for each target.
        choose: Selects a file for an extension.
        reporter: Reports the selected and rejected files.
    """
    chosen = QuestionsWithFiles([*questions])
    for extension, requirement in extensions:
        for position in range(len(questions)):
            question = chosen.questions[position]
            if not question.is_applicable(requirement):
                continue
            choice = choose(extension, question, requirement)
            _report_files(extension, choice, reporter)
            if choice.fit:
                chosen = _select_file(extension, choice.fit, chosen, position)
                continue
            try:
                check_compilation(extension, choice, question)
            except NoBuildError as error:
                return replace(chosen, refusal=error)
    return chosen


def _report_files(
    extension: Extension, choice: ExtensionChoice, reporter: Reporter
) -> None:
    """Report an extension's sources, selected file, and rejected files."""
    sources = ", ".join(source.id for source in extension.sources)
    reporter.detail("Sources", f"{extension.name}: {sources}")
    if choice.fit:
        fit = choice.fit
        code = " ".join(fit.row.architectures) or "GPU architectures not listed"
        reporter.detail(
            "Selected", f"{fit.wheel.filename} from {fit.file.source.id}: {code}"
        )
    for rejection in choice.rejected:
        file, _ = rejection.candidate
        reporter.detail(
            "Rejected", f"{file.wheel.filename}: {rejection.reason.message}"
        )


def _select_file(
    extension: Extension,
    fit: CompatibleFile,
    chosen: QuestionsWithFiles,
    position: int,
) -> QuestionsWithFiles:
    """Limit a target to a torch build, and other targets to the torch version.

    Args:
        extension: The extension.
        fit: The file and its build.
        chosen: The questions so far.
        position: The position of the target among them.
    """
    torch = fit.build.torch
    questions = [*chosen.questions]
    own = questions[position]
    if own.common:
        questions = [question.with_torch_versions({torch}) for question in questions]
    files = {**own.files, extension.name: (fit.wheel,)}
    questions[position] = replace(own.with_builds([fit.build]), files=files)
    remarks = chosen.remarks
    # Earlier exclusions keep their own reasons.
    if torch < max(own.torches):
        version = fit.wheel.version.public
        best = own.plan.choice.build.name
        message = (
            f"{extension.name} {version} has prebuilt files only up to torch {torch}; "
            f"torch {best} would run here"
        )
        reason = Reason("extension-wants-torch", message)
        remarks = (*remarks, reason)
    return QuestionsWithFiles(questions, remarks)


def _find_requested_extensions(
    question: Question,
    addresses: Addresses,
) -> Iterator[tuple[Extension, Requirement]]:
    """Yield the requested extensions with a source of prebuilt files."""
    for requirement in question.requirements:
        if requirement.url or requirement.name not in load_extensions().rows:
            continue
        extension = find_extension(requirement.name, addresses)
        systems = {None, question.target.os}
        sources = tuple(one for one in extension.sources if one.os in systems)
        if any(source.url for source in sources):
            yield replace(extension, sources=sources), requirement


def choose_prebuilt(
    extension: Extension,
    question: Question,
    requirement: Requirement,
    session: Session,
) -> ExtensionChoice:
    """Select a prebuilt file for an extension.

    A locked file keeps its hash. Pre-releases are candidates if they are requested or
    there is no final release.

    Args:
        extension: The extension.
        question: The question, with the builds of torch and the GPUs.
        requirement: The requirement of the extension.
        session: The sources and their clients.
    """
    refusal = _find_unsupported_gpu(extension, question)
    if refusal:
        return ExtensionChoice(None, refusal=refusal)
    places = [
        TorchKey(build.minor, build.backend.tag, build.os) for build in question.builds
    ]
    sources = session.find_listed_sources()
    listing = list_files(extension, places, sources, session.client)
    for host in listing.silent:
        message = f"its {extension.name} files are not considered"
        session.reporter.warn(f"{host} is unreachable: {message}")
    specifier = requirement.specifier or SpecifierSet()
    allowed = {*specifier.filter([file.wheel.version for file in listing.files])}
    files = []
    for file in listing.files:
        wheel = file.wheel
        if wheel.version in allowed:
            sha256 = wheel.sha256 or question.hashes.get(wheel.filename)
            files.append(replace(file, wheel=replace(wheel, sha256=sha256)))
    chooser = ExtensionChooser(question, make_reader(session).readings)
    return replace(chooser.choose(files), silent=listing.silent)


def _find_unsupported_gpu(extension: Extension, question: Question) -> Reason | None:
    """Return the reason if no file of an extension supports a GPU."""
    lowest = ComputeCapability.parse(extension.lowest or "0.0")
    known = load_known_builds().get(extension.name, KnownBuild())
    is_for_gpus = extension.lowest or known.compiles == "gpu"
    if is_for_gpus and question.plan.status == "cpu":
        need = f"{extension.name} requires an NVIDIA GPU"
        return Reason("no-code", f"{need}, and the target cpu has none")
    for _, gpu in question.gpus:
        capability = gpu.compute_capability
        if capability and capability < lowest:
            need = f"{extension.name} requires compute capability {lowest} or newer"
            return Reason("no-code", f"{need}, but {gpu.label} has {capability}")
    return None


def check_compilation(
    extension: Extension,
    choice: ExtensionChoice,
    question: Question,
) -> None:
    """Raise NoBuildError with the command that compiles an extension.

    Args:
        extension: The extension.
        choice: The reasons why no file is compatible.
        question: The question, with the builds of torch.
    """
    name, lock_request = extension.name, question.lock_request
    refusal = choice.refusal
    if refusal:
        hints: list[Hint] = [suggest_request_without(name, lock_request)]
        if lock_request.request.targets and question.plan.status == "cpu":
            hints.append("Select a target with a GPU, such as --target cu126")
        raise NoBuildError(refusal.code, refusal.message, hint=tuple(hints))
    known = load_known_builds().get(name)
    if known and not known.compiles:
        return
    words = ["afterwards: compiles it"]
    build = question.builds[0]
    torch = ""
    if known:
        words += format_build_needs(known, build.backend)
        if needs_older_torch(known, build.torch):
            torch = f"torch<{CXX_20_SINCE}"
            words.append(f"with {torch}, because it uses C++17")
    without = suggest_request_without(name, lock_request, torch)
    fixes: list[Hint] = [*choice.nearest, without]
    if choice.silent:
        # Another requested package can require the extension.
        fixes = [f"Try again when {join_names(choice.silent)} is reachable"]
    # Anyone can register a name that the default index lacks.
    elif not extension.unclaimed:
        fixes.append(make_command(COMPILE, name, note=", ".join(words)))
    outcome = "was found" if choice.silent else "runs here"
    raise NoBuildError(
        "no-prebuilt-extension",
        f"no prebuilt wheel of {name} {outcome}",
        why=_explain_no_file(extension, choice),
        hint=tuple(fixes),
    )


def _explain_no_file(extension: Extension, choice: ExtensionChoice) -> str:
    """Explain why the most compatible extension files were rejected."""
    rows = {
        row.reason.message: row
        for row in reversed(choice.rejected)
        if row.reason.code != _OTHER_PLATFORM
    }
    if not rows and choice.silent:
        hosts = join_names(choice.silent)
        return f"{hosts} cannot be reached, and the other sources have no file for it"
    if not rows:
        names = [source.id for source in extension.sources]
        return f"no file was found in {' or '.join(names) or 'any source'}"
    lines = [
        f"{row.candidate[0].wheel.filename} {row.reason.message}"
        for row in [*reversed(rows.values())][:REASONS]
    ]
    more = len(rows) - REASONS
    if more > 0:
        lines.append(f"{more} more; -v lists all")
    return "\n".join(lines)
