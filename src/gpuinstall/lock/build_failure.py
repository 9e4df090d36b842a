"""A package whose own build failed: named, with the last lines of its build, the cause last, a fix where known."""

from __future__ import annotations

import re

from gpuinstall.errors import InstallationError

LINES = 15
"""How many of the build's last lines are kept."""

_PACKAGE = re.compile(r"Failed to (?:download and )?build `([^`]+)`")
_BACKEND = "build backend returned an error"
_CAUSE = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Exit)\b|.*\b(?:fatal )?error\b:?|fatal:", re.IGNORECASE)
_FRAME = ("[stdout]", "[stderr]", "hint:", "note:", "warning:")
_LOGIN = re.compile(r"(?<=://)[^/\s\"]+@")


def build_failure(message: str) -> InstallationError | None:
    """Read uv's message of a build that failed; None where it is of something else."""
    from gpuinstall.failures.classify import classify

    package = _PACKAGE.search(message)
    if package is None or _BACKEND not in message:
        return None
    lines = build_lines(message)
    known = next(iter(classify("\n".join(lines))), None)
    fix = "\n".join(known.fix) if known else ""
    return InstallationError(
        "build-failed",
        f"{package[1]} has no wheel that fits here, and its own build failed",
        why=known.title if known else lines[-1],
        seen="\n".join(lines),
        hint=fix or f"ask for a version of {_name(package[1])} that has a wheel, or install what its build asks for",
        id=known.id if known else None,
    )


def build_lines(message: str) -> list[str]:
    """The last lines that a build wrote, up to the last that names an error."""
    told = message.partition(_BACKEND)[2]
    lines = [line.strip(" ×╰─▶│├").rstrip() for line in _LOGIN.sub("", told).splitlines()]
    lines = [line for line in lines if line and not line.startswith(_FRAME)] or [_BACKEND]
    last = max((position for position, line in enumerate(lines) if _CAUSE.match(line)), default=len(lines) - 1)
    return lines[: last + 1][-LINES:]


def _name(package: str) -> str:
    return re.split(r"[=@ ]", package)[0]
