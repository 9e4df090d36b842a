"""uv as a resolver: the private project that it is given, and what its answers and failures mean.

The project's pages are an index that uv asks first: what has a page comes from it alone, whoever demands it, and
everything else from the default index.
"""

from __future__ import annotations

import hashlib
import html
import re
import tempfile
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli
import tomli_w

from gpuinstall import uv
from gpuinstall.errors import GpuInstallError, InstallationError, NoBuildError
from gpuinstall.lock import setup_code
from gpuinstall.lock.build_failure import build_failure
from gpuinstall.lock.lock import unknown_hash
from gpuinstall.lock.request import VersionPins
from gpuinstall.lock.source_builds import NO_WHEEL, WITH_SOURCES, resolver_settings
from gpuinstall.plan.address import Address
from gpuinstall.plan.requirement import parse_requirement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuinstall.catalog.pages import Wheel
    from gpuinstall.lock.target import Target
    from gpuinstall.process import Finished
    from gpuinstall.session import Session

PREFERRED = "pylock.preferred.toml", "preferred.txt"
"""The lock and the requirements that uv finds where it is to write them, and stays close to."""

_WRITING = threading.Lock()
_LOGIN = re.compile(r"(?<=://)[^/\s\"]+@")
_OFFLINE = ("found in the cache", "needs to be downloaded from a registry", "network was disabled")
_NETWORK = ("error sending request", "Failed to fetch", "Could not connect", "dns error", "timed out", "tls handshake")


ResolvedVersions = dict[str, tuple[str, tuple[str, ...]]]
"""The version of each package, and the names of those that ask for it."""


class ConflictError(NoBuildError):
    """The requirements cannot be had together with the torch that was chosen."""


class UnlistedError(ConflictError):
    """One of PyTorch's packages is demanded, and no source of its own has it."""

    exit_code = InstallationError.exit_code


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

    def write(self, folder: Path, scratch: Path) -> None:
        """Write the project and its pages into ``folder``; the empty ones lie in ``scratch``, once for a whole run."""
        _write_index({package: wheels for package, wheels in self.pages.items() if wheels}, folder / "family")
        unlisted = _empty_index(frozenset(self.pages), scratch)
        (folder / "constraints.txt").write_text("\n".join(self.pins.constraints), encoding="utf-8")
        lock, requirements = (folder / name for name in PREFERRED)
        lock.write_text(_preferences(self.pins.preferred), encoding="utf-8")
        requirements.write_text("".join(map("{0[0]}=={0[1]}\n".format, self.pins.preferred.items())), encoding="utf-8")
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
        return [located(text, self.folder) for text in self.requirements if parse_requirement(text).url]

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
        command = into(session.python, self.python, self.target.uv_platform, self.wheels_only)
        into_file = ["--output-file", PREFERRED[reasons]] if self.pins.preferred else []
        told = replace(session, environment={**session.environment, **self.target.uv_variables})
        return setup_code.resolve(command, [*self.inputs, *into_file], folder, told, self.addresses)


def resolve_project(project: ResolverProject, session: Session) -> dict[str, Any]:
    """Return uv's lock as a document; raise InstallationError or ConflictError where there is none."""
    return tomli.loads(_LOGIN.sub("", _resolved(project, session)))


def resolve_versions(project: ResolverProject, session: Session) -> ResolvedVersions:
    """The same for the versions alone, with who asked for each."""
    return parse_versions(_resolved(project, session, reasons=True))


def _resolved(project: ResolverProject, session: Session, *, reasons: bool = False) -> str:
    with tempfile.TemporaryDirectory(dir=session.scratch) as folder:
        done = project.compile(Path(folder), session, reasons=reasons)
    if not done.ok:
        raise explain_failure(done.err, project.unlisted)
    return done.out


def _empty_index(packages: Collection[str], scratch: Path) -> Path:
    """An index where each of ``packages`` has a page without a wheel; it is there whole, or not at all."""
    index = scratch / f"unlisted-{hashlib.sha256(' '.join(sorted(packages)).encode()).hexdigest()}"
    with _WRITING:
        if not index.exists():
            whole = scratch / "unlisted"
            _write_index(dict.fromkeys(packages, ()), whole)
            whole.rename(index)
    return index


def _write_index(pages: Mapping[str, Iterable[Wheel]], index: Path) -> None:
    index.mkdir(exist_ok=True)
    for package, wheels in pages.items():
        (index / package).mkdir(exist_ok=True)
        (index / package / "index.html").write_text(simple_page(wheels), encoding="utf-8")


def simple_page(wheels: Iterable[Wheel]) -> str:
    """Write a simple-index page with absolute addresses."""
    return "<!DOCTYPE html><html><body>\n" + "".join(_link(wheel) for wheel in wheels) + "</body></html>\n"


def parse_versions(requirements: str) -> ResolvedVersions:
    """Read annotated requirements, each with who asked for it on its line."""
    lines = re.findall(r"^([\w.-]+)==(\S+)(?:\s+# via (.+))?$", requirements, re.MULTILINE)
    return {
        name: (version, tuple(one.strip() for one in via.split(",") if one and "the-request" not in one))
        for name, version, via in lines
    }


def located(text: str, folder: Path) -> str:
    """Write a requirement by address for uv, which stands elsewhere: a path from ``folder`` on becomes absolute."""
    asked = parse_requirement(text)
    address = Address(asked.url or "")
    if address.is_remote:
        return text
    place = (folder / Path(address.text).expanduser()).absolute()
    marker = f" ; {asked.marker}" if asked.marker else ""
    if asked.editable or asked.text.startswith(address.text):
        return f"{'-e ' if asked.editable else ''}{place}{asked.extras}{marker}"
    return f"{asked.name}{asked.extras} @ {place.as_uri()}{marker}"


def explain_failure(message: str, unlisted: Collection[str] = ()) -> GpuInstallError:
    """Turn uv's failure into an error of ours: a build, no network, no such package, or a contradiction.

    ``unlisted`` are packages that no source of the family has.
    """
    cause = _cause(message)
    needing = re.search(r"`([\w.-]+)` depends on `torch`, but doesn't declare it", message)
    if failed := _needs_torch(needing[1]) if needing else build_failure(message):
        return failed
    for signs, code, said, hint in _OF_THE_WORLD:
        if any(sign in message for sign in signs):
            return InstallationError(code, said, why=cause, hint=hint)
    if explained := _of_one_package(message, cause, unlisted):
        return explained
    if "No solution found" in message:
        return ConflictError(
            "requirements-conflict",
            "the requirements do not go together, or not with this machine",
            why=cause,
            hint="ask for fewer versions: gpuinstall install --only torch",
        )
    return InstallationError("resolution-failed", "uv could not resolve the requirements", why=cause)


def _of_one_package(message: str, cause: str, unlisted: Collection[str]) -> GpuInstallError | None:
    """What stands against one package, whatever else is asked for."""
    if absent := {*re.findall(r"no versions? of ([\w.-]+)", message)} & {*unlisted}:
        return _unlisted(min(absent), cause)
    if unbuilt := re.search(r"Wheels are required for `(\S+)` because .* disabled for all packages", message):
        return ConflictError("only-binary", f"{unbuilt[1]} {NO_WHEEL}", why=cause, hint=WITH_SOURCES)
    if missing := re.search(r"Because (\S+) was not found in the (?:package registry|provided package loc)", message):
        package = missing[1]
        return InstallationError(
            "package-not-found", f"no index here has a package called {package}", hint="check the name"
        )
    return None


def _unlisted(package: str, cause: str) -> UnlistedError:
    return UnlistedError(
        "family-unlisted",
        f"{package} is one of PyTorch's packages, and no source of torch has it",
        why=cause,
        hint=f"where the default index's is meant, ask for it by its name: gpuinstall install {package}",
    )


def _needs_torch(package: str) -> InstallationError:
    return InstallationError(
        "build-needs-torch",
        f"what {package} requires is known only when it is built, and its setup imports torch",
        why="uv builds it apart from the environment, where there is no torch",
        hint=f"gpuinstall install   without {package}, then into the environment:\n"
        f"uv pip install --python .venv --no-build-isolation {package}   "
        "with its build tools: setuptools wheel packaging ninja",
        id="F73",
    )


def _preferences(versions: Mapping[str, str]) -> str:
    """Write versions as a lock."""
    packages = [{"name": name, "version": version} for name, version in sorted(versions.items())]
    return tomli_w.dumps({"lock-version": "1.0", "created-by": "gpuinstall", "packages": packages})


def _link(wheel: Wheel) -> str:
    href = html.escape(f"{wheel.url.partition('#')[0]}#sha256={wheel.sha256 or unknown_hash(wheel.url)}")
    return f'<a href="{href}"{_metadata(wheel)}>{html.escape(wheel.filename)}</a><br>\n'


def _metadata(wheel: Wheel) -> str:
    if not wheel.metadata:
        return ""
    known = f"sha256={wheel.metadata_sha256}" if wheel.metadata_sha256 else "true"
    return f' data-core-metadata="{known}"'


_ONLINE = "run the same without --offline"
_RETRY = "try again when there is a network; behind a proxy set HTTPS_PROXY, behind a mirror UV_DEFAULT_INDEX"
_ELSEWHERE = "give uv another folder: export UV_CACHE_DIR=/path/to/folder"
_ROOM = "make room, or give uv another folder: export UV_CACHE_DIR=/path/to/folder"
_OF_THE_WORLD = (
    (("No space left on device", "os error 28"), "no-space", "a disk is full", _ROOM),
    (("Failed to initialize cache",), "not-writable", "uv's cache cannot be written", _ELSEWHERE),
    (("HTTP status",), "http-status", "a package index refused a file that it lists", None),
    (_OFFLINE, "offline", "this run is offline and lacks a package", _ONLINE),
    (_NETWORK, "network", "the package index cannot be reached", _RETRY),
)


def _cause(message: str) -> str:
    """The sentences of uv's message without its arrows, labels and hints."""
    lines = [line.strip(" ×╰─▶│├") for line in message.splitlines()]
    said = " ".join(line for line in lines if line and not line.startswith(("warning:", "hint:")))
    return re.sub(r"\berror: ", "", re.sub(r" cause: ", "; ", said))
