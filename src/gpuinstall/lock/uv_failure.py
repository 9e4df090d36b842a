"""What uv's failures mean: no network, a full disk, no such package, a contradiction; or a package's own build.

A failed build is told with the name of its package and its last lines, the cause last, and a fix where one is known.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple, Protocol

from gpuinstall.errors import GpuInstallError, InstallationError, NoBuildError
from gpuinstall.extensions.rows import load_extensions
from gpuinstall.lock.source_builds import NO_WHEEL, WITH_SOURCES
from gpuinstall.text import some, without_logins
from gpuinstall.web.answers import ways_to_network

FAMILY_UNLISTED = "family-unlisted"
"""The code of one of PyTorch's packages that none of its sources has."""

_LINES = 15
"""How many of the build's last lines are kept."""

FAILED_BUILD = re.compile(r"Failed to (?:download and )?build `([^`]+)`")
_BACKEND = "build backend returned an error"
_CAUSE = re.compile(
    r"(?:[\w.]+\.)?\w*(?:Error|Exception|Exit)\b|.*\b(?:fatal )?error\b:?|fatal:", re.IGNORECASE
)
_FRAME = ("[stdout]", "[stderr]", "hint:", "note:", "warning:")

_OFFLINE = ("found in the cache", "needs to be downloaded from a registry", "network was disabled")
_NETWORK = (
    "error sending request",
    "Failed to fetch",
    "Could not connect",
    "dns error",
    "timed out",
    "tls handshake",
)
ONLINE = "the same without --offline"
_ELSEWHERE = "export UV_CACHE_DIR=/path/to/folder   # another folder"
_ROOM = "export UV_CACHE_DIR=/path/to/folder   # on another disk, or free some space"
_OF_THE_WORLD = (
    (("No space left on device", "os error 28"), "no-space", "a disk is full", _ROOM),
    (("Failed to initialize cache",), "not-writable", "uv cannot write to its cache", _ELSEWHERE),
    (("HTTP status",), "http-status", "a package index refuses a file that it lists", None),
    (_OFFLINE, "offline", "this run is offline, and a package is not in the cache", ONLINE),
    (_NETWORK, "network", "the package index is unreachable", None),
    (("Git operation failed",), "repository", "a Git repository could not be fetched", None),
)


class Conflict(NamedTuple):
    """Requirements that cannot be had together, or not with the torch that was chosen.

    It is a value where another choice may still serve, and its ``error`` is raised where none does.
    """

    error: GpuInstallError

    @property
    def why(self) -> str:
        """What stands against what."""
        return self.error.why or self.error.message

    def against(self, package: str) -> Conflict:
        """The same, said to stand against a package."""
        error, kind = self.error, type(self.error)
        return Conflict(
            kind(
                error.code,
                f"{package} is unavailable: {error.message}",
                why=error.why,
                hint=error.hint,
            )
        )


def unwrapped(message: str) -> str:
    """Return uv's message on one line: it breaks lines anywhere, also within the name of a package at an address."""
    return " ".join(message.split())


class IndexAnswers(Protocol):
    """What the default index says of a package."""

    def newest(self, package: str) -> str | None:
        """Return its newest version; None if that is not known."""

    def likely(self, mistyped: str) -> str | None:
        """Return the name that was probably meant; None if there is none."""


class NoAnswers:
    """The answers where nobody is asked."""

    def newest(self, package: str) -> str | None:  # noqa: ARG002
        """Know no version."""
        return None

    def likely(self, mistyped: str) -> str | None:  # noqa: ARG002
        """Know no name."""
        return None


def explain_failure(
    message: str, unlisted: Collection[str] = (), index: IndexAnswers | None = None
) -> InstallationError | Conflict:
    """Turn uv's failure into a conflict, or into an error of ours: a build, no network, no such package.

    Args:
        message: What uv wrote.
        unlisted: Packages that no source of the family has.
        index: What can be asked of the default index; None: nothing.
    """
    lines = [line.strip(" ×╰─▶│├") for line in message.splitlines()]
    account = " ".join(
        line for line in lines if line and not line.startswith(("warning:", "hint:"))
    )
    cause = re.sub(
        r"\berror: ", "", re.sub(r" cause: ", "; ", account)
    )  # its sentences without arrows and labels
    cause = cause.replace("the-request depends on", "you require")
    needing = re.search(r"`([\w.-]+)` depends on `torch`, but doesn't declare it", message)
    if failed := _needs_torch(needing[1]) if needing else build_failure(message):
        return failed
    for signs, code, sentence, hint in _OF_THE_WORLD:
        if any(sign in message for sign in signs):
            cause = cause.rpartition(" --- stderr ")[
                2
            ]  # Git's own words, without its long command line
            return InstallationError(
                code, sentence, why=cause, hint=ways_to_network() if code == "network" else hint
            )
    if explained := _of_one_package(message, cause, unlisted, index or NoAnswers()):
        return explained
    if "No solution found" in message:
        sentence = "no versions satisfy all requirements"
        return Conflict(
            NoBuildError("requirements-conflict", sentence, why=cause, hint=_other_versions(cause))
        )
    return InstallationError(
        "resolution-failed", "uv could not resolve the requirements", why=cause
    )


def build_failure(message: str) -> InstallationError | None:
    """Read uv's message of a build that failed; None where it is of something else."""
    from gpuinstall.failures.classify import classify

    failed = FAILED_BUILD.search(message)
    if failed is None or _BACKEND not in message:
        return None
    package = unwrapped(failed[1])
    name = re.split(r"[=@ ]", package)[0]
    output = without_logins(message.partition(_BACKEND)[2])
    lines = [line.strip(" ×╰─▶│├").rstrip() for line in output.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_FRAME)] or [_BACKEND]
    last = max(
        (position for position, line in enumerate(lines) if _CAUSE.match(line)),
        default=len(lines) - 1,
    )
    lines = lines[: last + 1][-_LINES:]  # up to the last that names an error
    failure = next(iter(classify("\n".join(lines))), None)
    why, fix, identity = (
        (failure.title, failure.fix, failure.id) if failure else (lines[-1], (), None)
    )
    message = f"{package} has no wheel for this machine, and building it failed"
    hint = (
        "\n".join(fix)
        or f"Request a version of {name} that has a wheel, or install what its build needs"
    )
    return InstallationError(
        "build-failed", message, why=why, evidence="\n".join(lines), hint=hint, id=identity
    )


def _other_versions(cause: str) -> str:
    """Advise to request the packages differently whose versions are requested."""
    lists = re.findall(r"you require ((?:[\w.-]+[^\s,]*(?:,[<>=!~]\S+)?(?: and )?)+)", cause)
    names = re.findall(r"([A-Za-z][\w.-]*)[\[<>=!~]", " ".join(lists))
    if not names:
        return "Request fewer packages, or other versions"
    return f"Request {some(list(dict.fromkeys(names)))} in other versions, or in any"


def _of_one_package(
    message: str, cause: str, unlisted: Collection[str], index: IndexAnswers
) -> InstallationError | Conflict | None:
    """Explain what stands against one package, whatever else is requested."""
    if absent := {*re.findall(r"no versions? of ([\w.-]+)", message)} & {*unlisted}:
        package = min(absent)
        if package in load_extensions().unclaimed:
            sources = ", ".join(source.id for source in load_extensions().rows[package].sources)
            message = f"{package} is taken from {sources or 'no source'} alone, and only if it is requested by name"
            hint = f"gpuinstall extensions {package}   # what fits here"
            return Conflict(NoBuildError("extension-unlisted", message, why=cause, hint=hint))
        sentence = f"{package} is a PyTorch package, and no source of PyTorch has it"
        hint = f"the same with {package}   # takes it from the default index"
        return Conflict(InstallationError(FAMILY_UNLISTED, sentence, why=cause, hint=hint))
    if unbuilt := re.search(
        r"Wheels are required for `(\S+)` because .* disabled for all packages", message
    ):
        return Conflict(
            NoBuildError("only-binary", f"{unbuilt[1]} {NO_WHEEL}", why=cause, hint=WITH_SOURCES)
        )
    if missing := re.search(
        r"Because (\S+) was not found in the (?:package registry|provided package loc)", message
    ):
        package = missing[1]
        likely = index.likely(package)
        hint = f"the same with {likely} in place of {package}" if likely else "Check the name"
        return InstallationError(
            "package-not-found", f"the index has no package called {package}", hint=hint
        )
    return _missing_version(cause, index)


def _missing_version(cause: str, index: IndexAnswers) -> Conflict | None:
    """Explain a version that is requested and that the default index does not have."""
    exact = re.search(r"there is no version of ([\w.-]+)==(\S+) and you require \1==\2[ ,]", cause)
    bounded = re.search(
        r"only ([\w.-]+)(?:<=?|==)[\w.]+ is available and you require (\1[<>=!~]\S+?),? ", cause
    )
    if exact:
        package, requirement = exact[1], f"{exact[1]}=={exact[2]}"
    elif bounded:
        package, requirement = bounded[1], bounded[2]
    else:
        return None
    newest = index.newest(package)
    # A package of another source, or offline: it may exist where nobody was asked.
    return version_not_found(package, requirement, newest) if newest else None


def version_not_found(package: str, requirement: str, newest: str) -> Conflict:
    """Return that no release of a package is what is required of it."""
    exact = re.fullmatch(r"[^=]*==([\w.+!]+)", requirement)
    message = f"{package} {exact[1]} does not exist" if exact else f"there is no {requirement}"
    hint = f"the same with {package} in place of {requirement}"
    return Conflict(
        NoBuildError("version-not-found", f"{message}; the newest is {newest}", hint=hint)
    )


def _needs_torch(package: str) -> InstallationError:
    message = f"the dependencies of {package} are known only when it is built, and its setup imports torch"
    build = f"uv pip install --python .venv --no-build-isolation {package}"
    tools = "# afterwards, with its build tools: setuptools wheel packaging ninja"
    hint = f"the same without {package}\n{build}   {tools}"
    why = "uv builds it in isolation, without torch"
    return InstallationError("build-needs-torch", message, why=why, hint=hint, id="F73")
