"""An environment built from a lock beside the one it will replace."""

from __future__ import annotations

import re
import shlex
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import tomli_w

from gpuinstall import process, uv
from gpuinstall.catalog import load_catalog
from gpuinstall.environments.environment import write_pip_settings
from gpuinstall.environments.paths import interpreter, site_packages
from gpuinstall.errors import InstallationError, LockError
from gpuinstall.facts.pythons import find_python
from gpuinstall.files import parse_toml, remove_path, write_atomically
from gpuinstall.install.priced_lock import builds_of
from gpuinstall.install.space import is_cached
from gpuinstall.lock.fetch import fetch_hashed
from gpuinstall.lock.fit import selected
from gpuinstall.lock.lock import LockedFile
from gpuinstall.lock.source_builds import sync_settings, sync_variables
from gpuinstall.lock.uv_failure import build_failure
from gpuinstall.wheels import FileRanges, WheelError, WheelReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.install.space import Bill
    from gpuinstall.lock.fit import Fit
    from gpuinstall.lock.lock import Lock
    from gpuinstall.plan.values import Choice
    from gpuinstall.project import Project
    from gpuinstall.reporter import Meter
    from gpuinstall.session import Session
    from gpuinstall.web import UnreachableError
    from gpuinstall.web.cache import WheelCache


def build_commands(python: str, base: Path | None, paths: EnvironmentPaths) -> list[list[str]]:
    """The command lines that build an environment; ``base`` is the interpreter, None where uv fetches one first."""
    return [
        *([] if base else [uv.fetch_python(python)]),
        uv.create(base or Path(f"python{python}"), paths.staging),
        uv.sync(interpreter(paths.staging), paths.private_lock, paths.build_settings),
        uv.give_pip(interpreter(paths.staging), carried_pip(base) if base else None),
    ]


def build(found: Fit, bill: Bill | None, project: Project) -> None:
    """Build an environment of a lock at ``paths.staging``; raise InstallationError."""
    paths, session = project.paths, project.session
    remove_path(paths.staging)
    fetched = _fetch(found, bill, project)
    start = monotonic()
    builds, site = builds_of(found, project.machine, session)
    variables = sync_variables(builds, site, str(site_packages(paths.staging, found.choice.python)))
    building = replace(session, environment={**session.environment, **variables})
    indexes = indexes_of(found.lock, found.choice, session.default_index)
    write_atomically(
        paths.private_lock, private(found.lock, paths.folder, session.cache, project.settings.wheels, indexes)
    )
    write_atomically(paths.build_settings, sync_settings(builds))
    try:
        base = _base_python(found.choice.python, session)
        create, sync, pip = build_commands(found.choice.python, base, paths)
        _run(create, session)
        with _unpacking(fetched, session) as written:
            _sync(sync, found, project, building, written)
        _give_pip(pip, found.lock, session)
    finally:
        paths.private_lock.unlink()
        paths.build_settings.unlink()
    write_atomically(paths.staging / found.lock.name, found.lock.text)
    settle_activate(paths.staging, paths.venv)
    held = found.lock.versions_of(load_catalog().family)
    write_pip_settings(paths.staging, paths.venv, found.lock.name, held)
    session.reporter.step("Installed", f"{len(found.lock.pylock.packages)} packages", monotonic() - start)


def _fetch(found: Fit, bill: Bill | None, project: Project) -> list[Path]:
    """Bring what the bill says into our cache, as far as its making has not; return the wheels that are new there."""
    session = project.session
    size = {file.url: size for file, size in bill.missing.items()} if bill else {}
    files = [file for file in _files(found, project) if file.url in size]
    absent = {file: size[file.url] or None for file in files if not _near(file, session.cache, project.settings.wheels)}
    if absent:
        fetch_hashed(absent, session)
    near = (_near(file, session.cache, None) for file in files if file.name.endswith(".whl"))
    return [path for path in near if path]


def _files(found: Fit, project: Project) -> list[LockedFile]:
    return [file for file in selected(found.lock, found.choice.python, project.machine) if file.sha256]


@contextmanager
def _unpacking(wheels: Sequence[Path], session: Session) -> Iterator[Meter | None]:
    """Follow uv while it unpacks wheels that it has never seen, by the bytes that it writes."""
    size = sum(map(_unpacked_size, wheels))
    if not size:
        yield None
        return
    with session.reporter.progress("Unpack", {f"{len(wheels)} wheels": size}) as progress:
        yield partial(progress, f"{len(wheels)} wheels")


def _unpacked_size(wheel: Path) -> int:
    """The bytes that a wheel says to unpack to; none where it cannot be read, which uv has to say."""
    with suppress(WheelError):
        return sum(member.size for member in WheelReader(FileRanges(wheel)).members.values())
    return 0


def carried_pip(base: Path) -> Path | None:
    """The wheel of pip that an interpreter carries for environments; Debian's has none."""
    root = base.resolve().parent
    folders = [*root.parent.glob("lib/python3*/ensurepip/_bundled"), root / "Lib" / "ensurepip" / "_bundled"]
    return next((wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))), None)


def _give_pip(command: list[str], lock: Lock, session: Session) -> None:
    """Put pip into an environment whose lock has none, so that its own is the one that an activated shell calls."""
    if "pip" in lock.names:
        return
    try:
        _run(command, session)
    except InstallationError as error:
        session.reporter.warn(f"the environment has no pip of its own: {error.why or error.message}")


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
    document = parse_toml(lock.text)
    for package in document["packages"]:
        if directory := package.get("directory"):
            directory["path"] = str(folder / directory["path"])
        package.update({"index": index} if (index := (indexes or {}).get(package["name"])) else {})
        for entry in (*package.get("wheels", ()), *(package[kind] for kind in ("sdist", "archive") if kind in package)):
            _prefer_local_file(entry, folder, cache, wheels)
    return tomli_w.dumps(document)


def _base_python(version: str, session: Session) -> Path:
    """Find an interpreter for ``X.Y``, or have uv fetch one."""
    if found := find_python(version):
        return found
    session.reporter.wait(f"fetching Python {version}")
    _run(uv.fetch_python(version), session)
    fetched = find_python(version)
    if fetched is None:
        raise InstallationError("no-python", f"uv fetched Python {version}, and it is not where uv keeps its own")
    return fetched


def _prefer_local_file(entry: dict[str, Any], folder: Path, cache: WheelCache, wheels: Path | None) -> None:
    if "path" in entry:
        entry["path"] = str(_within(folder, entry["path"]))
        return
    if near := _near(LockedFile("", entry["url"], entry["hashes"].get("sha256")), cache, wheels):
        del entry["url"]
        entry["path"] = str(near)


def _near(file: LockedFile, cache: WheelCache, wheels: Path | None) -> Path | None:
    """Find a file in a folder that was given, or in our cache."""
    sha256 = file.sha256 or ""
    paths = [*([wheels / sha256 / file.name, wheels / file.name] if wheels else []), cache.path(sha256, file.name)]
    return next((path for path in paths if path.is_file()), None)


def _within(folder: Path, name: str) -> Path:
    """A file beside the lock; raise LockError where a link leads out of its folder."""
    if not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise LockError("lock-traversal", f"a link leads from {name} out of {folder}", hint="gpuinstall lock --upgrade")
    return folder / name


def _sync(command: list[str], found: Fit, project: Project, session: Session, written: Meter | None) -> None:
    """Fill the environment; from uv's cache alone, where a host that would have to be asked does not answer."""
    unreachable = _unreachable_host(found, project, session)
    try:
        _run(command, session.from_cache() if unreachable else session, written)
    except InstallationError as error:
        raise unreachable or error from None


def _unreachable_host(found: Fit, project: Project, session: Session) -> UnreachableError | None:
    """What is known of a host that has a file which no cache seems to hold, and did not answer when it was asked."""
    files = selected(found.lock, found.choice.python, project.machine)
    unreachable = {file: error for file in files if (error := session.client.unreachable(file.url))}
    if not unreachable:
        return None
    needed = (each for file, each in unreachable.items() if not is_cached(file, session.uv_cache, session.cache))
    return next(needed, None)


def _run(command: list[str], session: Session, written: Meter | None = None) -> None:
    """Run uv and say what it downloads and builds; ``written`` counts the bytes that it writes."""

    def show(line: str) -> None:
        if line.strip().startswith(("Downloading", "Building")):
            session.reporter.wait(line.strip())

    done = process.follow(command, show, env=session.environment, patience=session.patience, written=written)
    if not done.ok:
        raise failure(done.err)


def settle_activate(built: Path, final: Path) -> None:
    """Make ``activate`` of the environment at ``built`` right for ``final``, where it is about to go.

    uv's relocatable form finds its own place in bash, zsh and ksh; plain sh (dash) cannot. The other shells' files
    and all scripts find it themselves.
    """
    script = built / "bin" / "activate"
    if script.is_file():
        script.write_text(settled(script.read_text(encoding="utf-8"), final), encoding="utf-8")


def settled(text: str, final: Path) -> str:
    """Replace the line that works out where the environment lies."""
    lines = text.splitlines(keepends=True)
    return "".join(
        f"VIRTUAL_ENV={shlex.quote(str(final))}\n" if line.startswith("VIRTUAL_ENV=''") else line for line in lines
    )


def failure(message: str) -> InstallationError:
    """Turn uv's failure to install into an error of ours."""
    if failed := build_failure(message):
        return failed
    lines = [line.strip(" ×╰─▶│├") for line in message.splitlines()]
    why = " ".join(line for line in lines if line and not line.startswith(("warning:", "Using Python ")))
    if "Hash mismatch" in message:
        package = re.search(r"Hash mismatch for `?([^\s`]+)", message)
        said = f"{package[1] if package else 'a file'} is not the file that was locked"
        hint = "do not install it; if the source is trusted, make the lock again: gpuinstall lock --upgrade"
        return InstallationError("hash-mismatch", said, why=why, hint=hint)
    for sign, code, said, hint in _SIGNS:
        if sign in message:
            return InstallationError(code, said, why=why, hint=hint)
    return InstallationError("installation-failed", "uv could not make the environment", why=why)


_REMAKE = "make the lock again: gpuinstall install --upgrade"
_SIGNS = (
    ("No space left", "no-space", "there is no space left", "df -h"),
    (
        "Network connectivity is disabled",
        "offline",
        "a file that is needed is in no cache, and this run is offline",
        "run the same without --offline",
    ),
    ("os error 13", "not-writable", "uv may not write there", "ls -ld ."),
    ("error sending request", "network", "a file could not be fetched", "run the same again"),
    ("HTTP status", "file-gone", "a locked file is no longer where it was", _REMAKE),
)
