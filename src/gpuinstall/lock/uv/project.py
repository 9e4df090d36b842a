"""Resolve a temporary project with uv.

The project's pages are the index with the highest priority. A package with a page is
available only there, and every other package only on the default index.

gpuinstall announces the build code of a package before it runs. uv first runs with a
Python that cannot start, so it stops before running build code and reports the package.
This package is then announced and built separately, with a working Python. uv caches
its metadata and resolves again. Packages requested by URL or path are built first,
because their names may be unknown until then (setup.py).

Reading the pages of all packages on PyTorch's index takes seconds. A package with an
unread page is a placeholder that satisfies every requirement, so it excludes no
version of another package. If a resolution needs it, the caller reads its page.
"""

from __future__ import annotations

import hashlib
import html
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from os.path import islink
from pathlib import Path
from typing import Any

import tomli
import tomli_w
from packaging.pylock import Pylock
from packaging.version import InvalidVersion, Version

from gpuinstall.base import process, uv
from gpuinstall.base.location import locate_requirement, parse_source
from gpuinstall.base.process import Finished
from gpuinstall.base.requirement import (
    Constraint,
    Requirement,
)
from gpuinstall.base.text import join_names, remove_logins
from gpuinstall.base.values import Value, replace
from gpuinstall.base.version import RUNNING_PYTHON
from gpuinstall.catalog import Wheel, load_catalog
from gpuinstall.catalog.pages import PageFile
from gpuinstall.lock.file.lock import (
    PLACEHOLDER,
    Packages,
    list_versions,
    placeholder_hash,
)
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.project import DYNAMIC_VERSION
from gpuinstall.lock.uv.builds import (
    create_no_wheel_error,
    load_known_builds,
)
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.edges import OWN_PACKAGES, UvLog, parse_log, remove_log
from gpuinstall.lock.uv.errors import (
    FAMILY_UNLISTED,
    FILTERED,
    explain_failure,
    find_mentioned_names,
    find_missing_extras,
    find_unbuilt_package,
    lacks_members,
    needs_build,
)
from gpuinstall.machine.pythons import find_python
from gpuinstall.sources import Sources
from gpuinstall.sources.provenance import Effect
from gpuinstall.sources.session import INDEX_PAGES, Session
from gpuinstall.sources.sources import check_build, check_reported
from gpuinstall.sources.uv_settings import BUILD_DEPENDENCIES, METADATA_ROWS
from gpuinstall.sources.web import ALL_PACKAGES, RECENT_S

Pages = Mapping[str, tuple[Wheel | PageFile, ...]]
"""The files on each package's page."""

PREFERRED = "pylock.preferred.toml"
"""uv's output file. uv prefers versions in an existing file."""

REQUEST_FILE = "request.in"
OVERRIDES = "overrides.txt"
_INPUTS = (REQUEST_FILE, "--override", OVERRIDES, "--output-file", PREFERRED)

_CACHE_CONTROL = dict.fromkeys(("api", "files"), f"max-age={RECENT_S}")
"""How long uv caches pages and files: as long as the public index declares.

Many mirrors declare no cache duration. uv runs several times for one lock, and would
request every page each time.
"""

_NO_SOURCES = "UV_NO_SOURCES_PACKAGE"
"""uv ignores the sources of these packages, and of those in its settings."""
_ONLY_WHEELS = ("--only-binary", ":all:")
_NO_CODE = {"PYTHONHOME": os.devnull}
"""Prevents Python from starting, except for uv's isolated version query."""
_MEMORY = 3_000_000_000
"""uv's memory limit in bytes. Resolving 500 packages needs a tenth of it."""
_PLACEHOLDER = re.compile(rf"{PLACEHOLDER}[0-9a-f]{{32}}")


class ResolverProject(Value):
    """A private project for uv to resolve."""

    requirements: tuple[Requirement, ...]
    python: str
    """The Python version, ``X.Y``."""

    release: str
    """The release of Python to resolve for, ``X.Y.Z``.

    uv interprets X.Y as X.Y.0, and would reject packages that require X.Y.4.
    """

    target: Target
    pages: Pages
    constraints: tuple[Constraint, ...]
    preferred: Mapping[str, Sequence[str]]
    """The preferred versions of each package, highest first."""

    metadata: tuple[Mapping[str, Any], ...]
    """Rows that replace the METADATA of packages."""

    folder: Path
    """The folder to which paths in requirements are relative."""

    wheels_only: frozenset[str]
    """The packages that are never built from source."""

    sources: Sources
    """The sources of packages without a page."""

    unread: frozenset[str] = frozenset()
    """The packages with an unread page."""

    with_torch: frozenset[str] = frozenset()
    """The packages that require torch at build time."""

    versions: Mapping[str, str] = {}
    """The selected versions for these builds."""

    def write(
        self, folder: Path, default_index: str | None, *, is_recent: bool = True
    ) -> None:
        """Write the project and its pages into an empty folder.

        Args:
            folder: An empty folder for the project files.
            default_index: The default index; None if an environment variable sets it.
            is_recent: Whether recent index pages are used without a request.
        """
        for requirement in (*self.requirements, *self.constraints):
            check_reported(self.sources.addresses, requirement)
        self.write_index(folder)
        settings = self.settings(default_index, is_recent=is_recent)
        settings[BUILD_DEPENDENCIES] = self.sources.uv.find_build_requirements(
            self.with_torch, self.versions
        )
        files = {
            REQUEST_FILE: self.format_requirements(self.requirements, folder),
            "constraints.txt": self.format_requirements(self.constraints, folder),
            PREFERRED: self.preferences,
            # An override without a version drops the requirements of placeholders.
            OVERRIDES: "\n".join(sorted(self.unread)),
            "uv.toml": tomli_w.dumps(settings),
        }
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")

    def format_requirements(
        self, requirements: Iterable[Requirement], work: Path
    ) -> str:
        """Return a requirements file for uv.

        Args:
            requirements: The requirements.
            work: uv's working folder, for links.
        """
        located = (locate_requirement(one, self.folder) for one in requirements)
        return "\n".join(_link_path(one, work) for one in located)

    def settings(
        self, default_index: str | None, *, is_recent: bool = True
    ) -> dict[str, Any]:
        """Return uv's settings for indexes, static metadata, and sources."""
        settings = self.sources.uv.resolver_keys | self.sources.addresses.uv_rows
        credentials = self.sources.credentials
        # uv gets the login of a server once, and another one with its URL.
        with_login = credentials.insert_own
        for row in settings["index"]:
            row["url"] = with_login(row["url"])
        settings["find-links"] = [*map(with_login, settings["find-links"])]
        settings["index"] += credentials.uv_indexes()
        if default_index:
            options = self.sources.addresses.find_options(default_index)
            row = {"url": default_index, "default": True, **options}
            # uv does not refresh an index with this setting.
            recent = {"cache-control": _CACHE_CONTROL} if is_recent else {}
            settings["index"].append(recent | row)
        known = [
            {"name": name, **known.metadata}
            for name, known in load_known_builds().items()
            if known.metadata
        ]
        # uv uses the first row of a package.
        unread = [create_metadata_row(name, "0", []) for name in sorted(self.unread)]
        rows = [*unread, *self.metadata, *settings.get(METADATA_ROWS, ()), *known]
        settings[METADATA_ROWS] = rows
        dates = settings.get("exclude-newer-package", {})
        if dates or self.sources.uv.exclude_newer:
            # The private pages have no dates, so uv would reject all their files.
            undated = dict.fromkeys(sorted({*self.pages, *self.unread}), False)
            settings["exclude-newer-package"] = {**dates, **undated}
        if "no-binary-package" in settings:
            built = self.sources.uv.no_binary - self.wheels_only
            settings["no-binary-package"] = sorted(built - {":all:"})
        return settings

    @property
    def without_sources(self) -> frozenset[str]:
        """The packages for which the sources of projects are ignored."""
        # An editable project must not configure another index for torch, even if
        # torch is from the default index.
        names = load_catalog().family.union(self.pages, self.unread)
        # A requirement with a URL or path needs no other source. An unnamed one, and one
        # in an unselected group, may be a workspace member, which uv does not find with
        # this setting.
        located = {one.name for one in self.requirements if one.url and one.has_name}
        return names.union(located)

    def write_index(
        self,
        folder: Path,
        *,
        has_placeholders: bool = True,
    ) -> None:
        """Write the pages. Downloads need pages without placeholder hashes."""
        placeholders = {
            name: (create_placeholder_wheel(name, 0),) for name in self.unread
        }
        for package, wheels in {**placeholders, **self.pages}.items():
            page = folder / "family" / package / "index.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            text = format_simple_page(wheels, has_placeholders=has_placeholders)
            page.write_text(text, encoding="utf-8")

    @property
    def preferences(self) -> str:
        """The text of a lock with the preferred versions."""
        packages: list[dict[str, Any]] = []
        for name, versions in sorted(self.preferred.items()):
            # uv rejects a file with an invalid version, which an old package may have.
            with suppress(InvalidVersion):
                texts = [str(Version(version)) for version in versions]
                packages += [{"name": name, "version": text} for text in texts]
        for one in self.sources.addresses.list_settings(Effect.COMMIT):
            name, _, version = one.package.partition("==")
            if version in self.preferred.get(name, ()):
                packages.append({"name": name, "vcs": one.options})
        document = {"lock-version": "1.0", "created-by": "gpuinstall"}
        return tomli_w.dumps({**document, "packages": packages})


class UvLock(Value):
    """A lock by uv, with the extras that packages lack."""

    packages: Packages
    missing_extras: Sequence[tuple[str, str, str]]


class UnreadPackages(Value):
    """Packages whose pages must be read before the project can be resolved."""

    names: frozenset[str]


def resolve_project(
    project: ResolverProject,
    session: Session,
) -> tuple[UvLock | Conflict | UnreadPackages, UvLog]:
    """Resolve a project, and return uv's lock or a conflict, and its log.

    Raises:
        InstallationError: uv failed for a reason other than a conflict, such as the
            network or a failed build.
    """
    with tempfile.TemporaryDirectory(
        dir=session.scratch, ignore_cleanup_errors=True
    ) as folder:
        resolver = _Resolver(project, Path(folder), session)
        done = resolver.resolve()
        packages = _parse_packages(done.out, folder) if done.ok else ()
    if done.ok:
        unread = project.unread.intersection(package.name for package in packages)
    else:
        unread = project.unread & find_mentioned_names(done.err, project.unread)
    if unread:
        return UnreadPackages(unread), resolver.log
    if done.ok:
        return UvLock(packages, find_missing_extras(done.err)), resolver.log
    # A package with an empty page must not be installed from elsewhere.
    unlisted = [
        package
        for package, wheels in project.pages.items()
        if not wheels and not package.startswith(OWN_PACKAGES)
    ]
    failure = explain_failure(done.err, unlisted)
    if isinstance(failure, Conflict):
        _name_settings(failure, done.err, project)
        return failure, resolver.log
    for one in project.requirements:
        is_named = failure.code == "repository" and one.url and one.url in done.err
        if is_named and one.origin.is_in_file:
            failure.evidence = f"{one.origin} requires {one.name}"
    raise failure


def _name_settings(conflict: Conflict, message: str, project: ResolverProject) -> None:
    """Add the constraints and settings that a message of uv is about."""
    error = conflict.error
    # uv words them as requirements of the user.
    limits = (*project.constraints, *project.sources.uv.overrides)
    mentioned = find_mentioned_names(message, [one.name for one in limits])
    named = dict.fromkeys(
        f"{one} ({one.origin})"
        for one in limits
        if one.name in mentioned and one.origin.is_in_file
    )
    error.evidence = join_names([*named]) or None
    is_dated = error.code == FAMILY_UNLISTED or FILTERED in message
    if is_dated and project.sources.uv.exclude_newer:
        place = project.sources.uv.name_setting("exclude-newer")
        error.fixes = (f"Set {place} to a later date",)
    if "Wheels are required" in message:
        error.fixes = project.sources.uv.build_hints or error.fixes


def create_placeholder_wheel(name: str, version: int) -> Wheel:
    """Return a file that does not exist; a row replaces its METADATA."""
    filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return Wheel(
        name,
        Version(str(version)),
        filename,
        filename,
        frozenset(),
        placeholder_hash(filename),
    )


def create_metadata_row(
    name: str, version: str, requires: Iterable[str]
) -> dict[str, Any]:
    """Return the row that replaces the METADATA of a version."""
    return {"name": name, "version": version, "requires-dist": list(requires)}


def _parse_packages(text: str, folder: str) -> Packages:
    """Parse uv's lock, with absolute paths and a hash of every file."""
    document = tomli.loads(remove_logins(text))
    for package in document.setdefault("packages", []):
        others = filter(None, map(package.get, ("sdist", "archive")))
        files = [*package.get("wheels", ()), *others]
        for file in files:
            address = file.get("url") or file["path"]
            hashes = {"sha256": placeholder_hash(address), **file.get("hashes", {})}
            file["hashes"] = hashes
        trees = filter(None, map(package.get, ("directory", "vcs")))
        for source in (*files, *trees):
            if "path" in source:
                # uv writes paths relative to its working folder, which has links.
                path = os.path.normpath(Path(folder, source["path"]))
                is_link = Path(path).is_relative_to(folder) and islink(path)
                source["path"] = str(Path(path).readlink()) if is_link else path
    return Pylock.from_dict(document).packages


def format_simple_page(
    wheels: Iterable[Wheel | PageFile],
    *,
    has_placeholders: bool,
) -> str:
    """Return a page of the simple API with absolute URLs.

    Args:
        wheels: The files on the page.
        has_placeholders: Whether to use placeholders for unknown hashes, so that uv
            resolves without downloading the files.
    """
    links = ""
    for wheel in wheels:
        address = wheel.url.partition("#")[0]
        sha256 = wheel.sha256
        if has_placeholders and not sha256:
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
    """Runs uv on a project in its own folder."""

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
            "UV_DEFAULT_INDEX", session.find_default_index()
        )
        # Write credentials to a private file: METADATA can refer to variables.
        self.write()
        python = _find_build_python(project.python) or session.python
        self.command = uv.compile_lock(
            python, project.release, project.target.uv_platform, project.wheels_only
        )
        self.command += ["--cache-dir", str(session.find_uv_cache())]
        if project.target.os == "macos":
            # uv reads the variable of Apple's own tools.
            self.variables["MACOSX_DEPLOYMENT_TARGET"] = project.target.macos
        self.variables[_NO_SOURCES] = " ".join(sorted(project.without_sources))
        self.log = UvLog()
        self.has_placeholders = True
        self.only_wheels = ":all:" in session.sources.uv.only_binary
        """Whether only packages requested by URL or path may be built."""
        self.addresses = [one for one in project.requirements if one.url]
        """Requirements with a URL or path whose metadata uv has not cached."""
        self.exceptions = set[str]()
        """The packages that may be built although only wheels are allowed."""
        everything = (*project.requirements, *project.constraints)
        remote = [one for one in everything if one.url and one.path is None]
        # uv would download build dependencies before running the build code.
        self.unannounced = {one.name for one in remote}
        # uv cannot prevent the build of an unnamed package. A wheel needs no build.
        self.are_named = all(
            one.has_name or not parse_source(one.url or "").is_built for one in remote
        )

    def write(self) -> None:
        """Write the project's files."""
        is_recent = not self.session.client.renewed
        self.project.write(self.folder, self.default_index, is_recent=is_recent)

    def resolve(self) -> Finished:
        """Run uv, and announce packages before their code runs."""
        folder = self.project.folder
        lines = [locate_requirement(one, folder).text for one in self.addresses]
        is_known = self.are_named and self.session.outdated.isdisjoint(lines)
        failed = None if is_known else self.build_url_requirements()
        tried = set[str]()
        while failed is None:
            renewed = self.session.client.renewed
            if INDEX_PAGES not in self.session.outdated:
                refresh = []
            elif ALL_PACKAGES in renewed:
                refresh = ["--refresh"]
            else:
                refresh = [f"--refresh-package={name}" for name in sorted(renewed)]
            done = self.run(*self.options, *refresh, *_INPUTS, code=False)
            self.session.outdated.discard(INDEX_PAGES)
            package = find_unbuilt_package(done.err)
            # A build downloads torch, whose placeholder hash does not match. uv does
            # not report which build.
            if self.has_placeholders and _PLACEHOLDER.search(done.err):
                self.has_placeholders = False
                self.project.write_index(self.folder, has_placeholders=False)
            elif done.ok or not needs_build(done.err):
                return done
            # uv may not report a package requested by URL or path.
            elif self.addresses:
                failed = self.build_url_requirements()
            elif package is None:
                return done
            # uv did not cache the metadata from this build.
            elif package in tried:
                return self.run(*self.options, *_INPUTS)
            else:
                tried.add(package)
                failed = self.build(package)
        return failed

    def add_torch(self, package: str, name: str) -> None:
        """Add the selected torch to the build requirements of a package.

        Args:
            package: The package with its version or URL.
            name: Its name.
        """
        project = self.project
        builds = project.sources.uv.torch_builds
        if name in project.with_torch or builds.keys().isdisjoint({name, ":all:"}):
            return
        row: dict[str, Any] = {"name": name, "requires-dist": []}
        if " @ " in package:
            row["version"] = DYNAMIC_VERSION
        # Select torch as if the package required nothing.
        self.project = replace(project, metadata=(*project.metadata, row))
        self.write()
        done = self.run(*self.options, *_INPUTS, code=False)
        packages = _parse_packages(done.out, str(self.folder)) if done.ok else ()
        selected = {name: one for name, one in list_versions(packages).items() if one}
        if "torch" not in selected:
            files = project.pages.get("torch", ())
            versions = [file.version for file in files if isinstance(file, Wheel)]
            selected |= {"torch": str(max(versions))} if versions else {}
        self.project = replace(
            project, with_torch=project.with_torch | {name}, versions=selected
        )
        self.write()

    @property
    def options(self) -> list[str]:
        """uv's options for the packages that may be built."""
        if not self.only_wheels:
            return []
        return [*_ONLY_WHEELS, *map(_no_binary_option, sorted(self.exceptions))]

    def build(self, package: str) -> Finished | None:
        """Announce and build a package so that uv caches its metadata.

        Returns:
            The failed build, or None.

        Raises:
            NoBuildError: The package must not be built.
        """
        name = re.split(r"[ =]", package)[0]
        # uv may stop at a constraint with a URL despite ``--only-binary``.
        if self.only_wheels and name not in self.exceptions:
            raise create_no_wheel_error(package, self.session.sources.uv)
        check_build(self.session.find_listed_sources(), package, name)
        self.announce(package, name)
        self.add_torch(package, name)
        # Require wheels for its dependencies.
        done = self.run_on_requirement(package, *_ONLY_WHEELS, _no_binary_option(name))
        return done if find_unbuilt_package(done.err) == package else None

    def build_url_requirements(self) -> Finished | None:
        """Build requirements with a URL or path, so uv caches their metadata.

        Returns:
            The first failed build, or None.

        Raises:
            NoBuildError: A file in the folder requires a build, but only wheels
                are allowed.
        """
        requirements, self.addresses = self.addresses, []
        for requirement in requirements:
            located = locate_requirement(requirement, self.project.folder)
            words = ["--no-deps"]
            if located.text in self.session.outdated:
                words.append("--refresh")
            line = _link_path(located, self.folder)
            done = self.run_on_requirement(line, *words, *_ONLY_WHEELS, code=False)
            if needs_build(done.err):
                location = parse_source(requirement.url or "").location
                for setting in self.session.sources.addresses.folder_sources:
                    if self.only_wheels and setting.source.location == location:
                        place = f"{setting.value} in {setting.file}"
                        raise create_no_wheel_error(place, self.session.sources.uv)
                self.announce(located.path or located.text, requirement.name)
                if requirement.has_name:
                    self.add_torch(located.text, requirement.name)
                done = self.run_on_requirement(line, *words)
            if not done.ok:
                return done
            self.session.outdated.discard(located.text)
            document = tomli.loads(done.out)
            names = {package["name"] for package in document["packages"]}
            self.exceptions |= names - self.project.wheels_only
        return None

    def announce(self, package: str, name: str) -> None:
        """Report that the build code of a package runs."""
        self.unannounced.discard(name)
        shown = package.replace("==", " ")
        keys = self.session.sources.uv.list_build_settings(name)
        suffix = f" (as {join_names(keys)} specifies)" if keys else ""
        text = "must be built to get its metadata: downloading its build requirements and running its build code"
        self.session.reporter.notice("Code", f"{shown} {text}{suffix}")

    def run(self, *words: str, code: bool = True) -> Finished:
        """Run uv; without ``code``, uv stops before it runs package code."""
        passed = self.session.sources.policy.pass_build_variables
        variables = uv.BuildVariables(passed=passed).select_variables(self.variables)
        command = [*self.command, *words]
        if not code:
            variables = {**uv.select_resolver_variables(variables), **_NO_CODE}
            command += (f"--only-binary={name}" for name in sorted(self.unannounced))
            command.append("--verbose")
        done = process.run(
            command,
            env=variables,
            cwd=self.folder,
            timeouts=self.session.client.timeouts,
            seconds=None if code else self.session.client.timeouts.resolution,
            memory=None if code else _MEMORY,
        )
        if lacks_members(done.err) and self.variables.pop(_NO_SOURCES, ""):
            return self.run(*words, code=code)
        self.log |= parse_log(done.err)
        return done._replace(err=remove_log(done.err))

    def run_on_requirement(
        self, requirement: str, *words: str, code: bool = True
    ) -> Finished:
        """Run uv on one requirement, without placeholders."""
        (self.folder / "alone.in").write_text(requirement, encoding="utf-8")
        preferences = self.folder / "pylock.alone.toml"
        preferences.write_text(self.project.preferences, encoding="utf-8")
        words = (*words, "alone.in", "--output-file", preferences.name)
        self.project.write_index(self.folder, has_placeholders=False)
        done = self.run(*words, code=code)
        self.project.write_index(self.folder, has_placeholders=self.has_placeholders)
        return done


def _find_build_python(version: str) -> Path | None:
    """Return the Python for builds, unless the running one is suitable."""
    return None if version == RUNNING_PYTHON else find_python(version)


def _no_binary_option(package: str) -> str:
    return f"--no-binary={package}"


def _link_path(located: Requirement, work: Path) -> str:
    """Return a requirement for uv, which misreads some paths.

    Args:
        located: The requirement with an absolute URL.
        work: uv's working folder, for a link to the path.
    """
    path = located.path or ""
    is_fragment = "#" in path and not located.has_name
    # uv would clone a folder with this name.
    if not (is_fragment or path.lower().endswith(".git")):
        return located.text
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()
    # uv reads the version in the name of an archive.
    name = re.sub(r"(?i)\.git\Z|[^A-Za-z0-9_.+!-]", "-", Path(path).name)
    link = work / digest[:16] / name
    link.parent.mkdir(exist_ok=True)
    if not islink(link):
        link.symlink_to(path)
    return located.with_url(f"./{link.parent.name}/{name}").text
