"""An environment built from a lock beside the one it will replace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import tomli
import tomli_w

from gpuinstall import process, uv
from gpuinstall.catalog import load_catalog
from gpuinstall.environments.paths import interpreter
from gpuinstall.errors import InstallationError
from gpuinstall.facts.pythons import find_python
from gpuinstall.files import write_atomically
from gpuinstall.install.activate import settle_activate
from gpuinstall.install.pip_settings import settle_pip
from gpuinstall.install.space import held
from gpuinstall.install.swap import discard
from gpuinstall.lock.fit import selected
from gpuinstall.lock.lock import LockedFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from gpuinstall.install.options import InstallOptions, Prepared
    from gpuinstall.lock.lock import Lock
    from gpuinstall.plan.values import Choice
    from gpuinstall.session import Session
    from gpuinstall.web import UnreachableError
    from gpuinstall.web.wheel_cache import WheelCache


def stage(order: InstallOptions, prepared: Prepared, session: Session) -> None:
    """Build the environment that was prepared at the order's ``place.staging``; raise InstallationError."""
    place, lock, python = order.place, prepared.lock, prepared.choice.python
    discard(place.staging)
    indexes = indexes_of(lock, prepared.choice, session.sources.default_index or uv.default_index(session.environment))
    write_atomically(place.private_lock, private(lock, place.folder, session.cache, order.wheels, indexes))
    try:
        _run(uv.create(base_python(python, session), place.staging), session)
        _sync(uv.sync(interpreter(place.staging), place.private_lock), order, prepared, session)
    finally:
        place.private_lock.unlink()
    write_atomically(place.staging / lock.name, lock.text)
    settle_activate(place.staging, place.venv)
    settle_pip(place.staging, place.venv, lock)


def indexes_of(lock: Lock, choice: Choice, default: str | None) -> dict[str, str]:
    """The index of each package, under whose name uv's cache may hold the wheel already."""
    family = load_catalog().family if choice.index else frozenset()
    found = ((name, choice.index if name in family else default) for name in lock.versions)
    return {name: index for name, index in found if index and index.startswith(("http://", "https://"))}


def private(
    lock: Lock, folder: Path, cache: WheelCache, wheels: Path | None = None, indexes: Mapping[str, str] | None = None
) -> str:
    """Copy a lock with every file that is already here named by its path, and ``indexes`` by package.

    ``folder`` is the lock's own; ``wheels`` is one that files are taken from first, by their names.
    """
    document = tomli.loads(lock.text)
    for package in document["packages"]:
        package.update({"index": index} if (index := (indexes or {}).get(package["name"])) else {})
        for entry in (*package.get("wheels", ()), *(package[kind] for kind in ("sdist", "archive") if kind in package)):
            _bring_near(entry, folder, cache, wheels)
    return tomli_w.dumps(document)


def base_python(version: str, session: Session) -> Path:
    """Find an interpreter for ``X.Y``, or have uv fetch one."""
    found = find_python(version)
    if found is not None:
        return found
    session.reporter.wait(f"fetching Python {version}")
    _run(uv.fetch_python(version), session)
    fetched = find_python(version)
    if fetched is None:
        raise InstallationError("no-python", f"uv fetched Python {version}, and it is not where uv keeps its own")
    return fetched


def _bring_near(entry: dict[str, Any], folder: Path, cache: WheelCache, wheels: Path | None) -> None:
    if "path" in entry:
        entry["path"] = str(folder / entry["path"])
        return
    name, sha256 = LockedFile("", entry["url"]).name, entry["hashes"].get("sha256", "")
    places = [*([wheels / sha256 / name, wheels / name] if wheels else []), cache.path(sha256, name)]
    if near := next((place for place in places if place.is_file()), None):
        del entry["url"]
        entry["path"] = str(near)


def _sync(command: list[str], order: InstallOptions, prepared: Prepared, session: Session) -> None:
    """Fill the environment; from uv's cache alone, where a host that would have to be asked does not answer."""
    silent = _silence(order, prepared, session)
    try:
        _run(command, session.from_cache() if silent else session)
    except InstallationError as error:
        raise silent or error from None


def _silence(order: InstallOptions, prepared: Prepared, session: Session) -> UnreachableError | None:
    """What is known of a host that has a file which no cache seems to hold, and did not answer when it was asked."""
    files = selected(prepared.lock, prepared.choice.python, order.machine)
    silent = {file: error for file in files if (error := session.client.unreachable(file.url))}
    if not silent:
        return None
    uv_cache = uv.cache_folder(session.environment)
    return next((error for file, error in silent.items() if not held(file, uv_cache, session.cache)), None)


def _run(command: list[str], session: Session) -> None:
    """Run uv and say what it downloads and builds."""

    def heard(line: str) -> None:
        if line.strip().startswith(("Downloading", "Building")):
            session.reporter.wait(line.strip())

    done = process.follow(command, heard, env=session.environment)
    if not done.ok:
        raise fault(done.err)


def fault(message: str) -> InstallationError:
    """Turn uv's failure to install into an error of ours."""
    lines = [line.strip(" ×╰─▶│├") for line in message.splitlines()]
    why = " ".join(line for line in lines if line and not line.startswith("warning:"))
    if "Hash mismatch" in message:
        package = re.search(r"Hash mismatch for `?([^\s`]+)", message)
        return InstallationError(
            "hash-mismatch",
            f"{package[1] if package else 'a file'} is not the file that was locked",
            why=why,
            hint="do not install it; if the source is trusted, make the lock again: gpuinstall lock --upgrade",
        )
    if "No space left" in message:
        return InstallationError("no-space", "there is no space left", why=why, hint="df -h")
    if "os error 13" in message:
        return InstallationError("not-writable", "uv may not write there", why=why, hint="ls -ld .")
    if "error sending request" in message:
        return InstallationError("network", "a file could not be fetched", why=why, hint="run the same again")
    if "HTTP status" in message:
        hint = "make the lock again: gpuinstall install --upgrade"
        return InstallationError("file-gone", "a locked file is no longer where it was", why=why, hint=hint)
    return InstallationError("installation-failed", "uv could not make the environment", why=why)
