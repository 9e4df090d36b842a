"""Which backend a lock is for, by its name or by what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.errors import UsageError
from gpuinstall.lock.target import Target

if TYPE_CHECKING:
    from gpuinstall.lock.lock import Lock


def backend_of(lock: Lock) -> str:
    """The backend tag of a lock; raise UsageError where neither its name nor torch's version says it."""
    _, _, local = lock.versions.get("torch", "").partition("+")
    if local:
        return local
    try:
        return Target.parse(lock.target).backend
    except UsageError:
        message = f"{lock.name} does not say which build of torch it holds"
        raise UsageError("not-exportable", message, hint="name it for its target: pylock.cu126.toml") from None
