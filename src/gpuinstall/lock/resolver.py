"""uv as a resolver: the private project that it is given, and what it answers.

The project's pages are an index that uv asks first: what has a page comes from it alone, whoever demands it, and
everything else from the default index.

The code of a package that has to run before it is known what it requires is named first, or refused: uv is run with a
Python that cannot start, so that it stops where it would run such code and names the package. That one is announced and
built alone; uv keeps what it learned of it, and is asked again.
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
from gpuinstall.lock.uv_failure import FAILED_BUILD, LOGIN, Conflict, explain_failure
from gpuinstall.plan.python import RUNNING_PYTHON
from gpuinstall.plan.requirement import parse_requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuinstall.catalog import Wheel
    from gpuinstall.lock.target import Target
    from gpuinstall.process import Finished
    from gpuinstall.session import Session

PREFERRED = "pylock.preferred.toml", "preferred.txt"
"""The lock and the requirements that uv finds where it is to write them, and stays close to."""

_WRITING = threading.Lock()

_WHEELS_ALONE = ("--only-binary", ":all:")
_NO_CODE = {"PYTHONHOME": os.devnull}
"""With it an interpreter ends before it reads a line, but for the isolated one that uv asks for its version."""
_BY_ADDRESS = re.compile(r"Building source distributions for `([^`]+)` is disabled")

ResolvedVersions = dict[str, tuple[str, tuple[str, ...]]]
"""The version of each package, and the names of those that ask for it."""


@dataclass(frozen=True)
class ResolverProject:
    """What is asked for, for Python ``X.Y`` on a target, and the wheels that each package with a page may come from.

    Paths that are asked for begin at ``folder``; ``wheels_only`` are the packages that are never built from source.
    """

    requirements: tuple[str, ...]
    python: str
    target: Target
    pages: Mapping[str, tuple[Wheel, ...]] = field(default_factory=dict)
    pins: VersionPins = field(default_factory=VersionPins)
    folder: Path = Path()
    wheels_only: frozenset[str] = frozenset()

    def within(self, bound: str) -> ResolverProject:
        """The same within one constraint more."""
        return replace(self, pins=self.pins.within(bound))

    def write(self, folder: Path, scratch: Path) -> None:
        """Write the project and its pages into ``folder``; the empty ones lie in ``scratch``, once for a whole run."""
        _write_index({package: wheels for package, wheels in self.pages.items() if wheels}, folder / "family")
        unlisted = scratch / f"unlisted-{hashlib.sha256(' '.join(sorted(self.pages)).encode()).hexdigest()}"
        with _WRITING:  # it is there whole, or not at all
            if not unlisted.exists():
                _write_index(dict.fromkeys(self.pages, ()), scratch / "unlisted")
                (scratch / "unlisted").rename(unlisted)
        # Parsed before anything is written: a line break in one would be an option of uv's.
        constraints = [parse_requirement(text).text for text in self.pins.constraints]
        preferences = {name: str(Version(version)) for name, version in self.pins.preferred.items()}
        (folder / "constraints.txt").write_text("\n".join(constraints), encoding="utf-8")
        lock, requirements = (folder / name for name in PREFERRED)
        packages = [{"name": name, "version": version} for name, version in sorted(preferences.items())]
        preferred = {"lock-version": "1.0", "created-by": "gpuinstall", "packages": packages}
        lock.write_text(tomli_w.dumps(preferred), encoding="utf-8")
        requirements.write_text("".join(map("{0[0]}=={0[1]}\n".format, preferences.items())), encoding="utf-8")
        (folder / "pyproject.toml").write_text(self.document, encoding="utf-8")
        (folder / "addresses.in").write_text("\n".join(self.addresses), encoding="utf-8")
        (folder / "uv.toml").write_text(resolver_settings(self.pages, unlisted), encoding="utf-8")

    @property
    def unlisted(self) -> frozenset[str]:
        """The packages whose page is empty: what the name means elsewhere is nobody's business."""
        return frozenset(package for package, wheels in self.pages.items() if not wheels)

    @property
    def addresses(self) -> list[str]:
        """What is asked for by address, which the project's own table cannot hold, for uv, which stands elsewhere."""
        return [_located(text, self.folder) for text in self.requirements if parse_requirement(text).url]

    @property
    def inputs(self) -> list[str]:
        """The files of the folder that uv resolves."""
        return ["pyproject.toml", *(["addresses.in"] if self.addresses else [])]

    @property
    def document(self) -> str:
        """The text of pyproject.toml."""
        project = {"name": "the-request", "version": "0", "requires-python": f"=={self.python}.*"}
        dependencies = [text for text in self.requirements if not parse_requirement(text).url]
        return tomli_w.dumps({"project": {**project, "dependencies": dependencies}})

    def compile(self, folder: Path, session: Session, *, reasons: bool = False) -> Finished:
        """Have uv resolve it in ``folder``: into a lock, or into requirements with the ``reasons`` of each."""
        self.write(folder, session.scratch)
        into = uv.compile_with_reasons if reasons else uv.compile_lock
        # Whose code runs, and what it is built with.
        python = None if self.python == RUNNING_PYTHON else find_python(self.python)
        command = into(python or session.python, self.python, self.target.uv_platform, self.wheels_only)
        into_file = ["--output-file", PREFERRED[reasons]] if self.pins.preferred else []
        oldest = {"MACOSX_DEPLOYMENT_TARGET": self.target.macos} if self.target.os == "macos" else {}
        session = replace(session, environment={**session.environment, **oldest})
        return _run_uv(command, [*self.inputs, *into_file], folder, session, self.addresses)


def resolve_project(project: ResolverProject, session: Session) -> dict[str, Any] | Conflict:
    """Return uv's lock as a document; raise InstallationError where there is none for want of something else."""
    text = _resolved(project, session)
    return text if isinstance(text, Conflict) else tomli.loads(LOGIN.sub("", text))


def resolve_versions(project: ResolverProject, session: Session) -> ResolvedVersions | Conflict:
    """The same for the versions alone, with who asked for each."""
    text = _resolved(project, session, reasons=True)
    return text if isinstance(text, Conflict) else parse_versions(text)


def simple_page(wheels: Iterable[Wheel]) -> str:
    """Write a simple-index page with absolute addresses."""
    return "<!DOCTYPE html><html><body>\n" + "".join(_link(wheel) for wheel in wheels) + "</body></html>\n"


def parse_versions(requirements: str) -> ResolvedVersions:
    """Read annotated requirements, each with who asked for it on its line."""
    lines = re.findall(r"^([\w.-]+)==(\S+)(?:\s+# via (.+))?$", requirements, re.MULTILINE)
    return {
        name: (version, tuple(who for part in via.split(",") if re.fullmatch(r"[\w.-]+", who := part.strip())))
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


def _resolved(project: ResolverProject, session: Session, *, reasons: bool = False) -> str | Conflict:
    with tempfile.TemporaryDirectory(dir=session.scratch) as folder:
        done = project.compile(Path(folder), session, reasons=reasons)
    if done.ok:
        return done.out
    requested = {parse_requirement(text).name for text in project.requirements}
    names = PackageNames(session, frozenset({*requested, *project.pins.preferred}), project.pages)
    failure = explain_failure(done.err, project.unlisted, names)
    if isinstance(failure, Conflict):
        return failure
    raise failure


def _run_uv(
    command: Sequence[str], inputs: Iterable[str], folder: Path, session: Session, addresses: Iterable[str] = ()
) -> Finished:
    """Run uv's resolver on ``inputs``, files of ``folder``; every package whose code has to run is named before.

    With ``session.only_binary`` only what is asked for by ``addresses`` may be built; what ``command`` says is never
    built is not in either case.
    """
    command = [*command, *(_WHEELS_ALONE if session.only_binary else ())]
    variables, tried = dict(session.environment), set[str]()
    if variables.pop("UV_NO_CACHE", ""):  # what is learned is asked for again, so that uv has to keep it
        variables["UV_CACHE_DIR"] = str(folder / "cache")

    def run(*words: str, **more: str) -> Finished:
        return process.run([*command, *words], env={**variables, **more}, cwd=folder, patience=session.patience)

    while True:
        done = run(*inputs, **_NO_CODE)
        stopped, meant = FAILED_BUILD.search(done.err), _BY_ADDRESS.search(done.err)
        if session.only_binary and meant and not {meant[1], _built(meant[1])} & set(command):
            command.append(_built(meant[1]))
            continue
        if done.ok or meant or not stopped:
            return done
        if stopped[1] in tried:  # uv has not kept what it learned
            return run(*inputs)
        tried.add(stopped[1])
        _announce(stopped[1], session)
        (folder / "alone.in").write_text(_as_asked(stopped[1], addresses), encoding="utf-8")
        pages = {page: page.read_text("utf-8") for page in folder.glob("family/*/index.html")}
        for page, text in pages.items():
            page.write_text(without_unknown(text), "utf-8")
        alone = run(*_WHEELS_ALONE, _built(re.split(r"[ =]", stopped[1])[0]), "alone.in")
        for page, text in pages.items():
            page.write_text(text, "utf-8")
        if stopped[1] in FAILED_BUILD.findall(alone.err):
            return alone


def _announce(package: str, session: Session) -> None:
    if package not in session.announced:
        session.announced.add(package)
        name = package.replace("==", " ")
        session.reporter.notice("Code", f"{name} has no metadata until it is built: its build code runs now")


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
    href = html.escape(f"{wheel.url.partition('#')[0]}#sha256={wheel.sha256 or unknown_hash(wheel.url)}")
    metadata = f"sha256={wheel.metadata_sha256}" if wheel.metadata_sha256 else "true"
    attribute = f' data-core-metadata="{metadata}"' if wheel.metadata else ""
    return f'<a href="{href}"{attribute}>{html.escape(wheel.filename)}</a><br>\n'
