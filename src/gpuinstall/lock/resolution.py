"""One resolution of a request by uv, repeated until every member of the family in it comes from its source."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tomli
from packaging.utils import canonicalize_name

from gpuinstall import process, uv
from gpuinstall.errors import GpuInstallError, InstallationError, InternalError, NoBuildError
from gpuinstall.lock.project import PREFERRED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from gpuinstall.catalog.pages import Wheel
    from gpuinstall.lock.project import Project
    from gpuinstall.lock.target import Target

ROUNDS = 6
_LOGIN = re.compile(r"(?<=://)[^/\s\"]+@")
_OFFLINE = ("found in the cache", "needs to be downloaded from a registry", "network was disabled")
_NETWORK = ("error sending request", "Failed to fetch", "Could not connect", "dns error", "timed out", "tls handshake")


class ConflictError(NoBuildError):
    """The requirements cannot be had together with the torch that was chosen."""


@dataclass(frozen=True)
class Resolver:
    """Resolves in ``folder`` with the interpreter ``python`` and uv's ``environment``.

    ``wheels_of`` gives the wheels of a family package that the chosen backend's sources have for the target, none
    where it is to come from the default index; ``family`` are the names it is asked for.
    """

    folder: Path
    python: Path
    environment: Mapping[str, str]
    family: Collection[str]
    wheels_of: Callable[[str], tuple[Wheel, ...]]

    def resolve(self, project: Project, target: Target) -> tuple[Project, dict[str, Any]]:
        """Return uv's lock as a document, and the project that it came from with a page for every source."""
        for _ in range(ROUNDS):
            done = self._compile(project, target)
            more = self._unlisted(project, done)
            if not more and done.ok:
                return project, tomli.loads(_LOGIN.sub("", done.out))
            if not more:
                raise fault(done.err)
            project = replace(project, pages={**project.pages, **more})
        raise InternalError("resolution-endless", f"the sources of the family did not settle in {ROUNDS} resolutions")

    def _compile(self, project: Project, target: Target) -> process.Finished:
        project.write(self.folder)
        command = uv.compile_lock(self.python, project.python, target.uv_platform)
        command += ["--output-file", PREFERRED] if project.preferred else []
        return process.run(command, env=self.environment, cwd=self.folder)

    def _unlisted(self, project: Project, done: process.Finished) -> dict[str, tuple[Wheel, ...]]:
        """Find the members of the family in a resolution, or in its failure, that have a source and no page of it."""
        met = names(done.out) if done.ok else mentioned(done.err, self.family)
        new = sorted((met & set(self.family)) - set(project.pages))
        return {package: wheels for package in new if (wheels := self.wheels_of(package))}

    def demands(self, project: Project, target: Target) -> tuple[str, tuple[str, ...]] | None:
        """Resolve with any torch: return the version that the other packages agree on, and who they are."""
        project.write(self.folder)
        command = uv.compile_with_reasons(self.python, project.python, target.uv_platform)
        done = process.run(command, env=self.environment, cwd=self.folder)
        return demanded(done.out) if done.ok else None


def names(lock: str) -> set[str]:
    """The packages of a lock."""
    return {package["name"] for package in tomli.loads(lock).get("packages", ())}


def mentioned(text: str, family: Collection[str]) -> set[str]:
    """The members of the family that a message names."""
    words = {str(canonicalize_name(word)) for word in re.findall(r"[A-Za-z][A-Za-z0-9_-]*", text)}
    return words & set(family)


def demanded(requirements: str) -> tuple[str, tuple[str, ...]] | None:
    """Read torch's version and who demanded it from annotated requirements."""
    line = re.search(r"^torch==(\S+)\s+# via (.+)$", requirements, re.MULTILINE)
    if line is None:
        return None
    via = (name.strip() for name in line[2].split(","))
    return line[1], tuple(name for name in via if "the-request" not in name)


def fault(message: str) -> GpuInstallError:
    """Turn uv's failure into an error of ours: no network, no such package, or a contradiction."""
    cause = _cause(message)
    for signs, code, said, hint in _OF_THE_WORLD:
        if any(sign in message for sign in signs):
            return InstallationError(code, said, why=cause, hint=hint)
    if missing := re.search(r"Because (\S+) was not found in the (?:package registry|provided package loc)", message):
        package = missing[1]
        return InstallationError(
            "package-not-found", f"no source has a package called {package}", why=cause, hint="check the name"
        )
    if "No solution found" in message:
        return ConflictError(
            "requirements-conflict",
            "the requirements contradict each other or this machine",
            why=cause,
            hint="ask for fewer versions: gpuinstall install torch",
        )
    return InstallationError("resolution-failed", "uv could not resolve the requirements", why=cause)


_ONLINE = "run the same without --offline"
_RETRY = "try again when there is a network; behind a proxy set HTTPS_PROXY, behind a mirror UV_DEFAULT_INDEX"
_ELSEWHERE = "give uv another folder: export UV_CACHE_DIR=/path/to/folder"
_OF_THE_WORLD = (
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
