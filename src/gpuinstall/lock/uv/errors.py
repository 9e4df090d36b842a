"""Explain uv's error messages.

uv has no structured errors, so this module contains every uv message that affects
behavior. ``tests/unit/lock/test_uv_texts.py`` makes the pinned uv print each message.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from gpuinstall.base.advice import Advice, Hint, make_change, make_command
from gpuinstall.base.errors import GpuInstallError, InstallationError, NoBuildError
from gpuinstall.base.requirement import is_file_url
from gpuinstall.base.shell import quote_word
from gpuinstall.base.text import remove_logins
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.uv.builds import NO_WHEEL
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.sources.gate import LIST
from gpuinstall.sources.git import REFUSED
from gpuinstall.sources.web import LOGIN_HINT, OFFLINE_HINT, network_hint

BUILD_FAILED = "build-failed"
FAMILY_UNLISTED = "family-unlisted"
"""The error code if no source of PyTorch packages lists a package."""
FILTERED = "was filtered by `exclude-newer`"
"""uv's words about a version that is too new."""
DAMAGED_FILE = {"file-damaged", "hash-mismatch"}
"""The error codes if the content of a file is wrong."""

_LONGEST = 1200
"""Maximum length of uv's message, to limit an error to 1,500 characters."""

_LINES = 15
"""Maximum number of lines of build output."""

_FAILED_BUILD = re.compile(r"Failed to (?:download and )?build `([^`]+)`")
_BACKEND = "build backend returned an error"
_TOOL = re.compile("command|compil|cmake|fatal error", re.IGNORECASE)
"""The words of an error of a build tool, such as a compiler."""
_CONFLICT = "No solution found when resolving dependencies"
_STOPPED = re.compile(
    rf"{_BACKEND}|Building source distributions (?:for `[^`]+` )?is disabled"
)
_MISSING_EXTRA = re.compile(
    r"package `([\w.-]+)(?:==(\S+)| @ [^`]+)` does not have an extra named `([\w.-]+)`"
)
_CAUSE = re.compile(
    r"(?:[\w.]+\.)?\w*(?:Error|Exception|Exit)\b|.*\b(?:fatal )?error\b:?|fatal:",
    re.IGNORECASE,
)
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_ARROWS = " ×╰─▶│├"
_ERROR = re.compile(r"^ *(?:error:|×)", re.MULTILINE)
"""The start of an error, after progress messages."""
_NO_CAUSE = re.compile(rf"warning:|hint:(?!.* {FILTERED})|\d* ?\|")
"""The start of lines that do not explain an error.

A hint about ``exclude-newer`` does explain an error. Quoted lines of files are dropped,
because a symbolic link in a repository may point to the user's secrets.
"""
_FRAME = ("[stdout]", "[stderr]", "hint:", "note:", "warning:")

UPDATE_LOCK = (
    make_change("--upgrade", note="rebuilds the lock"),
    make_command("lock --upgrade", note="rebuilds every lock in this folder"),
)

_CHANGED_FILE = "only if you trust the source: its file has changed"
_REFUSED_FILE = "a package index refused to serve a file that it lists"
_UNWRITABLE_CACHE = "if it is uv's cache, set UV_CACHE_DIR to another folder"
_READS_REPOSITORY = "shows whether Git can read the repository"


class FailedBuildError(InstallationError):
    """An error that reports the failed build of a package."""

    package = ""
    """The name in lowercase; empty for a package by URL or path."""


class _ErrorPattern(Value):
    """A pattern of uv messages, and its error, formatted with named groups."""

    pattern: str
    code: str
    message: str
    hints: tuple[Hint, ...] = ()
    why: str = "{cause}"
    """The reason for the error, by default uv's message."""

    id: str | None = None
    error: type[GpuInstallError] = InstallationError


_DECLARE_TORCH = (
    'Add {package} = ["torch"] to [tool.uv.extra-build-dependencies] in pyproject.toml'
)
_UNDECLARED_TORCH = _ErrorPattern(
    r"`(?P<package>[\w.-]+)(?:@[^`]+)?` depends on `torch`, but doesn't declare it",
    "build-needs-torch",
    "determining the dependencies of {package} requires building it, and its build imports torch",
    (_DECLARE_TORCH,),
    why="uv builds it in isolation, without torch",
    id="F73",
    error=FailedBuildError,
)
_INSTALLATION_ERRORS = (
    _ErrorPattern(
        # A power failure can leave empty files in uv's cache.
        r"(?s)install: \S+\.whl \((?P<package>[^\s=]+)==.*The wheel is invalid",
        "cache-damaged",
        "{package} is damaged in uv's cache",
        (Advice("uv", ("cache", "clean", "{package}"), note="then run it again"),),
    ),
    _ErrorPattern(
        r"Hash mismatch(?: for `?(?P<package>[^\s`]+))?",
        "hash-mismatch",
        "the hash of {package} does not match the lock",
        (make_command("lock --upgrade", note=_CHANGED_FILE),),
    ),
    _ErrorPattern(
        r"HTTP status client error \(4(03|04|10)",
        "file-gone",
        "a locked file is no longer at its URL",
        UPDATE_LOCK,
    ),
)

_SYSTEM_ERRORS = (
    _ErrorPattern(
        rf"(?s)(?:'{REFUSED}' not allowed.*?clone of '|git\+(?=\S+`\n.*'remote-{REFUSED}'))"
        r"(?P<address>[^'`\s]+)",
        "folder-not-trusted",
        "a repository in trusted-sources requires {address}, which is not in the list",
        (LIST,),
        why="Git fetches submodules and required repositories only from the list",
    ),
    _ErrorPattern(
        "No space left on device|os error 28",
        "no-space",
        "a disk is full",
        ("Set UV_CACHE_DIR to a folder on another disk, or free some space",),
    ),
    _ErrorPattern(
        "Failed to initialize cache",
        "not-writable",
        "uv cannot write to its cache",
        ("Set UV_CACHE_DIR to another folder",),
    ),
    _ErrorPattern(
        r'os error 13(?:\) at path "(?P<place>.+)/)?',
        "not-writable",
        "permission denied: uv cannot write a file",
        (Advice("ls", ("-ld", "{place}"), note=_UNWRITABLE_CACHE),),
    ),
    _ErrorPattern(
        r"Failed to read `--find-links` directory: (?P<place>[^\n]+)",
        "find-links-unreadable",
        "the find-links folder {place} cannot be read",
        ("Check the path",),
    ),
    _ErrorPattern(
        r"(?s)`\S+ @ (?P<address>[^`]+)`.*HTTP status \w+ error \((?P<status>\d+)",
        "http-status",
        "{address} returned HTTP status {status}",
        ("Check the URL",),
        why="",
    ),
    _ErrorPattern(
        r"HTTP status client error \(40[13]",
        "http-status",
        _REFUSED_FILE,
        (LOGIN_HINT,),
    ),
    _ErrorPattern("HTTP status", "http-status", _REFUSED_FILE),
    _ErrorPattern(
        r"(?P<cause>\S+ was not found in the cache)|found in the cache"
        "|needs to be downloaded from a registry"
        "|network was disabled|Network connectivity is disabled",
        "offline",
        "this run is offline, and the cache lacks a file that uv needs",
        OFFLINE_HINT,
    ),
    _ErrorPattern(
        r"(?s)Failed to download `\S+ @ (?P<address>[^`]+)`.*error sending request.*cause: (?P<cause>[^\n]+)",
        "network",
        "{address} cannot be reached",
        ("Check the URL, and set HTTPS_PROXY if you use a proxy",),
    ),
    _ErrorPattern(
        "(?s)(?:error sending request|Failed to fetch|Could not connect|dns error|timed out|tls handshake)"
        r"(?:.*?\w+://(?:[^/@`\s]*@)?(?P<host>[^/`\s)]+))?(?:.*cause: (?P<cause>[^\n]+))?",
        "network",
        "{host} cannot be reached",
    ),
    _ErrorPattern(
        r"(?s)Git operation failed.*?`\S*git fetch [^`']*'(?P<address>[^`']+)'",
        "repository",
        "{address} could not be fetched with Git",
        (Advice("git", ("ls-remote", "{address}"), note=_READS_REPOSITORY),),
    ),
    _ErrorPattern(
        "Git operation failed", "repository", "a Git repository could not be fetched"
    ),
    _ErrorPattern(
        r"Failed to download `(?P<package>[^`]+)`\n.*Failed to extract archive",
        "file-damaged",
        "{package} is damaged",
        ("Run it again; if it fails again, replace the file in its source",),
    ),
)
_REQUEST_ERRORS = (
    _ErrorPattern(
        r"Wheels are required for `(?P<package>\S+)` because .* disabled for all packages",
        "only-binary",
        f"{{package}} {NO_WHEEL}",
        error=NoBuildError,
    ),
    _ErrorPattern(
        # After this error, uv does not try other indexes.
        r"(?s)was not found in the.*An index(?: URL)? \((?P<index>\S+)\) .*?(?P<status>4\d\d) ",
        "http-status",
        "{index} returned HTTP status {status}",
        (LOGIN_HINT,),
        why="",
    ),
    _ErrorPattern(
        r"Because (?P<package>\S+) was not found in the (?:package registry|provided package loc)",
        "package-not-found",
        "the index has no package named {package}",
        ("Check the name",),
        why="",
    ),
    _ErrorPattern(
        r"Because (?P<package>\S+)==(?P<version>\S+) was yanked .{0,200}?and only (?P=package)==",
        "requirements-conflict",
        "{package} has only a yanked release",
        (make_change("{package}=={version}", without=("{package}",)),),
        error=NoBuildError,
    ),
    _ErrorPattern(
        "No solution found",
        "requirements-conflict",
        "no versions satisfy all requirements",
        error=NoBuildError,
    ),
)


def find_mentioned_names(message: str, names: Collection[str]) -> set[str]:
    """Return the packages that a uv message mentions."""
    return set(names).intersection(_NAME.findall(message))


def needs_build(message: str) -> bool:
    """Return whether uv stopped because it would have to build a package."""
    return _STOPPED.search(_join_lines(message)) is not None


def lacks_members(message: str) -> bool:
    """Return whether uv read a project without the members of its workspace.

    If sources of any package are ignored, uv searches no members.
    """
    return "but is not a workspace member" in _join_lines(message)


def find_unbuilt_package(message: str) -> str | None:
    """Return the package that uv could not build, with its version or URL."""
    failed = _FAILED_BUILD.search(_join_lines(message))
    return failed and failed[1]


def find_missing_extras(message: str) -> list[tuple[str, str, str]]:
    """Return the package, version, and name of each nonexistent extra."""
    return _MISSING_EXTRA.findall(_join_lines(message))


def _join_lines(message: str) -> str:
    """Join the lines of a wrapped uv message."""
    return " ".join(message.split())


def explain_failure(
    message: str,
    unlisted: Collection[str],
) -> GpuInstallError | Conflict:
    """Convert uv's message about a resolution to a conflict or an error.

    Args:
        message: uv's message.
        unlisted: The packages that no source of PyTorch packages lists.

    Returns:
        A conflict if another request may succeed, otherwise an error.
    """
    error = (
        _find_matching_error(message, _UNDECLARED_TORCH)
        or explain_build_failure(message)
        or _find_matching_error(message, *_SYSTEM_ERRORS)
    )
    # Before this conflict, uv retried all requests that failed.
    if error and (error.code == "offline" or _CONFLICT not in message):
        return error
    unlisted_package = min(find_mentioned_names(message, unlisted), default=None)
    if unlisted_package:
        error = _create_unlisted_error(unlisted_package, _format_message(message))
        return Conflict(error, unlisted_package, message)
    error = _find_matching_error(message, *_REQUEST_ERRORS)
    # If an index does not respond, other requests would also fail.
    if error and error.code != "http-status":
        return Conflict(error, message=message)
    return error or InstallationError(
        "resolution-failed",
        "uv could not resolve the requirements",
        why=_format_message(message),
    )


def explain_installation(message: str) -> GpuInstallError:
    """Convert uv's message about the installation of a lock to an error."""
    rows = (*_INSTALLATION_ERRORS, *_SYSTEM_ERRORS)
    known = explain_build_failure(message) or _find_matching_error(message, *rows)
    return known or InstallationError(
        "installation-failed",
        "uv could not create the environment",
        why=_format_message(message),
    )


def _format_message(message: str) -> str:
    """Return uv's message on one line, without arrows and labels."""
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
        # uv's conclusion is at the end.
        _, _, end = cause[-_LONGEST:].partition(" And because ")
        cause = f"… because {end}" if end else f"{cause[:_LONGEST]}…"
    return cause


def _find_matching_error(message: str, *rows: _ErrorPattern) -> GpuInstallError | None:
    """Return the error of the first row that matches a message."""
    for row in rows:
        found = re.search(row.pattern, message)
        if not found:
            continue
        groups = found.groupdict()
        # Use Git's own message, without its long command line.
        cause = _format_message(message).rpartition(" --- stderr ")[2]
        names = {
            # uv does not always report the file name.
            **{name: text or "a file" for name, text in groups.items()},
            "host": groups.get("host") or "the package index",
            "cause": groups.get("cause") or cause,
            "place": groups.get("place") or ".",
        }
        hints = [_fill(one, names) for one in row.hints]
        if not hints and row.code == "network":
            hints = [network_hint()]
        error = row.error(
            row.code,
            row.message.format(**names),
            why=row.why.format(**names),
            hint=tuple(hints),
            id=row.id,
        )
        if isinstance(error, FailedBuildError):
            error.package = names["package"].lower()
        if isinstance(error, InstallationError):
            error.host = groups.get("host") or ""
        return error
    return None


def _fill(hint: Hint, names: Mapping[str, str]) -> Hint:
    """Replace the placeholders in a hint by names."""
    if isinstance(hint, str):
        return hint.format(**names)
    words, removed = (
        tuple(word.format(**names) for word in part)
        for part in (hint.arguments, hint.removed)
    )
    return replace(hint, arguments=words, removed=removed)


def explain_build_failure(message: str) -> InstallationError | None:
    """Return the error of a failed build, or None for another message."""
    from gpuinstall.catalog.failures.classify import classify

    package = find_unbuilt_package(message)
    if package is None or _BACKEND not in message:
        return None
    name, _, place = package.partition(" @ ")
    name = name.partition("==")[0]
    lines = _find_build_output(message)
    evidence = "\n".join(lines)
    recognized = classify(
        evidence, placeholders={"extension": quote_word(place or name)}
    )
    # The torch of uv's isolated build is not the user's.
    known = next((one for one in recognized if one.id != "F167"), None)
    why = known.title if known else lines[-1]
    hint: Hint | tuple[Hint, ...] | None = None
    if _TOOL.search(lines[-1]):
        hint = f"Install the build tools of {name}"
    elif is_file_url(place) and "NotFoundError" in lines[-1]:
        hint = f"Copy all files of {name} to this machine"
    if known and known.fix:
        hint = known.fix
    if known and known.id == "F73":
        hint = _DECLARE_TORCH.format(package=name)
    if "wheel_stub" in evidence:
        why = "its sdist downloads a wheel from NVIDIA's index, which has none for this machine or is unreachable"
        hint = f"Omit {name} and the packages that require it, or lock for Linux or Windows"
    error = FailedBuildError(
        BUILD_FAILED,
        f"{package} has no wheel for this machine, and building it failed",
        why=why,
        # Build output must not look like gpuinstall's output.
        evidence="\n".join(f"| {line}" for line in lines),
        hint=hint,
        id=known.id if known else None,
    )
    # A package by URL or path has no other version.
    error.package = "" if place else name.lower()
    return error


def _find_build_output(message: str) -> list[str]:
    """Return the last lines of a failed build, up to its last error."""
    output = remove_logins(message.partition(_BACKEND)[2])
    lines = []
    last = 0
    for text in output.splitlines():
        line = text.strip(_ARROWS).rstrip()
        if line and not line.startswith(_FRAME):
            lines.append(line)
            if _CAUSE.match(line):
                last = len(lines)
    return lines[: last or None][-_LINES:] or [_BACKEND]


def find_failed_package(failed: InstallationError) -> str:
    """Return the package of a failed build, or "" without another version."""
    return failed.package if isinstance(failed, FailedBuildError) else ""


def _create_unlisted_error(package: str, cause: str) -> GpuInstallError:
    """Return the error for a package that PyTorch's sources lack."""
    extensions = load_extensions()
    if package in extensions.empty_pages:
        sources = ", ".join(source.id for source in extensions.rows[package].sources)
        return NoBuildError(
            "extension-unlisted",
            f"{package} is installed only from {sources or 'no source'}, and only if it is requested by name",
            why=cause,
            hint=make_change(package, note="selects a compatible build of it"),
        )
    if package in load_catalog().family:
        return InstallationError(
            FAMILY_UNLISTED,
            f"{package} is a PyTorch package, but no source of PyTorch packages has a wheel for this target",
            why=cause,
            hint=make_change(package, note="installs it from the default index"),
        )
    # Suggesting another index would be unsafe: anyone can register the name there.
    return InstallationError(
        "package-unlisted",
        f"the only configured source of {package} does not list it",
        why=cause,
        hint=f"Check the index that your files configure for {package}",
    )
