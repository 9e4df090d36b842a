"""One run: what a folder says and its caller asks, where packages come from, what is known of builds, the machine.

Every command and every call of the API begins here, so that they cannot differ.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.config import read_config
from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.files import expanded_home
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import FOLDERS_OWN, Request, Sourcing
from gpuinstall.base.requirement import (
    marker_environment,
    normalised,
    parse_requirement,
)
from gpuinstall.base.text import without_logins
from gpuinstall.base.values import Value, field, replace
from gpuinstall.base.versions import CPU
from gpuinstall.lock.request.conda import CondaRequest, parse_conda
from gpuinstall.lock.request.declaration import (
    Declaration,
    has_place,
    is_settings,
    lines_of,
    locks_in,
    read_again,
    read_declaration,
)
from gpuinstall.lock.request.history import (
    by_hand,
    following,
    read_own_lock,
    recorded_request,
    renewed,
    without,
)
from gpuinstall.lock.request.tools import (
    read_team_lock,
    read_team_settings,
    team_lock_in,
)
from gpuinstall.plan.python import RUNNING_PYTHON
from gpuinstall.sources.provenance import (
    BY_ADDRESS,
    TEAM_LOCK,
    SourceSetting,
    recorded_sources,
    source_setting,
)
from gpuinstall.sources.requirements_file import (
    PROJECT,
    RequirementsFile,
    joined_files,
    parse_lines,
)
from gpuinstall.sources.sources import torch_index_of

if TYPE_CHECKING:
    from collections.abc import (
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from gpuinstall.base.environment_paths import EnvironmentPaths
    from gpuinstall.base.machine import Machine
    from gpuinstall.catalog import Catalog
    from gpuinstall.environments.cuda_compat.libraries import (
        CompatLibraries,
        MachineHere,
    )
    from gpuinstall.environments.cuda_compat.package import CompatArchive
    from gpuinstall.lock.file.lock import Lock
    from gpuinstall.lock.file.target import Target
    from gpuinstall.lock.request.lock_request import LockRequest
    from gpuinstall.sources import Sources
    from gpuinstall.sources.session import Session

TORCH_INDEX = "GPUINSTALL_TORCH_INDEX"
ONLY_BINARY = "GPUINSTALL_ONLY_BINARY"


class Settings(Value):
    """What the caller of a run says, by the options of a command or the arguments of a call."""

    request: Request = FOLDERS_OWN
    """What is added to what the folder asks for."""

    files: Mapping[str, RequirementsFile] = field(default_factory=dict)
    """Requirements files by their names, which are added too."""

    only: bool = False
    """Whether these are all of it."""

    anew: bool = False
    """Whether the backend of the environment is forgotten too."""

    without: tuple[str, ...] = ()
    """Packages to take out."""

    machine: Machine | None = None
    """Another one than this."""

    venv: Path | None = None
    """The environment; None: ``.venv`` in the folder."""

    script: RequirementsFile | None = None
    """What the block of a script asks for, in place of the user's own words."""

    cuda_compat: bool = False
    """Whether forward-compatibility libraries are put above the driver."""

    starts: bool = False
    """Whether the environment is started."""


@contextmanager
def open_project(
    folder: Path,
    settings: Settings | None = None,
    reporter: Reporter | None = None,
) -> Iterator[Project]:
    """Open the project in ``folder``; what it needs of the world is closed with it."""
    with ExitStack() as resources:
        yield Project(
            folder,
            settings or Settings(),
            reporter or Reporter(),
            resources,
        )


class Project(Value):
    """A folder with the settings of a run; each part is read when it is first needed, and once.

    Raise UsageError, when a part is read, for what is malformed in a file of the folder or in the settings.
    """

    folder: Path
    settings: Settings
    reporter: Reporter
    resources: ExitStack

    # What the folder says.

    @cached_property
    def paths(self) -> EnvironmentPaths:
        """Where the environment lies, and in its folder the locks."""
        from gpuinstall.base.environment_paths import EnvironmentPaths

        return EnvironmentPaths.at(self.settings.venv or self.folder / ".venv")

    @cached_property
    def config(self) -> Request:
        """What the project in the folder is configured for."""
        return read_config(self.folder)

    @cached_property
    def declaration(self) -> Declaration:
        """What a file of the folder asks for: its settings, its project, a list of requirements; or nothing."""
        return read_declaration(self.folder, self.config.requirements)

    @cached_property
    def conda(self) -> CondaRequest:
        """What conda's packages ask for in the file of the folder, and in those of earlier commands and of the caller."""
        # Of several that name a Python, the last counts.
        files = [*self._own_files, *self.settings.files.values()]
        return parse_conda(joined_files(files).conda)

    @property
    def own_lock(self) -> Lock | None:
        """The copy of its lock that the environment holds."""
        return read_own_lock(self.paths.venv)

    @property
    def _recorded(self) -> Request:
        """What the locks of the folder, or of its environment, were made for."""
        return recorded_request(self.paths.folder, self.own_lock)

    @property
    def _team_lock(self) -> Path | None:
        """The lock of the project's own tool, if it counts."""
        if self.settings.only:
            return None
        return team_lock_in(self.folder)

    @cached_property
    def preferred(self) -> tuple[str, ...]:
        """The versions that the lock of the project's own tool holds, for the machine and the Python that are meant."""
        if self._team_lock is None:
            return ()
        python = RUNNING_PYTHON
        for requested in (self.config.python, self.settings.request.python):
            # It may be a specifier, which no marker can be judged for.
            if requested and re.fullmatch(r"3\.\d+", requested):
                python = requested
        markers = marker_environment(self.machine.os, self.machine.arch, python)
        return read_team_lock(self._team_lock, markers)

    @cached_property
    def _files(self) -> dict[str, RequirementsFile]:
        """What files ask for today, by their paths from the folder: its own, uv's settings, and those of earlier commands.

        One that cannot be read asks for what it did when the lock was made: an image may hold the lock without it.
        Raise UsageError for it if sources were named then: its packages would come from the default index.
        """
        recorded = self._recorded
        files = {**self.declaration.files, **self._limits}
        gone = []
        for name, lines in recorded.files.items():
            if name in files or is_settings(name, lines):
                continue
            try:
                files[name] = read_again(name, lines, self.paths.folder)
            except UsageError:
                # Its text may be a stranger's choice, and is not repeated.
                files[name] = parse_lines(lines)
                gone.append(name)
        # Where nothing else than the request of this command counts, what they asked for is not missed.
        if not gone or self.settings.only:
            return files
        if recorded.sources:
            raise UsageError(
                "inputs-gone",
                f"{', '.join(gone)} cannot be read, "
                f"and the lock was made with {', '.join(recorded.sources)}",
                why="without these settings, packages could come from other sources",
                hint="gpuinstall install --only torch   # or put the file back",
            )
        self.reporter.warn(
            f"{', '.join(gone)} cannot be read: what was requested there stays "
            "(gpuinstall lock --only REQ... drops it)"
        )
        return files

    # Where packages come from.

    @cached_property
    def sources(self) -> Sources:
        """Where packages come from; what a file of the folder chose is announced, before anybody is asked."""
        from gpuinstall.sources import read_sources

        requested = self.settings.request.sourcing
        configured = self.config.sourcing
        pages = partial(source_setting, "gpuinstall", "extension-sources")
        own = [pages(address, Path()) for address in requested.extension_sources]
        file = self.folder / PROJECT
        settings = [
            *(setting._replace(is_own=True) for setting in own),
            *self._words.settings,
            *(pages(address, file) for address in configured.extension_sources),
            *self._file_settings(),
            *self._nested_settings(),
        ]
        for setting in self._words.settings:
            if setting.is_own and without_logins(setting.value) != setting.value:
                self.reporter.notice(
                    "Login",
                    f"that of {setting.package} is in no lock: later commands take it from a netrc file or a keyring",
                )
        sources = read_sources(
            self._requested_torch_index,
            os.environ,
            self.folder,
            configured=configured.torch_index,
        ).with_settings(settings, self.folder)
        sources.admit(sources.chosen, self.reporter)
        sources.explain_ignored_settings(self.reporter)
        return sources

    @property
    def _requested_torch_index(self) -> str | None:
        return self.settings.request.sourcing.torch_index or os.environ.get(TORCH_INDEX)

    @cached_property
    def sourcing(self) -> Sourcing:
        """How packages are had: as the caller says, and if he does not, as the folder's settings and locks say."""
        chosen = self.settings.request.sourcing
        only_binary = (
            chosen.only_binary
            or os.environ.get(ONLY_BINARY, "0") not in {"", "0"}
            or self.config.sourcing.only_binary
            or ":all:" in self.sources.only_binary
        )
        return replace(chosen, only_binary=only_binary)

    @cached_property
    def _words(self) -> RequirementsFile:
        """What the caller requests in words: the user's own, unless they are those of a script."""
        if self.settings.script:
            return self.settings.script
        request = self.settings.request
        place = Path("the command line")
        words = RequirementsFile.of(place, request.requirements, request.constraints)
        own = [setting._replace(is_own=True) for setting in words.settings]
        return words._replace(settings=tuple(own))

    @property
    def _own_files(self) -> Iterable[RequirementsFile]:
        """What the folder asks for, if that counts."""
        return () if self.settings.only else self._folder_files

    @cached_property
    def _folder_files(self) -> tuple[RequirementsFile, ...]:
        """What the folder asks for: by files, and by its locks what was added by hand."""
        locks = self.paths.folder / "pylock.*.toml"
        by_locks = parse_lines(by_hand(self._recorded), locks)
        return (*self._files.values(), by_locks)

    @cached_property
    def _limits(self) -> dict[str, RequirementsFile]:
        """The constraints in uv's settings of the folder and of its workspace, by the path of the file from there."""
        from gpuinstall.sources.configuration import project_limits

        return project_limits(os.environ, self.folder)

    def _file_settings(self) -> Iterator[SourceSetting]:
        """Yield what files say of sources: the caller's, the folder's with its locks, those of earlier commands."""
        settings = self.settings
        for name, listed in settings.files.items():
            is_obeyed = any(setting.is_obeyed for setting in listed.settings)
            if is_obeyed and not has_place(name, self.paths.folder):
                raise UsageError(
                    "source-setting",
                    f"{name} names sources, but is not a regular file",
                    hint="Write it into a file, which later commands can read again",
                )
            yield from listed.settings
        removed = set(map(normalised, settings.without))
        for setting in chain.from_iterable(one.settings for one in self._folder_files):
            is_gone = settings.only or setting.package in removed
            if not (is_gone and setting.row.key == BY_ADDRESS):
                yield setting
        # The indexes that only the configuration of whoever made the locks named.
        for path in () if settings.only else locks_in(self.paths.folder):
            from gpuinstall.lock.file.lock import read_lock  # which takes long to load

            with suppress(LockError):
                lock = read_lock(path)
                for name in (lock.indexes if lock.is_ours else {}).keys() - removed:
                    key = "index of a package in a lock"
                    index = lock.indexes[name]
                    yield source_setting("gpuinstall", key, index, path, package=name)
        if self._team_lock:
            yield from read_team_settings(self._team_lock)

    def _nested_settings(self) -> Iterator[SourceSetting]:
        """Yield what projects among the requirements say of sources."""
        files = self.settings.files.values()
        listed = joined_files((*files, self._words, *self._own_files))
        texts = (*listed.requirements, *listed.constraints)
        projects = [text for text in texts if parse_requirement(text).url]
        if projects:
            from gpuinstall.lock.request.project import (
                nested_settings,
            )  # which takes long to load

            yield from nested_settings(projects, self.folder)

    def _sources_to_record(self) -> tuple[str, ...]:
        """Return what a lock records of sources; of the project's own lock, the files of the versions that count."""
        return recorded_sources(
            setting
            for setting in self.sources.settings
            if setting.row.tool != TEAM_LOCK or setting.package in self.preferred
        )

    @staticmethod
    def pip_constraints(venv: Path) -> tuple[str, ...]:
        """Return the constraints files of the user's own pip, which the configuration of an environment would hide."""
        from gpuinstall.sources.configuration import PIP_NAME, pip_words

        return pip_words(os.environ, venv / PIP_NAME, "", "constraint")

    @cached_property
    def session(self) -> Session:
        """The clients and caches of the run, open until it ends."""
        from gpuinstall.sources.session import open_session

        opened = open_session(
            self.sources,
            self.reporter,
            self.folder,
            sourcing=self.sourcing,
        )
        return self.resources.enter_context(opened)

    @cached_property
    def catalog(self) -> Catalog:
        """The catalogue, with what was learned from the torch index that is meant."""
        from gpuinstall.wheels.learned.store import known_catalog

        configured = self.config.sourcing.torch_index
        base = torch_index_of(self._requested_torch_index or configured)
        return replace(known_catalog(base), torch_index=base)

    # The machine.

    @cached_property
    def machine(self) -> Machine:
        """The machine to choose for: this one, unless the caller gives another."""
        return self.settings.machine or self._machine_here.machine

    def here(self, request: Request) -> Machine | None:
        """Return this machine, where kernels run; None if GPUs are requested that it lacks."""
        if request.is_for_gpus and not self.machine.gpus:
            return None
        return self.machine

    @property
    def compat_libraries(self) -> CompatLibraries | None:
        """The forward-compatibility libraries that everything loads which is started for this project."""
        return None if self.settings.machine else self._machine_here.libraries

    @cached_property
    def _machine_here(self) -> MachineHere:
        from gpuinstall.environments.cuda_compat.libraries import machine_beside

        beside = machine_beside(
            self.paths.folder,
            self.reporter,
            starts=self.settings.starts,
        )
        here = self.resources.enter_context(beside)
        if here.libraries or not self.settings.cuda_compat:
            return here
        from gpuinstall.environments.cuda_compat.package import take_libraries

        return take_libraries(
            self._locked_compat(),
            self.paths.folder,
            session=self.session,
            resources=self.resources,
        )

    def _locked_compat(self) -> CompatArchive | None:
        """Return the archive of forward-compatibility libraries that a lock of the folder names; it is announced."""
        from gpuinstall.environments.cuda_compat.package import CompatArchive
        from gpuinstall.lock.file.fit import read_locks

        for lock in read_locks(self.paths.folder):
            url = lock.record.cuda_compat.get("url")
            sha256 = lock.record.cuda_compat.get("sha256")
            if url and sha256:
                key = "libraries of cuda-compat in a lock"
                file = self.paths.folder / lock.name
                setting = source_setting("gpuinstall", key, url, file)
                self.sources.admit([setting], self.reporter)
                return CompatArchive(url, sha256)
        return None

    def keep_compat(self) -> None:
        """Keep the libraries that ``cuda_compat`` has brought, now that an environment is proven with them."""
        if not self.settings.cuda_compat or self.compat_libraries is None:
            return
        from gpuinstall.environments.cuda_compat.libraries import keep_libraries

        keep_libraries(self.compat_libraries, self.paths.folder)

    # What is requested.

    def read_request(self, *, quiet: bool = False) -> Request:
        """Return the whole request: what the folder is to hold, and how; say what counts of it, and where from.

        Of two that name a package, the later one counts:

        - what its locks record: added by hand by an earlier command;
        - its own files and those of earlier commands, by a line that is new there;
        - what the caller adds now, which is all of it with ``only``.

        Args:
            quiet: Say nothing; it was said before.

        Raises:
            UsageError: a file is malformed, a package cannot be taken out, or the folder is not trusted.
        """
        settings = self.settings
        words, files = self._added
        if settings.only:
            limits = _lines(self._limits)
            request = renewed(FOLDERS_OWN, limits, words.lines, files)
        else:
            today = _lines(self._files)
            request = renewed(self._recorded, today, words.lines, files)
            request = without(request, settings.without)
            self._announce(Reporter() if quiet else self.reporter)
        return self._completed(following(request, self._recorded))

    @property
    def folder_request(self) -> Request:
        """What the folder asks for today: by its files, by those of earlier commands, and what was added by hand."""
        return renewed(self._recorded, _lines(self._files))

    @cached_property
    def _added(self) -> tuple[RequirementsFile, dict[str, tuple[str, ...]]]:
        """What the caller adds: in words, and the lines of requirements files by their paths from the folder.

        A pipe, which no later command can read again, counts as words.
        """
        folder = self.paths.folder
        words = [self._words]
        files = {}
        for name, listed in self.settings.files.items():
            if has_place(name, folder):
                files[name] = listed
            else:
                words.append(listed)
        return joined_files(words), lines_of(files, folder)

    def _announce(self, reporter: Reporter) -> None:
        """Report which files of the folder count, and which are not read."""
        declared = self.declaration
        listed = joined_files(declared.files.values())
        if listed.requirements not in {(), ("torch",)}:
            message = str(declared)
            if self.preferred:
                message += f"; {len(self.preferred)} versions of its own lock"
            reporter.step("Project", message)
        for name, export in declared.unread.items():
            reporter.warn(f"{name} is not read; to install what it has: {export}")
        if self.conda.note:
            reporter.warn(f"environment.yml: {self.conda.note}")

    @cached_property
    def request(self) -> Request:
        """What the caller names, or what the folder's files ask for, or torch; what was recorded does not count."""
        listed = joined_files((self._words, *self.settings.files.values()))
        if not listed.requirements:
            listed = self.declaration.listed | listed
        listed = joined_files((listed, *self._limits.values()))
        request = Request(listed.requirements, constraints=listed.constraints)
        return self._completed(request)

    def _completed(self, listed: Request) -> Request:
        """Return a request for what is ``listed``. Of each other thing, who says it first here decides:

        - the caller, by an option or an argument;
        - ``[tool.gpuinstall]``, then ``.python-version`` and ``requires-python``;
        - what conda's packages ask for, of which a CUDA is a preference only, and the CPU is not.

        Raise UsageError for a path of this machine that does not exist.
        """
        requirements = listed.requirements or self.config.requirements or ("torch",)
        request = self.settings.request
        running = () if self.settings.machine else (RUNNING_PYTHON,)
        return replace(
            request,
            requirements=requirements,
            constraints=listed.constraints,
            files=listed.files,
            revision=listed.revision,
            python=request.python or self.config.python or self.conda.python,
            backend=request.backend or (CPU.tag if self.conda.is_for_cpu else None),
            preferred_backend=self.conda.backend,
            allowed_backends=request.allowed_backends or self.config.allowed_backends,
            newest_per_target=request.newest_per_target
            or self.config.newest_per_target,
            preferred_pythons=(*request.preferred_pythons, *running),
            managed_pythons=request.managed_pythons and not request.sourcing.offline,
            preferred=self.preferred,
            sources=self._sources_to_record(),
            build_files_digest=self._build_files_digest(requirements),
            sourcing=self.sourcing,
        )

    def _build_files_digest(self, requirements: Iterable[str]) -> str:
        """Return the digest of the build files of requested folders; raise UsageError for a path that does not exist."""
        parsed = map(parse_requirement, requirements)
        # torch by a path is refused later.
        paths = [one.path for one in parsed if one.path and one.name != "torch"]
        for path in paths:
            if not (self.folder / expanded_home(path)).exists():
                raise UsageError(
                    "requirement-not-there",
                    f"there is no {path}",
                    hint="Check the path",
                )
        if not paths:
            return ""
        from gpuinstall.lock.request.project import (
            build_files_digest,
        )  # which takes long to load

        return build_files_digest(requirements, self.folder)

    def environment_request(self, request: Request) -> Request:
        """Return the request of the folder for its environment, whose Python comes first and whose target stays."""
        from gpuinstall.environments.environment import read_marker
        from gpuinstall.plan.demand import parse_request

        existing = read_marker(self.paths.venv)
        if existing:
            pythons = (existing.python, *request.preferred_pythons)
            request = replace(request, preferred_pythons=pythons)
        if not (request.backend or self.settings.anew):
            request = self._within_targets(request)
        parse_request(request, self.catalog.family, self.machine)
        return self.with_compat(request)

    @property
    def named_targets(self) -> list[Target]:
        """The targets that the folder names, in its settings or by its locks."""
        from gpuinstall.lock.file.fit import named_targets
        from gpuinstall.lock.file.target import Target

        return [
            *map(Target.parse, self.config.targets),
            *named_targets(self.paths.folder),
        ]

    def _within_targets(self, request: Request) -> Request:
        """Return a request for one of the targets of the folder: a member's machine adds and moves none."""
        from gpuinstall.plan import Plan, choose

        own = self.own_lock
        targets = self.named_targets
        machine = self.machine
        tags = [
            target.backend
            for target in targets
            if (target.os, target.arch) == (machine.os, machine.arch)
        ]
        if own and own.record.asked and (own.record.asked in tags or not targets):
            return replace(request, backend=own.record.asked)
        if not targets:
            return request
        within = replace(request, allowed_backends=tuple(tags))
        torch_alone = replace(within, requirements=("torch",))
        plan = choose(machine, torch_alone, self.catalog)
        if isinstance(plan, Plan):
            return replace(within, backend=plan.choice.build.backend.tag)
        return within

    def with_compat(self, request: Request) -> Request:
        """Return a request for this machine, of whose forward-compatibility libraries a lock records what they are."""
        if self.compat_libraries is None:
            return request
        evidence = self.compat_libraries.to_evidence()
        return replace(request, cuda_compat=tuple(evidence.items()))


def _lines(files: Mapping[str, RequirementsFile]) -> dict[str, tuple[str, ...]]:
    return {name: file.lines for name, file in files.items() if file.lines}


def lock_requests(
    project: Project,
    request: Request,
    targets: Sequence[str] = (),
    machines: Sequence[Machine] = (),
) -> tuple[LockRequest, ...]:
    """Return the locks to make, by default for the targets that the project or its locks name.

    If they name none, it is one for this machine; that of the environment here is for this very machine too.

    Raises:
        UsageError: A target is none.
    """
    from gpuinstall.lock.file.target import Target
    from gpuinstall.lock.request.lock_request import LockRequest
    from gpuinstall.lock.request.strangers import with_locked_builds

    catalog = with_locked_builds(project.catalog, project.folder, project.session)
    if not targets and not machines:
        targets = project.config.targets
    if not targets and not machines:
        here = LockRequest(
            project.machine,
            project.with_compat(request),
            catalog,
            builds_here=project.settings.machine is None,
        )
        return _locked_requests(project, here) or (here,)
    # Of machines each would have its own newest torch otherwise.
    together = replace(request, newest_per_target=False)
    alone = [
        LockRequest(machine, together, catalog, builds_here=False)
        for machine in machines
    ]
    if len(alone) == 1 and not targets:
        return tuple(alone)
    serving: dict[Target, Collection[int]] = {
        Target.parse(text): () for text in targets
    }
    if request.backend and any(target.backend != request.backend for target in serving):
        raise UsageError(
            "backend-and-target",
            f"the backend {request.backend} is requested, but the targets are {' '.join(targets)}",
            hint="Leave out --backend (and GPUINSTALL_BACKEND)",
        )
    if alone:
        from gpuinstall.lock.cover import (
            cover_with_programs,
        )  # which takes long to load

        serving |= cover_with_programs(alone, project.session)
    requests = []
    for target, positions in serving.items():
        served = tuple(machines[position] for position in sorted(positions))
        requests.append(LockRequest.for_target(target, request, catalog, served))
    return tuple(requests)


def _locked_requests(project: Project, here: LockRequest) -> tuple[LockRequest, ...]:
    """Return the locks that lie in the folder, each for its target again."""
    from gpuinstall.lock.file.fit import readable_lock, targets_of
    from gpuinstall.lock.file.target import GLIBC
    from gpuinstall.lock.request.lock_request import LockRequest
    from gpuinstall.plan import Plan

    if here.request.backend:
        return ()
    locks = [
        readable_lock(project.folder / target.filename)
        for target in targets_of(project.folder)
    ]
    # So does a cover, whose locks are of several torches.
    if any(lock and "torch" in lock.record.apart for lock in locks):
        here = here.asking(newest_per_target=True)
    own = project.own_lock
    # The libraries above the driver of this machine are not those of every machine of a target.
    anywhere = replace(here.request, cuda_compat=())
    requests = []
    for target, lock in zip(targets_of(project.folder), locks, strict=True):
        request = LockRequest.for_target(
            target,
            anywhere,
            here.catalog,
            glibc=lock.glibc if lock else GLIBC,
            is_named=lock is None or lock.record.asked is not None,
        )
        if own and own.name == target.filename:
            # That of the environment here is for this very machine, with its own glibc.
            asked = own.record.asked and target.backend
            allowed = here.request.allowed_backends if asked else (target.backend,)
            exact = replace(
                request,
                machine=here.machine,
                request=replace(here.request, backend=asked, allowed_backends=allowed),
            )
            is_here = (target.os, target.arch) == (here.machine.os, here.machine.arch)
            if is_here and isinstance(exact.outcome, Plan):
                request = exact
        requests.append(request)
    return tuple(requests)
