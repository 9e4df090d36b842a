"""Scripts with inline metadata (PEP 723): what one asks for, and its environment, one for each request."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import (
    own_cache_folder,
    parse_toml,
    read_document,
)
from gpuinstall.base.removal import is_folder
from gpuinstall.base.values import replace
from gpuinstall.lock.request.declaration import parse_project
from gpuinstall.sources.configuration import uv_settings
from gpuinstall.sources.provenance import recorded_sources
from gpuinstall.sources.requirements_file import RequirementsFile

_BLOCK = re.compile(r"(?m)^# /// script\s*$\s(?P<toml>(?:^#(?:| .*)$\s)+)^# ///\s*$")
"""As PEP 723 has it."""


class Script(NamedTuple):
    """A script and all that it requires."""

    file: Path
    listed: RequirementsFile
    python: str | None
    """A specifier."""

    @property
    def paths(self) -> EnvironmentPaths:
        """Its environment: the same one for the same request and the same file."""
        words = [
            str(self.file.resolve()),
            *sorted(map(str, self.listed.requirements)),
            self.python or "",
            *map(str, self.listed.constraints),
            *recorded_sources(self.listed.settings),
        ]
        text = os.fsencode("\0".join(words))
        digest = hashlib.sha256(text).hexdigest()[:12]
        # uv takes only paths that are UTF-8, and a file's name may have 255 bytes.
        name = re.sub(r"[^\w.-]", "_", self.file.stem)[:40]
        folder = script_environments() / f"{name}-{digest}"
        return EnvironmentPaths.at(folder / ".venv", is_named=False)


def read_script(file: Path) -> Script | None:
    """Return the script with the requirements of its inline metadata; None if it has none.

    Raises:
        UsageError: they are malformed.
    """
    try:
        return _read_block(read_document(file), file)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"{file}: its inline metadata cannot be read: {reason}"
        raise UsageError("script-malformed", message) from None


def _read_block(text: str, file: Path) -> Script | None:
    """Return the script with the requirements of its block and the sources of its ``[tool.uv]``; paths begin at the script.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: it is malformed.
    """
    count = len(re.findall(r"(?m)^# /// script\b", text))
    if count == 0:
        return None
    # From each of many blocks the pattern would read to the end.
    block = None
    if count == 1:
        block = _BLOCK.search(text)
    table = {}
    if block:
        table = parse_toml(re.sub(r"(?m)^# ?", "", block["toml"]))
    dependencies = table.get("dependencies", [])
    python = table.get("requires-python", "")
    is_text = isinstance(python, str)
    if block is None or not isinstance(dependencies, list) or not is_text:
        raise ValueError(
            "it has one block, with a list of dependencies and a requires-python"
        )
    # One path, from wherever the script is started: the name of its environment is made of it.
    folder = file.parent.resolve()
    tools = table.get("tool", {})
    uv = dict(tools.get("uv", {}))
    sources = dict(uv.get("sources", {}))
    for name, source in sources.items():
        if isinstance(source, dict) and "path" in source:
            sources[name] = {**source, "path": str(folder / source["path"])}
    document = {
        "project": {"dependencies": dependencies},
        "tool": {**tools, "uv": {**uv, "sources": sources}},
    }
    listed = parse_project(document, file).listed
    settings = (*listed.settings, *uv_settings(uv, file, os.environ))
    return Script(file, replace(listed, settings=settings), python or None)


def cached_folders() -> list[Path]:
    """Return the folder of each environment in the cache; one that has nothing but files that were kept is none."""
    folders = []
    with suppress(FileNotFoundError):
        for folder in sorted(filter(is_folder, script_environments().iterdir())):
            names = {path.name for path in folder.iterdir()}
            if names != {".venv.kept"}:
                folders.append(folder)
    return folders


def script_environments() -> Path:
    """Return the folder of the environments of scripts, in the user's cache."""
    return own_cache_folder() / "scripts"
