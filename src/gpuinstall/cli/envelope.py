"""The JSON envelope that every command prints with ``--json``, on failure too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.errors import GpuInstallError

VERSION = 1

Status = Literal["success", "partial", "error"]


@dataclass(frozen=True)
class Outcome:
    """What a command came to: its document, its exit status, and how a person reads it."""

    data: dict[str, Any]
    show: Callable[[Terminal], None]
    status: Status = "success"
    exit_code: int = 0
    errors: tuple[dict[str, Any], ...] = field(default=())


def envelope(command: str, outcome: Outcome) -> dict[str, Any]:
    """Wrap a document."""
    return {
        "gpuinstall": VERSION,
        "command": command,
        "status": outcome.status,
        "exit_code": outcome.exit_code,
        "data": outcome.data,
        "errors": list(outcome.errors),
    }


def failure(command: str, error: GpuInstallError) -> dict[str, Any]:
    """Wrap an error; ``data`` is present whenever it could be made."""
    document: dict[str, Any] = {
        "gpuinstall": VERSION,
        "command": command,
        "status": "error",
        "exit_code": error.exit_code,
    }
    document |= {"data": error.data} if error.data is not None else {}
    return document | {"errors": [written(error)]}


def written(error: GpuInstallError) -> dict[str, Any]:
    """Write one error as the envelope holds it."""
    return {"code": error.code, "message": error.message, "hint": error.hint}
