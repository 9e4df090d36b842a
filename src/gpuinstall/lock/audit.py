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
    """Return the vulnerabilities of a lock's packages; ``2.13.0+cu126`` is looked up as 2.13.0.

    Raise InstallationError with uv's message if no service is reachable.
    """
    project = {"name": "locked", "version": "0"}
    python = str(lock.pylock.requires_python or ">=3.10")
    packages = []
    for name, version in lock.versions.items():
        package = {
            "name": name,
            "version": Version(version).public,
            "source": {"registry": "https://index.example"},
        }
        packages.append(package)
    root = {
        **project,
        "source": {"virtual": "."},
        "dependencies": [{"name": name} for name in lock.versions],
    }
    documents: dict[str, dict[str, Any]] = {
        "pyproject.toml": {"project": {**project, "requires-python": python}},
        "uv.lock": {
            "version": 1,
            "requires-python": python,
            "package": [*packages, root],
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        for file, document in documents.items():
            Path(folder, file).write_text(tomli_w.dumps(document), encoding="utf-8")
        command = audit_lock(session.environment.get(SERVICE))
        done = run(command, cwd=Path(folder), env=session.environment)
    if done.status not in {0, 1}:
        raise InstallationError(
            "audit-failed",
            f"uv could not audit {lock.name}",
            why=done.err.strip(),
            hint=f"export {SERVICE}=https://…   # a service of advisories that is reachable",
        )
    vulnerabilities = json.loads(done.out)["vulnerabilities"]
    return [{"lock": lock.name, **found} for found in vulnerabilities]
