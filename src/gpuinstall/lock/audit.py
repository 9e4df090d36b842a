"""The known vulnerabilities of what locks hold, by uv's own audit, which asks a service of advisories."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w
from packaging.version import Version

from gpuinstall.errors import InstallationError
from gpuinstall.process import run
from gpuinstall.uv import audit_lock

if TYPE_CHECKING:
    from gpuinstall.lock.lock import Lock
    from gpuinstall.session import Session

SERVICE = "GPUINSTALL_ADVISORY_SERVICE"


def advisories(lock: Lock, session: Session) -> list[dict[str, Any]]:
    """Ask for the vulnerabilities of a lock's packages; ``2.13.0+cu126`` is asked for as 2.13.0.

    Raise InstallationError with what uv says where no service is reachable.
    """
    packages = [
        {
            "name": name,
            "version": Version(version).public,
            "source": {"registry": "https://index.example"},
        }
        for name, version in lock.versions.items()
    ]
    root = {"name": "locked", "version": "0", "source": {"virtual": "."}}
    project = {
        "name": "locked",
        "version": "0",
        "requires-python": str(lock.pylock.requires_python or ">=3.10"),
    }
    held = [*packages, {**root, "dependencies": [{"name": name} for name in lock.versions]}]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "pyproject.toml").write_text(
            tomli_w.dumps({"project": project}), encoding="utf-8"
        )
        written = {"version": 1, "requires-python": project["requires-python"], "package": held}
        (folder / "uv.lock").write_text(tomli_w.dumps(written), encoding="utf-8")
        done = run(
            audit_lock(session.environment.get(SERVICE)), cwd=folder, env=session.environment
        )
    if done.status not in {0, 1}:
        message = f"uv could not audit {lock.name}"
        hint = f"export {SERVICE}=https://…   # a service of advisories that is reachable"
        raise InstallationError("audit-failed", message, why=done.err.strip(), hint=hint)
    document = json.loads(done.out)
    return [{"lock": lock.name, **found} for found in document["vulnerabilities"]]
