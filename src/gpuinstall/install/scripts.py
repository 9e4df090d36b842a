"""Scripts with inline metadata (PEP 723): what one asks for, and its environment, one for each request."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.catalog.loader import load_catalog
from gpuinstall.environments.paths import EnvironmentPaths
from gpuinstall.environments.records import remembered
from gpuinstall.errors import UsageError
from gpuinstall.files import own_cache_folder, parse_toml, read_document, remove_file, write_atomically
from gpuinstall.install.previous import remove
from gpuinstall.lock.declaration import locks_in, parse_project
from gpuinstall.lock.project_sources import script_settings
from gpuinstall.provenance import recorded_sources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpuinstall.lock.declaration import Declaration
    from gpuinstall.provenance import SourceSetting
    from gpuinstall.reporter import Reporter

KEPT_SCRIPTS = 8
"""How many environments of scripts stay, those used last: each may hold 7 GB."""
_BLOCK = re.compile(r"(?m)^# /// script\s*$\s(?P<toml>(?:^#(?:| .*)$\s)+)^# ///\s*$")  # as PEP 723 has it


class Script(NamedTuple):
    """A script and all that it requires; ``python`` is a specifier, ``settings`` say where packages come from."""

    file: Path
    requirements: tuple[str, ...]
    python: str | None
    constraints: tuple[str, ...] = ()
    settings: tuple[SourceSetting, ...] = ()

    @property
    def locks(self) -> Path:
        """The folder of its locks, beside it."""
        return self.file.with_name(f"{self.file.name}.locks")

    @property
    def paths(self) -> EnvironmentPaths:
        """Its environment: the same one for the same request and the same file."""
        words = "\0".join((str(self.file.resolve()), *sorted(self.requirements), self.python or ""))
        if bounds := (*self.constraints, *recorded_sources(self.settings)):
            words += "\0" + "\0".join(bounds)
        name = f"{self.file.stem}-{hashlib.sha256(words.encode()).hexdigest()[:12]}"
        return EnvironmentPaths.at(_folder() / name / ".venv")

    @property
    def evidence(self) -> list[str]:
        """The files that say which environment it has."""
        return [str(path.absolute()) for path in (self.file, self.locks, *locks_in(self.locks))]

    def bring_locks(self) -> None:
        """Copy the locks that lie beside it to its environment, where they are judged like any others."""
        for lock in locks_in(self.locks):
            write_atomically(self.paths.folder / lock.name, read_document(lock, self.locks))


def read_script(file: Path, extra: Sequence[str] = ()) -> Script | None:
    """Read what a script requires, with ``extra``; None where it says nothing of it and there is none.

    Raise UsageError where its metadata are malformed.
    """
    try:
        text = read_document(file)
        count = len(re.findall(r"(?m)^# /// script\b", text))
        block = _BLOCK.search(text) if count == 1 else None  # from each of many it would read to the end
        table = parse_toml(re.sub(r"(?m)^# ?", "", block["toml"])) if block else {}
    except (OSError, ValueError) as error:
        raise _malformed(file, getattr(error, "strerror", None) or str(error)) from None
    requirements, python = table.get("dependencies", []), table.get("requires-python")
    if count > 1 or not (isinstance(requirements, list) and isinstance(python or "", str)):
        raise _malformed(file, "it has one block, with a list of dependencies and a requires-python")
    if not (block or extra):
        return None
    listed = _read_block(table, file).listed
    return Script(file, (*listed.requirements, *extra), python, listed.constraints, listed.settings)


def _read_block(table: Mapping[str, Any], file: Path) -> Declaration:
    """Read the dependencies of a block with what its ``[tool.uv]`` says of sources; paths begin at the script."""
    place = file.absolute().parent
    try:
        uv = dict(table.get("tool", {}).get("uv", {}))
        sources = dict(uv.get("sources", {}))
        for name, source in sources.items():
            if isinstance(source, dict) and "path" in source:
                sources[name] = {**source, "path": str(place / source["path"])}
        tool = {"uv": {**uv, "sources": sources}}
        project = {"dependencies": list(map(str, table.get("dependencies", [])))}
        declared = parse_project({"project": project, "tool": tool}, load_catalog().family, file)
        settings = (*declared.listed.settings, *script_settings(uv, file))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _malformed(file, str(error)) from None
    return declared._replace(listed=declared.listed._replace(settings=settings))


def _malformed(file: Path, reason: str) -> UsageError:
    return UsageError("script-malformed", f"{file}: its inline metadata cannot be read: {reason}")


def remove_unused_scripts(current: EnvironmentPaths, reporter: Reporter) -> None:
    """Remove the environments of scripts that were used longest ago, beyond the few that stay."""
    made = [EnvironmentPaths(venv) for venv in remembered() if venv.parent.parent == _folder()]
    made.sort(key=lambda paths: (paths == current, paths.folder.stat().st_mtime), reverse=True)
    for paths in made[KEPT_SCRIPTS:]:
        remove(paths, 0, reporter, previous_only=False, with_packages=True)
        for lock in locks_in(paths.folder):
            remove_file(lock)
        with suppress(OSError):  # what else lies there is not ours
            paths.folder.rmdir()
        reporter.step("Removed", f"{paths.folder.name}, a script's environment that was not used for long")


def _folder() -> Path:
    return own_cache_folder() / "scripts"
