"""uv as a resolver: the private project that it is given, and what it answers.

The project's pages are an index that uv asks first: what has a page comes from it alone, whoever demands it, and
everything else from the default index.

The code of a package that has to run before it is known what it requires is named first, or refused: uv is run with a
Python that cannot start, so that it stops where it would run such code and names the package. That one is announced and
built alone, with a Python that works; uv keeps what it learned of it, and is asked again. A package that is requested
by its address may have no name until it is built (setup.py); so those are built first, once uv stops.
"""

from __future__ import annotations

import html
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import tomli
import tomli_w
from packaging.version import Version

from gpuinstall.base import process, uv
from gpuinstall.base.files import expanded_home
from gpuinstall.base.process import Finished
from gpuinstall.base.requirement import Constraint, Requirement
from gpuinstall.base.text import without_logins
from gpuinstall.base.values import Value
from gpuinstall.catalog import Wheel, load_catalog
from gpuinstall.catalog.pages import PageFile
from gpuinstall.lock.file.lock import placeholder_hash
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.project import DYNAMIC_VERSION, dynamic_projects
from gpuinstall.lock.uv.builds import known_builds, without_wheel
from gpuinstall.lock.uv.errors import (
    FAILED_BUILD,
    Conflict,
    explain_failure,
    unwrapped,
)
from gpuinstall.machine.pythons import find_python
from gpuinstall.plan.python import RUNNING_PYTHON
from gpuinstall.sources import Sources
from gpuinstall.sources.repository import check_subdirectory
from gpuinstall.sources.session import Session

Pages = Mapping[str, tuple[Wheel | PageFile, ...]]
"""The files that packages may come from, by name."""

OWN_PACKAGES = "gpuinstall-"
"""How the names begin of the packages that tell uv what METADATA leaves out."""

PREFERRED = "pylock.preferred.toml"
"""The lock that uv finds where it is to write one, and stays close to."""

REQUEST_FILE = "request.in"
OVERRIDES = "overrides.txt"
_INPUTS = (REQUEST_FILE, "--override", OVERRIDES, "--output-file", PREFERRED)

_CACHE_CONTROL = {"api": "max-age=600", "files": "max-age=600"}
"""For how long uv takes what the default index answered from its cache: for as long as that index itself says.

Many a mirror says nothing, and uv, which runs several times for one lock, would ask for all of it each time.
"""

_WHEELS_ALONE = ("--only-binary", ":all:")
_NO_CODE = {"PYTHONHOME": os.devnull}
"""With it an interpreter ends before it reads a line, but for the isolated one that uv asks for its version."""
_MEMORY = 3_000_000_000
"""The bytes that uv may take to resolve: 500 packages of the default index take a tenth of it."""
_STOPPED = re.compile(
    r"build backend returned an error|Building source distributions (?:for `[^`]+` )?is disabled"
)
"""What uv writes if it would have to build something."""


class ResolverProject(Value):
    """What uv is to resolve."""

    requirements: tuple[Requirement, ...]
    python: str
    """``X.Y``."""

    target: Target
    pages: Pages
    """The files that each package with a page may come from, whoever requires it."""

    constraints: tuple[Constraint, ...]
    """They hold for the packages that turn up, and request none."""

    preferred: Mapping[str, Sequence[str]]
    """Versions that are taken if nothing stands against them, the highest of a package first."""

    metadata: tuple[Mapping[str, Any], ...]
    """Rows that stand in place of the METADATA of packages."""

    folder: Path
    """Where the paths of requirements begin."""

    wheels_only: frozenset[str]
    """The packages that are never built from source."""

    sources: Sources
    """Those of everything that has no page."""

    def write(
        self,
        folder: Path,
        default_index: str | None,
        projects: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """Write the project and its pages into a folder of its own.

        Args:
            folder: The folder.
            default_index: The default index, if no variable passes it to uv.
            projects: Metadata of requested projects.
        """
        for requirement in (*self.requirements, *self.constraints):
            self.sources.check_handed_over(requirement)
        self.write_index(folder)
        requirements = requirement_lines(self.requirements, self.folder)
        constraints = requirement_lines(self.constraints, self.folder)
        settings = self.settings(default_index)
        rows = settings["dependency-metadata"]
        known = {row["name"] for row in rows}
        rows += (row for row in projects if row["name"] not in known)
        files = {
            REQUEST_FILE: "\n".join(requirements),
            "constraints.txt": "\n".join(constraints),
            PREFERRED: self.preferences,
            OVERRIDES: "\n".join(self.overrides),
            "uv.toml": tomli_w.dumps(settings),
        }
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")

    def settings(self, default_index: str | None) -> dict[str, Any]:
        """Return uv's settings: indexes, metadata that needs no build, and no project's source for the family."""
        settings = self.sources.uv_settings()
        settings["index"] += self.sources.login_indexes()
        if default_index:
            settings["index"].append(
                {
                    "url": default_index,
                    "default": True,
                    "cache-control": _CACHE_CONTROL,
                }
            )
        known = [
            {"name": name, **known.metadata}
            for name, known in known_builds().items()
            if known.metadata
        ]
        # Of two rows uv takes the first.
        rows = [*self.metadata, *self.sources.metadata, *known]
        settings["dependency-metadata"] = rows
        # Also if torch comes from the default index: a project that is installed editable may name another for it.
        bound = load_catalog().family.union(self.pages)
        # What is requested by its address has that source. With this setting uv finds no member of a workspace.
        bound |= {one.name for one in self.requirements if one.has_name}
        without_source = bound | (self.sources.no_sources - {":all:"})
        settings["pip"] = {"no-sources-package": sorted(without_source)}
        dates = settings.get("exclude-newer-package", {})
        if dates or self.sources.exclude_newer:
            # Pages of this run have no dates, so uv would reject all their files.
            undated = dict.fromkeys(sorted(self.pages), False)
            settings["exclude-newer-package"] = {**dates, **undated}
        built = self.sources.no_binary - self.wheels_only
        if built:
            settings["no-binary-package"] = sorted(built)
        return settings

    def write_index(
        self,
        folder: Path,
        *,
        has_stand_ins: bool = True,
    ) -> None:
        """Write the pages; without stand-ins for hashes that are not known, uv can fetch the files."""
        for package, wheels in self.pages.items():
            page = folder / "family" / package / "index.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            text = simple_page(wheels, has_stand_ins=has_stand_ins)
            page.write_text(text, encoding="utf-8")

    @property
    def preferences(self) -> str:
        """The lock that uv stays close to."""
        packages = []
        for name, versions in sorted(self.preferred.items()):
            # Parsed and written again: an odd text would be one of uv's own faults.
            texts = [str(Version(version)) for version in versions]
            packages += [{"name": name, "version": text} for text in texts]
        document = {"lock-version": "1.0", "created-by": "gpuinstall"}
        return tomli_w.dumps({**document, "packages": packages})

    @property
    def overrides(self) -> list[str]:
        """The requirements that stand in place of those of packages; in place of the family's stands what we choose."""
        family = load_catalog().family
        overrides = self.sources.overrides
        return [one.text for one in overrides if one.name not in family]


MISSING_EXTRAS = "missing-extras"
"""The key of a resolved document for what uv says of extras: packages with versions, and the names."""
_MISSING_EXTRA = re.compile(
    r"package `([\w.-]+)(?:==(\S+)| @ [^`]+)` does not have an extra named `([\w.-]+)`"
)


def resolve_project(
    project: ResolverProject,
    session: Session,
) -> dict[str, Any] | Conflict:
    """Return uv's lock as a document, or the conflict for which there is none.

    Args:
        project: What uv is to resolve.
        session: The run, in whose scratch folder it does so.

    Raises:
        InstallationError: There is none for want of something else: a network, a build that works.
    """
    with tempfile.TemporaryDirectory(dir=session.scratch) as folder:
        done = _Resolver(project, Path(folder), session).resolve()
    if done.ok:
        document = tomli.loads(without_logins(done.out))
        for package in document.get("packages", ()):
            kinds = map(package.get, ("directory", "archive", "sdist"))
            for source in (*filter(None, kinds), *package.get("wheels", ())):
                if "path" in source:
                    # uv writes paths from its working folder.
                    path = os.path.join(folder, source["path"])  # noqa: PTH118
                    source["path"] = os.path.normpath(path)
        document[MISSING_EXTRAS] = _MISSING_EXTRA.findall(unwrapped(done.err))
        return document
    # What the name of a package with an empty page means elsewhere does not matter.
    unlisted = [
        package
        for package, wheels in project.pages.items()
        if not wheels and not package.startswith(OWN_PACKAGES)
    ]
    failure = explain_failure(done.err, unlisted)
    if isinstance(failure, Conflict):
        return failure
    raise failure


def versions_in(packages: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the version of each package of a lock that has one: what is out of a folder may have none."""
    return {
        package["name"]: package["version"]
        for package in packages
        if package.get("version")
    }


def simple_page(
    wheels: Iterable[Wheel | PageFile],
    *,
    has_stand_ins: bool = True,
) -> str:
    """Return a simple-index page with absolute addresses.

    Args:
        wheels: Its files.
        has_stand_ins: Whether something stands for each hash that is not known, so that uv need not fetch the file.
    """
    links = ""
    for wheel in wheels:
        address = wheel.url.partition("#")[0]
        sha256 = wheel.sha256
        if has_stand_ins and not sha256:
            sha256 = placeholder_hash(wheel.url)
        if sha256:
            address += f"#sha256={sha256}"
        attribute = ""
        if wheel.metadata:
            hashed = wheel.metadata_sha256
            metadata = f"sha256={hashed}" if hashed else "true"
            attribute = f' data-core-metadata="{metadata}"'
        href = html.escape(address)
        name = html.escape(wheel.filename)
        links += f'<a href="{href}"{attribute}>{name}</a><br>\n'
    return f"<!DOCTYPE html><html><body>\n{links}</body></html>\n"


class _Resolver:
    """uv, which resolves a project in a folder of its own."""

    def __init__(
        self,
        project: ResolverProject,
        folder: Path,
        session: Session,
    ) -> None:
        self.project = project
        self.folder = folder
        self.session = session
        self.variables = dict(session.environment)
        self.default_index = self.variables.pop(
            "UV_DEFAULT_INDEX", session.default_index
        )
        requirements = project.requirements
        self.dynamic = [*dynamic_projects(requirements, project.folder)]
        """The metadata of requested projects that are not built."""
        # A login is in a file of this user: a package's METADATA can read variables.
        project.write(folder, self.default_index, self.dynamic)
        # Whose code runs, and what it is built with.
        python = session.python
        if project.python != RUNNING_PYTHON:
            python = find_python(project.python) or python
        target = project.target
        # uv takes X.Y for X.Y.0, and refuses what requires X.Y.4.
        newest_patch = f"{project.python}.99"
        self.command = uv.compile_lock(
            python, newest_patch, target.uv_platform, project.wheels_only
        )
        self.command += ["--cache-dir", str(session.uv_cache)]
        if target.os == "macos":
            # The variable of Apple's own tools, by which uv goes too.
            self.variables["MACOSX_DEPLOYMENT_TARGET"] = target.macos
        self.has_stand_ins = True
        self.only_wheels = session.sourcing.only_binary
        """Whether only what is requested by its address may be built; what the command excludes never is."""
        self.addresses = [one for one in requirements if one.url]
        """What is requested by its address, of which uv has learned nothing yet."""
        self.exceptions = set[str]()
        """What may be built although only wheels are allowed."""
        everything = (*requirements, *project.constraints)
        remote = [one for one in everything if one.is_remote]
        # That their code runs is said first: before it does, uv fetches what builds them.
        self.unannounced = {one.name for one in remote}
        # uv cannot be told not to build what has no name; a wheel is not built.
        self.are_named = all(
            one.has_name or one.text.endswith(".whl") for one in remote
        )

    def resolve(self) -> Finished:
        """Run uv on the project; every package whose code has to run is named before."""
        for requirement in (*self.addresses, *self.project.constraints):
            self.check_repository(requirement.url or "")
        lines = requirement_lines(self.addresses, self.project.folder)
        is_known = self.are_named and self.session.outdated.isdisjoint(lines)
        failed = None if is_known else self.build_addresses()
        tried = set[str]()
        while failed is None:
            done = self.run(*self.options, *_INPUTS, code=False)
            message = unwrapped(done.err)
            unbuilt = FAILED_BUILD.findall(message)
            # A project is built with a torch that is really fetched, and uv does not say which project.
            if "Hash mismatch" in message and self.has_stand_ins:
                self.has_stand_ins = False
                self.project.write_index(self.folder, has_stand_ins=False)
            elif self.requires_version(message):
                self.addresses = [one for one in self.project.requirements if one.url]
            elif done.ok or not _STOPPED.search(message):
                return done
            # uv may not name what it stops at if that was requested by its address.
            elif self.addresses:
                failed = self.build_addresses()
            elif not unbuilt:
                return done
            # uv has not kept what it learned of it.
            elif unbuilt[0] in tried:
                return self.run(*self.options, *_INPUTS)
            else:
                tried.add(unbuilt[0])
                failed = self.build(unbuilt[0])
        return failed

    def requires_version(self, message: str) -> bool:
        """Return whether a package requires a version of a project.

        The project is built then.

        Args:
            message: uv's message.
        """
        names = [re.escape(row["name"]) for row in self.dynamic]
        version = re.escape(DYNAMIC_VERSION)
        pattern = rf"(?<![\w.-])({'|'.join(names)})(?:\[[^]]*\])?[<>=!~]+(?!{version})"
        if not names or not re.search(pattern, message):
            return False
        self.dynamic = []
        self.project.write(self.folder, self.default_index)
        return True

    @property
    def options(self) -> list[str]:
        """The options of uv for what may be built."""
        if not self.only_wheels:
            return []
        return [*_WHEELS_ALONE, *map(_built, sorted(self.exceptions))]

    def build(self, package: str) -> Finished | None:
        """Have uv learn what a package requires, whose code is announced; return the build if it failed.

        Raises:
            NoBuildError: if it may not be built.
        """
        name = re.split(r"[ =]", package)[0]
        # Such as that of a constraint by address, to which uv goes all the same.
        if self.only_wheels and name not in self.exceptions:
            raise without_wheel(package)
        self.session.sources.check_build(package, name, self.session.default_index)
        self.check_repository(package.partition(" @ ")[2])
        self.announce(package, name)
        # Nothing is built but the package itself.
        alone = self.alone(package, *_WHEELS_ALONE, _built(name))
        has_failed = package in FAILED_BUILD.findall(unwrapped(alone.err))
        return alone if has_failed else None

    def build_addresses(self) -> Finished | None:
        """Have uv learn what is requested by its address, whose code is announced if it has to run.

        Returns:
            The build that failed, if one did.

        Raises:
            NoBuildError: if a file of the folder has it built, and only wheels are allowed.
        """
        requirements, self.addresses = self.addresses, []
        for requirement in requirements:
            address = _located(requirement, self.project.folder)
            words = ["--no-deps"]
            if address in self.session.outdated:
                words.append("--refresh")
            done = self.alone(address, *words, *_WHEELS_ALONE, code=False)
            if _STOPPED.search(unwrapped(done.err)):
                setting = self.session.sources.chooser_of(requirement.url or "")
                if self.only_wheels and setting:
                    raise without_wheel(f"{setting.value} in {setting.file}")
                self.announce(address.removeprefix("-e "), requirement.name)
                done = self.alone(address, *words)
            if not done.ok:
                return done
            self.session.outdated.discard(address)
            document = tomli.loads(done.out)
            names = {package["name"] for package in document["packages"]}
            self.exceptions |= names - self.project.wheels_only
        return None

    def check_repository(self, address: str) -> None:
        """Check that the subdirectory of an address is in its repository."""
        if address.startswith("git+"):
            place, _, fragment = address.removeprefix("git+").partition("#")
            reference = re.search(r"@([^/@]+)\Z", place)
            repository = place[: reference.start()] if reference else place
            inside = dict(parse_qsl(fragment)).get("subdirectory", "")
            revision = reference[1] if reference else ""
            check_subdirectory(self.session, repository, revision, inside)

    def announce(self, package: str, name: str) -> None:
        """Say that the code of a package runs."""
        self.unannounced.discard(name)
        if package in self.session.announced:
            return
        self.session.announced.add(package)
        shown = package.replace("==", " ")
        text = "has no metadata until it is built: what builds it is fetched, and its build code runs now"
        self.session.reporter.notice("Code", f"{shown} {text}")

    def run(self, *words: str, code: bool = True) -> Finished:
        """Run it; without ``code`` it ends where a package's code would run."""
        passed = self.session.sources.policy.pass_build_variables
        variables = uv.BuildVariables(passed=passed).given(self.variables)
        if not code:
            home = self.session.scratch / "home"
            variables = {**uv.without_secrets(variables, home), **_NO_CODE}
            words += tuple(f"--only-binary={name}" for name in sorted(self.unannounced))
        return process.run(
            [*self.command, *words],
            env=variables,
            cwd=self.folder,
            patience=self.session.patience,
            seconds=None if code else self.session.patience.resolution,
            memory=None if code else _MEMORY,
        )

    def alone(
        self,
        requirement: str,
        *words: str,
        code: bool = True,
    ) -> Finished:
        """Resolve one requirement; what its build demands is really fetched."""
        (self.folder / "alone.in").write_text(requirement, encoding="utf-8")
        self.project.write_index(self.folder, has_stand_ins=False)
        done = self.run(*words, "alone.in", code=code)
        self.project.write_index(self.folder, has_stand_ins=self.has_stand_ins)
        return done


def _built(package: str) -> str:
    return f"--no-binary={package}"


def requirement_lines(requirements: Iterable[Requirement], folder: Path) -> list[str]:
    """Write requirements for uv.

    Args:
        requirements: The requirements.
        folder: The base of relative paths, which become absolute because uv runs in another folder.
    """
    return [_located(requirement, folder) for requirement in requirements]


def _located(requirement: Requirement, folder: Path) -> str:
    address = requirement.path
    if address is None:
        return requirement.text
    path = folder / expanded_home(address)
    path = path.absolute()
    if requirement.editable:
        return requirement.with_url(str(path), has_name=False).text
    place = path.as_uri() if requirement.has_name else str(path)
    return requirement.with_url(place).text
