"""uv as a resolver: the private project that it is given, and what it answers.

The project's pages are an index that uv asks first: what has a page comes from it alone, whoever demands it, and
everything else from the default index.

The code of a package that has to run before it is known what it requires is named first, or refused: uv is run with a
Python that cannot start, so that it stops where it would run such code and names the package. That one is announced and
built alone, with a Python that works; uv keeps what it learned of it, and is asked again. A package that is requested
by its address alone may have no name until it is built (setup.py); uv then says none, and is told one.
"""

from __future__ import annotations

import hashlib
import html
import os
import re
import tempfile
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import tomli
import tomli_w
from packaging.version import Version

from gpuinstall import process, uv
from gpuinstall.facts.pythons import find_python
from gpuinstall.lock.lock import unknown_hash, without_unknown
from gpuinstall.lock.package_names import PackageNames
from gpuinstall.lock.request import VersionPins
from gpuinstall.lock.source_builds import resolver_settings
from gpuinstall.lock.uv_failure import FAILED_BUILD, Conflict, explain_failure, unwrapped
from gpuinstall.plan.python import RUNNING_PYTHON
from gpuinstall.plan.requirement import parse_requirement, requirement_names
from gpuinstall.process import Finished
from gpuinstall.sources import Sources
from gpuinstall.text import without_logins

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuinstall.catalog import Wheel
    from gpuinstall.lock.target import Target
    from gpuinstall.session import Session

PREFERRED = "pylock.preferred.toml", "preferred.txt"
"""The lock and the requirements that uv finds where it is to write them, and stays close to."""

_WRITING = threading.Lock()

_WHEELS_ALONE = ("--only-binary", ":all:")
_NO_CODE = {"PYTHONHOME": os.devnull}
"""With it an interpreter ends before it reads a line, but for the isolated one that uv asks for its version."""
_BY_ADDRESS = re.compile(r"Building source distributions for `([^`]+)` is disabled")
_NAMELESS = ("The build backend returned an error", "Building source distributions is disabled")
_OTHER_NAME = re.compile(r"metadata name `([^`]+)` does not match given name")

ResolvedVersions = dict[str, tuple[str, tuple[str, ...]]]
"""The version of each package, and the names of those that ask for it."""


@dataclass(frozen=True)
class ResolverProject:
    """What is asked for, for Python ``X.Y`` on a target, and the wheels that each package with a page may come from.

    Paths that are asked for begin at ``folder``; ``wheels_only`` are the packages that are never built from source;
    ``sources`` are those of everything that has no page.
    """

    requirements: tuple[str, ...]
    python: str
    target: Target
    pages: Mapping[str, tuple[Wheel, ...]] = field(default_factory=dict)
    pins: VersionPins = field(default_factory=VersionPins)
    folder: Path = Path()
    wheels_only: frozenset[str] = frozenset()
    sources: Sources = field(default_factory=Sources)

    def within(self, bound: str) -> ResolverProject:
        """The same within one constraint more."""
        return replace(self, pins=self.pins.within(bound))

    def write(self, folder: Path, scratch: Path) -> None:
        """Write the project and its pages into ``folder``; the empty ones lie in ``scratch``, once for a whole run."""
        _write_index(
            {package: wheels for package, wheels in self.pages.items() if wheels}, folder / "family"
        )
        unlisted = (
            scratch
            / f"unlisted-{hashlib.sha256(' '.join(sorted(self.pages)).encode()).hexdigest()}"
        )
        with _WRITING:  # it is there whole, or not at all
            if not unlisted.exists():
                _write_index(dict.fromkeys(self.pages, ()), scratch / "unlisted")
                (scratch / "unlisted").rename(unlisted)
        # Parsed before anything is written: a line break in one would be an option of uv's.
        constraints = [parse_requirement(text).text for text in self.pins.constraints]
        preferences = {name: str(Version(version)) for name, version in self.pins.preferred.items()}
        (folder / "constraints.txt").write_text("\n".join(constraints), encoding="utf-8")
        lock, requirements = (folder / name for name in PREFERRED)
        packages = [
            {"name": name, "version": version} for name, version in sorted(preferences.items())
        ]
        preferred = {"lock-version": "1.0", "created-by": "gpuinstall", "packages": packages}
        lock.write_text(tomli_w.dumps(preferred), encoding="utf-8")
        requirements.write_text(
            "".join(map("{0[0]}=={0[1]}\n".format, preferences.items())), encoding="utf-8"
        )
        (folder / "pyproject.toml").write_text(self.document, encoding="utf-8")
        (folder / "addresses.in").write_text("\n".join(self.addresses), encoding="utf-8")
        (folder / "uv.toml").write_text(
            resolver_settings(self.pages, unlisted, self.sources.uv_settings()), encoding="utf-8"
        )

    @property
    def unlisted(self) -> frozenset[str]:
        """The packages whose page is empty: what the name means elsewhere is nobody's business."""
        return frozenset(package for package, wheels in self.pages.items() if not wheels)

    @property
    def addresses(self) -> list[str]:
        """What is asked for by address, which the project's own table cannot hold, for uv, which stands elsewhere."""
        return [
            _located(text, self.folder) for text in self.requirements if parse_requirement(text).url
        ]

    @property
    def inputs(self) -> list[str]:
        """The files of the folder that uv resolves."""
        return ["pyproject.toml", *(["addresses.in"] if self.addresses else [])]

    @property
    def document(self) -> str:
        """The text of pyproject.toml."""
        project = {"name": "the-request", "version": "0", "requires-python": f"=={self.python}.*"}
        dependencies = [text for text in self.requirements if not parse_requirement(text).url]
        names = requirement_names(dependencies)
        indexes = {
            name: address
            for name, address in sorted(self.sources.package_indexes.items())
            if name not in self.pages and name in names
        }
        # uv applies the source of a package to whoever requires it, as long as the project itself does.
        uv = {
            "sources": {name: {"index": f"of-{name}"} for name in indexes},
            "index": [
                {"name": f"of-{name}", "url": url, "explicit": True}
                for name, url in indexes.items()
            ],
        }
        tool = {"tool": {"uv": uv}} if indexes else {}
        return tomli_w.dumps({"project": {**project, "dependencies": dependencies}, **tool})

    def compile(self, folder: Path, session: Session, *, reasons: bool = False) -> Finished:
        """Have uv resolve it in ``folder``: into a lock, or into requirements with the ``reasons`` of each."""
        self.write(folder, session.scratch)
        into = uv.compile_with_reasons if reasons else uv.compile_lock
        # Whose code runs, and what it is built with.
        python = None if self.python == RUNNING_PYTHON else find_python(self.python)
        command = into(
            python or session.python, self.python, self.target.uv_platform, self.wheels_only
        )
        into_file = ["--output-file", PREFERRED[reasons]] if self.pins.preferred else []
        oldest = (
            {"MACOSX_DEPLOYMENT_TARGET": self.target.macos} if self.target.os == "macos" else {}
        )
        session = replace(session, environment={**session.environment, **oldest})
        return _run_uv(command, [*self.inputs, *into_file], folder, session, self.addresses)


def resolve_project(project: ResolverProject, session: Session) -> dict[str, Any] | Conflict:
    """Return uv's lock as a document; raise InstallationError where there is none for want of something else."""
    text = _resolved(project, session)
    return text if isinstance(text, Conflict) else tomli.loads(without_logins(text))


def resolve_versions(project: ResolverProject, session: Session) -> ResolvedVersions | Conflict:
    """The same for the versions alone, with who asked for each."""
    text = _resolved(project, session, reasons=True)
    return text if isinstance(text, Conflict) else parse_versions(text)


def simple_page(wheels: Iterable[Wheel]) -> str:
    """Write a simple-index page with absolute addresses."""
    return (
        "<!DOCTYPE html><html><body>\n"
        + "".join(_link(wheel) for wheel in wheels)
        + "</body></html>\n"
    )


def parse_versions(requirements: str) -> ResolvedVersions:
    """Read annotated requirements, each with who asked for it on its line."""
    lines = re.findall(r"^([\w.-]+)==(\S+)(?:\s+# via (.+))?$", requirements, re.MULTILINE)
    return {
        name: (
            version,
            tuple(who for part in via.split(",") if re.fullmatch(r"[\w.-]+", who := part.strip())),
        )
        for name, version, via in lines
    }


def _located(text: str, folder: Path) -> str:
    """Write a requirement by address for uv, which stands elsewhere: a path from ``folder`` on becomes absolute."""
    requirement = parse_requirement(text)
    if requirement.is_remote:
        return text
    address = requirement.url or ""
    place, extras = (folder / Path(address).expanduser()).absolute(), requirement.extras
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    if requirement.editable or requirement.text.startswith(address):
        return f"{'-e ' if requirement.editable else ''}{place}{extras}{marker}"
    return f"{requirement.name}{extras} @ {place.as_uri()}{marker}"


def _resolved(
    project: ResolverProject, session: Session, *, reasons: bool = False
) -> str | Conflict:
    with tempfile.TemporaryDirectory(dir=session.scratch) as folder:
        done = project.compile(Path(folder), session, reasons=reasons)
    if done.ok:
        return done.out
    requested = requirement_names(project.requirements)
    names = PackageNames(session, requested.union(project.pins.preferred), project.pages)
    failure = explain_failure(done.err, project.unlisted, names)
    if isinstance(failure, Conflict):
        return failure
    raise failure


def _run_uv(
    command: Sequence[str],
    inputs: Iterable[str],
    folder: Path,
    session: Session,
    addresses: Sequence[str] = (),
) -> Finished:
    """Run uv's resolver on ``inputs``, files of ``folder``; every package whose code has to run is named before.

    With ``only_binary`` only what is asked for by ``addresses`` may be built; what ``command`` says is never built is
    not in either case.
    """
    variables = dict(session.environment)
    if variables.pop(
        "UV_NO_CACHE", ""
    ):  # what is learned is asked for again, so that uv has to keep it
        variables["UV_CACHE_DIR"] = str(folder / "cache")
    resolver = _Resolver(command, variables, folder, session)
    only_binary = session.sourcing.only_binary
    words = list(_WHEELS_ALONE if only_binary else ())
    tried = set[str]()
    while True:
        done = resolver.run(*words, *inputs, code=False)
        message = unwrapped(done.err)
        if "Hash mismatch" in message and resolver.drop_unknown_hashes():
            continue  # a project is built with a torch that is really fetched, and uv does not say which project
        stopped, by_address = FAILED_BUILD.search(message), _BY_ADDRESS.search(message)
        is_nameless = not stopped and any(sign in message for sign in _NAMELESS)
        if is_nameless and not all(map(_has_name, addresses)):
            named = resolver.named(addresses)
            if isinstance(named, Finished):
                return named
            addresses = named
            (folder / "addresses.in").write_text("\n".join(addresses), encoding="utf-8")
            continue
        if (
            only_binary
            and by_address
            and not {by_address[1], _built(by_address[1])} & {*command, *words}
        ):
            words.append(_built(by_address[1]))
            continue
        if done.ok or by_address or not stopped:
            return done
        if stopped[1] in tried:  # uv has not kept what it learned
            return resolver.run(*words, *inputs)
        tried.add(stopped[1])
        _announce(stopped[1], session)
        alone = resolver.build(re.split(r"[ =]", stopped[1])[0], _as_asked(stopped[1], addresses))
        if stopped[1] in FAILED_BUILD.findall(unwrapped(alone.err)):
            return alone


@dataclass(frozen=True)
class _Resolver:
    """uv's command to resolve with, its variables and the folder where it runs."""

    command: Sequence[str]
    variables: Mapping[str, str]
    folder: Path
    session: Session

    def run(self, *words: str, code: bool = True) -> Finished:
        """Run it; without ``code`` it ends where a package's code would run."""
        variables = {**self.variables, **({} if code else _NO_CODE)}
        self.session.uv_runs.append(" ".join(words))
        return process.run(
            [*self.command, *words], env=variables, cwd=self.folder, patience=self.session.patience
        )

    def build(self, package: str, requirement: str, *words: str, code: bool = True) -> Finished:
        """Resolve one requirement alone; nothing is built but its package."""
        (self.folder / "alone.in").write_text(requirement, encoding="utf-8")
        pages = self._pages()
        self.drop_unknown_hashes()
        done = self.run(*_WHEELS_ALONE, _built(package), *words, "alone.in", code=code)
        for page, text in pages.items():
            page.write_text(text, "utf-8")
        return done

    def drop_unknown_hashes(self) -> bool:
        """Leave of the family's pages the hashes that are known; return whether that changes any of them."""
        pages = self._pages()
        for page, text in pages.items():
            page.write_text(without_unknown(text), "utf-8")
        return pages != self._pages()

    def _pages(self) -> dict[Path, str]:
        return {page: page.read_text("utf-8") for page in self.folder.glob("family/*/index.html")}

    def named(self, addresses: Iterable[str]) -> list[str] | Finished:
        """Return what is requested by address, each with the name of its package; or the build that failed."""
        named = list[str]()
        for address in addresses:
            name = None if _has_name(address) else self.package_name(address)
            if isinstance(name, Finished):
                return name
            named.append(_with_name(name, address) if name else address)
        return named

    def package_name(self, address: str) -> str | Finished:
        """Find out what the package at an address is called; its code runs only if no file of it tells the name."""
        guess = _guessed_name(address)
        requirement = _with_name(guess, address)
        done = self.build(guess, requirement, "--no-deps", code=False)
        if FAILED_BUILD.search(done.err):
            _announce(address.removeprefix("-e "), self.session)
            done = self.build(guess, requirement, "--no-deps")
        # uv refuses a guess that is wrong, and says the name.
        other_name = _OTHER_NAME.search(unwrapped(done.err))
        name = other_name[1] if other_name else guess
        self.session.announced.add(_with_name(name, address).removeprefix("-e "))
        return name if done.ok or other_name else done


def _has_name(address: str) -> bool:
    """Whether a requirement by address begins with the name of its package."""
    requirement = parse_requirement(address)
    return not requirement.text.removeprefix("-e ").startswith(requirement.url or "")


def _guessed_name(address: str) -> str:
    name = parse_requirement(address).name
    return name if re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) else "project"


def _with_name(name: str, address: str) -> str:
    """Write a requirement by address alone with the name of its package."""
    requirement = parse_requirement(address)
    url = requirement.url or ""
    place = url if requirement.is_remote else Path(url).as_uri()
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return f"{'-e ' if requirement.editable else ''}{name}{requirement.extras} @ {place}{marker}"


def _announce(package: str, session: Session) -> None:
    if package not in session.announced:
        session.announced.add(package)
        name = package.replace("==", " ")
        session.reporter.notice(
            "Code", f"{name} has no metadata until it is built: its build code runs now"
        )


def _as_asked(package: str, addresses: Iterable[str]) -> str:
    """The requirement as it was asked for: a folder that is editable is built otherwise than one that is not."""
    place = unquote(urlsplit(package.partition(" @ ")[2]).path)
    return next((text for text in addresses if place and place in unquote(text)), package)


def _built(package: str) -> str:
    return f"--no-binary={package}"


def _write_index(pages: Mapping[str, Iterable[Wheel]], index: Path) -> None:
    index.mkdir(exist_ok=True)
    for package, wheels in pages.items():
        (index / package).mkdir(exist_ok=True)
        (index / package / "index.html").write_text(simple_page(wheels), encoding="utf-8")


def _link(wheel: Wheel) -> str:
    href = html.escape(
        f"{wheel.url.partition('#')[0]}#sha256={wheel.sha256 or unknown_hash(wheel.url)}"
    )
    metadata = f"sha256={wheel.metadata_sha256}" if wheel.metadata_sha256 else "true"
    attribute = f' data-core-metadata="{metadata}"' if wheel.metadata else ""
    return f'<a href="{href}"{attribute}>{html.escape(wheel.filename)}</a><br>\n'
