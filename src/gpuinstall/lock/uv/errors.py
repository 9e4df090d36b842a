"""What uv's failures mean: no network, a full disk, no such package, a contradiction; or a package's own build.

A failed build is told with the name of its package and its last lines, the cause last, and a fix if one is known.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from gpuinstall.base.advice import uv_program
from gpuinstall.base.errors import GpuInstallError, InstallationError, NoBuildError
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import without_logins
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.uv.builds import NO_WHEEL, WITH_SOURCES
from gpuinstall.sources.web import HINT_OF_LOGIN, OFFLINE, ways_to_network

BUILD_FAILED = "build-failed"
FAMILY_UNLISTED = "family-unlisted"
"""The code of one of PyTorch's packages that none of its sources has."""

_LONGEST = 1200
"""How much of uv's account is told: with message and advice a refusal has at most 1,500 characters."""

_LINES = 15
"""How many of the build's last lines are kept."""

FAILED_BUILD = re.compile(r"Failed to (?:download and )?build `([^`]+)`")
_BACKEND = "build backend returned an error"
_CAUSE = re.compile(
    r"(?:[\w.]+\.)?\w*(?:Error|Exception|Exit)\b|.*\b(?:fatal )?error\b:?|fatal:",
    re.IGNORECASE,
)
_ARROWS = " ×╰─▶│├"
_ERROR = re.compile(r"^ *(?:error:|×)", re.MULTILINE)
"""What begins a failure; progress may come before it."""
_NO_CAUSE = re.compile(r"warning:|hint:(?!.* was filtered by `exclude-newer`)|\d* ?\|")
"""The beginnings of lines without a cause.

A hint that a setting hides the version is one. A quoted line of a file is none: a
link in a repository may lead to a secret of the user.
"""
_FRAME = ("[stdout]", "[stderr]", "hint:", "note:", "warning:")

_ALONE = (
    "uv pip install --python .venv --no-build-isolation {package}"
    "   # afterwards, with its build tools: setuptools wheel packaging ninja"
)
REMAKE = "Run it again with --upgrade: it makes the lock again\ngpuinstall lock --upgrade   # makes every lock here again"


class _Row(NamedTuple):
    """What uv writes, and the error that it is; the names of groups stand in the texts."""

    pattern: str
    code: str
    message: str
    hint: str | None = None
    why: str | None = None
    """None: uv's own words."""

    id: str | None = None
    error: type[GpuInstallError] = InstallationError


_UNDECLARED_TORCH = _Row(
    r"`(?P<package>[\w.-]+)` depends on `torch`, but doesn't declare it",
    "build-needs-torch",
    "the dependencies of {package} are known only when it is built, and its setup imports torch",
    f"Run it again without {{package}}\n{_ALONE}",
    why="uv builds it in isolation, without torch",
    id="F73",
)
_OF_LOCK = (
    _Row(
        # A power cut leaves empty files in uv's cache.
        r"(?s)install: \S+\.whl \((?P<package>[^\s=]+)==.*The wheel is invalid",
        "cache-damaged",
        "{package} is damaged in uv's cache",
        "{uv} cache clean {package}   # then run it again",
    ),
    _Row(
        r"Hash mismatch(?: for `?(?P<package>[^\s`]+))?",
        "hash-mismatch",
        "{package} is not the locked file",
        "gpuinstall lock --upgrade   # only if you trust the source: the file is not the one that was locked",
    ),
    _Row(
        r"HTTP status client error \(4(03|04|10)",
        "file-gone",
        "a locked file is no longer at its URL",
        REMAKE,
    ),
)
"""What uv writes if it installs a lock."""

_OF_THE_WORLD = (
    _Row(
        "No space left on device|os error 28",
        "no-space",
        "a disk is full",
        "Set UV_CACHE_DIR to a folder on another disk, or free some space",
    ),
    _Row(
        "Failed to initialize cache",
        "not-writable",
        "uv cannot write to its cache",
        "Set UV_CACHE_DIR to another folder",
    ),
    _Row(
        r'os error 13(?:\) at path "(?P<place>.+)/)?',
        "not-writable",
        "uv has no permission to write there",
        "ls -ld {place}   # if it is uv's cache, UV_CACHE_DIR names another",
    ),
    _Row("HTTP status", "http-status", "a package index refuses a file that it lists"),
    _Row(
        "found in the cache|needs to be downloaded from a registry"
        "|network was disabled|Network connectivity is disabled",
        "offline",
        "this run is offline, and the cache lacks what uv needs",
        OFFLINE.hint,
    ),
    _Row(
        "error sending request|Failed to fetch|Could not connect|dns error|timed out|tls handshake",
        "network",
        "the package index is unreachable",
    ),
    _Row("Git operation failed", "repository", "a Git repository could not be fetched"),
    _Row(
        r"Failed to download `(?P<package>[^`]+)`\n.*Failed to extract archive",
        "file-damaged",
        "{package} arrived damaged",
        "Run it again; if that ends the same way, its file is damaged on the server, or in the folder of --wheels",
    ),
)
_OF_THE_REQUEST = (
    _Row(
        r"Wheels are required for `(?P<package>\S+)` because .* disabled for all packages",
        "only-binary",
        f"{{package}} {NO_WHEEL}",
        WITH_SOURCES,
        error=NoBuildError,
    ),
    _Row(
        # What it has is not known then: uv asks no further index.
        r"(?s)was not found in the.*An index URL \((?P<index>\S+)\) could not be queried"
        r".*credentials \((?P<status>\d+)",
        "http-status",
        "{index} answered {status}",
        HINT_OF_LOGIN,
        why="",
    ),
    _Row(
        r"Because (?P<package>\S+) was not found in the (?:package registry|provided package loc)",
        "package-not-found",
        "the index has no package called {package}",
        "Check the name",
        why="",
    ),
    _Row(
        "No solution found",
        "requirements-conflict",
        "no versions satisfy all requirements",
        "Request fewer packages, or other versions",
        error=NoBuildError,
    ),
)


class Conflict(NamedTuple):
    """Requirements that cannot be had together, or not with the torch that was chosen.

    It is a value while another choice may still serve, and its ``error`` is raised if none does.
    """

    error: GpuInstallError

    @property
    def why(self) -> str:
        """What stands against what."""
        if isinstance(self.error, InstallationError):
            # What a build printed names its tools, not its package.
            return self.error.message
        return self.error.why or self.error.message


def unwrapped(message: str) -> str:
    """Return uv's message on one line: it breaks lines anywhere, also within the name of a package at an address."""
    return " ".join(message.split())


def explain_failure(
    message: str,
    unlisted: Collection[str] = (),
) -> GpuInstallError | Conflict:
    """Turn uv's failure into a conflict, or into an error of ours: a build, no network, no such package.

    Args:
        message: What uv wrote.
        unlisted: Packages that no source of the family has.
    """
    error = (
        _error_of(message, _UNDECLARED_TORCH)
        or build_failure(message)
        or _error_of(message, *_OF_THE_WORLD)
    )
    if error:
        return error
    unlisted_package = _unlisted_package(message, unlisted)
    if unlisted_package:
        return unlisted_package
    refusal = _error_of(message, *_OF_THE_REQUEST)
    # Where nothing is there to be asked, another request would not help.
    if refusal and refusal.code != "http-status":
        return Conflict(refusal)
    return refusal or InstallationError(
        "resolution-failed",
        "uv could not resolve the requirements",
        why=_sentences(message),
    )


def explain_installation(message: str) -> GpuInstallError:
    """Turn uv's failure to install a lock into an error of ours."""
    known = build_failure(message) or _error_of(message, *_OF_LOCK, *_OF_THE_WORLD)
    return known or InstallationError(
        "installation-failed",
        "uv could not create the environment",
        why=_sentences(message),
    )


def _sentences(message: str) -> str:
    """Return what uv wrote on one line, without arrows and labels."""
    lines = []
    begin = _ERROR.search(message)
    if begin:
        message = message[begin.start() :]
    for text in message.splitlines():
        line = text.strip(_ARROWS)
        if line and not _NO_CAUSE.match(line):
            lines.append(re.sub("^hint: (.*) Consider .*", r"\1", line))
    cause = " ".join(lines).replace(" cause: ", "; ")
    cause = re.sub(r"\berror: ", "", cause)
    if len(cause) > _LONGEST:
        # Its end says what it comes to.
        _, _, end = cause[-_LONGEST:].partition(" And because ")
        cause = f"… because {end}" if end else f"{cause[:_LONGEST]}…"
    return cause


def _error_of(message: str, *rows: _Row) -> GpuInstallError | None:
    """Return the error of the first row that is about a message."""
    for row in rows:
        found = re.search(row.pattern, message)
        if not found:
            continue
        # uv does not always say which file it was.
        names = {name: text or "a file" for name, text in found.groupdict().items()}
        names["uv"] = quoted(uv_program())
        names["place"] = quoted(found.groupdict().get("place") or ".")
        hint = row.hint
        if row.code == "network":
            hint = ways_to_network()
        why = row.why
        if why is None:
            # Git's own words, without its long command line.
            why = _sentences(message).rpartition(" --- stderr ")[2]
        error = row.error(
            row.code,
            row.message.format(**names),
            why=why,
            hint=hint and hint.format(**names),
            id=row.id,
        )
        # By it the command is run once more, with the certificates of the system.
        error.untrusted = "UnknownIssuer" in message
        return error
    return None


def build_failure(message: str) -> InstallationError | None:
    """Explain uv's message of a build that failed; None if it is of something else."""
    from gpuinstall.catalog.failures.classify import classify

    failed = FAILED_BUILD.search(message)
    if failed is None or _BACKEND not in message:
        return None
    package = unwrapped(failed[1])
    output = without_logins(message.partition(_BACKEND)[2])
    lines = []
    last = 0
    for text in output.splitlines():
        line = text.strip(_ARROWS).rstrip()
        if line and not line.startswith(_FRAME):
            lines.append(line)
            if _CAUSE.match(line):
                last = len(lines)
    # Up to the last that names an error.
    lines = lines[: last or None][-_LINES:] or [_BACKEND]
    evidence = "\n".join(lines)
    known = next(iter(classify(evidence)), None)
    name, _, place = package.partition(" @ ")
    name = name.partition("==")[0]
    hint = (
        f"Request a version of {name} that has a wheel, or install what its build needs"
    )
    if place.startswith("file:"):
        hint = f"Bring all files of {name} here, and install what its build needs"
    if known and known.fix:
        hint = "\n".join(known.fix)
    return InstallationError(
        BUILD_FAILED,
        f"{package} has no wheel for this machine, and building it failed",
        why=known.title if known else lines[-1],
        # Output of a build must not look like our own.
        evidence="\n".join(f"| {line}" for line in lines),
        hint=hint,
        id=known.id if known else None,
    )


def failed_package(failed: InstallationError) -> str:
    """Return the name of the package of a failed build, of which another version may have a wheel."""
    package = re.match(r"(?:the dependencies of )?([\w.-]+)", failed.message)
    if package:
        return package[1].lower()
    return ""


def _unlisted_package(
    message: str,
    unlisted: Collection[str],
) -> Conflict | None:
    absent = re.findall(r"no versions? of ([\w.-]+)", message)
    package = min(set(absent).intersection(unlisted), default=None)
    if package is None:
        return None
    cause = _sentences(message)
    if package not in load_catalog().family and (
        package not in load_extensions().unclaimed
    ):
        # A hint to request it elsewhere would let anybody register it there.
        return Conflict(
            InstallationError(
                "package-unlisted",
                f"the only configured source of {package} does not list it",
                why=cause,
                hint=f"Check the index that your files name for {package}",
            )
        )
    error: GpuInstallError = InstallationError(
        FAMILY_UNLISTED,
        f"{package} is a PyTorch package, and no source of PyTorch has it",
        why=cause,
        hint=f"Request {package} too: it comes from the default index",
    )
    extensions = load_extensions()
    if package in extensions.unclaimed:
        sources = ", ".join(source.id for source in extensions.rows[package].sources)
        error = NoBuildError(
            "extension-unlisted",
            f"{package} is taken from {sources or 'no source'} alone, and only if it is requested by name",
            why=cause,
            hint=f"gpuinstall lock --dry-run -v {package}   # what fits here",
        )
    return Conflict(error)
