"""The files where pip and uv keep their configuration, and what they say about package indexes.

Sources: pip's "Configuration" topic (pip.pypa.io) and uv's "Configuration files" (docs.astral.sh/uv), read 2026-11.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuinstall.errors import UsageError
from gpuinstall.files import parse_ini, parse_toml, read_document
from gpuinstall.marked_block import BrokenBlockError, without_blocks
from gpuinstall.provenance import (
    SourceSetting,
    pip_settings,
    source_setting,
    uv_indexes,
    uv_settings,
)

TRUST_FOLDER = "GPUINSTALL_TRUST_FOLDER"
PIP_NAME = "pip.ini" if sys.platform == "win32" else "pip.conf"


@dataclass(frozen=True)
class Indexes:
    """What one configuration says; ``certificates`` is the path of a CA bundle.

    ``settings`` are tool, key and value of what else it says of sources. ``file`` is one of the project in the folder,
    which may be a stranger's; None where the person says it.
    """

    default: str | None = None
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    certificates: str | None = None
    settings: tuple[tuple[str, str, str], ...] = ()
    file: Path | None = None
    origin: str = ""
    """The file or the variables that say it."""

    @property
    def source_settings(self) -> Iterator[SourceSetting]:
        """What ``file`` says of sources, setting by setting."""
        if self.file is None:
            return
        tool, mark = ("pip", "--") if self.file.suffix != ".toml" else ("uv", "")
        default = (self.default,) if self.default else ()
        for key, values in {
            "index-url": default,
            "extra-index-url": self.extra,
            "find-links": self.find_links,
        }.items():
            for value in values:
                yield source_setting(tool, f"{mark}{key}", value, self.file)
        for tool, key, value in self.settings:
            yield source_setting(tool, key, value, self.file)


def merged(indexes: Iterable[Indexes]) -> Indexes:
    """Merge configurations, the strongest first: single values of the first that has one, all of the lists."""
    every = tuple(indexes)
    return Indexes(
        default=next((one.default for one in every if one.default), None),
        extra=tuple(dict.fromkeys(url for one in every for url in one.extra)),
        find_links=tuple(dict.fromkeys(link for one in every for link in one.find_links)),
        certificates=next((one.certificates for one in every if one.certificates), None),
    )


def read_configuration(environ: Mapping[str, str], folder: Path) -> tuple[Indexes, ...]:
    """Read all of uv's and pip's configuration that counts in ``folder``, the strongest first.

    Raise UsageError for a malformed file.
    """
    candidates = (
        base / name for base in (folder, *folder.parents) for name in ("uv.toml", "pyproject.toml")
    )
    found = (
        path for path in candidates if path.is_file() and _uv_table(path, path.parent) is not None
    )
    projects = (
        [] if environ.get("UV_NO_CONFIG") or environ.get("UV_CONFIG_FILE") else _nearest(found)
    )
    uv = () if environ.get("UV_NO_CONFIG") else _uv_user_files(environ)
    places = {folder, *(project.parent for project in projects)}
    roots = places.union(Path(os.path.realpath(place)) for place in places)
    by_variable = " and ".join(
        name for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL") if environ.get(name)
    )
    return (
        replace(parse_uv_environment(environ, folder), origin=by_variable),
        *(replace(_read_uv_file(project), file=project) for project in projects),
        *map(_read_uv_file, uv),
        replace(parse_pip_environment(environ, folder), origin="PIP_EXTRA_INDEX_URL"),
        *(_read_pip_file(path, folder, roots) for path in reversed(_pip_near_files(environ))),
        *(_read_pip_file(path, folder, ()) for path in reversed(_pip_user_files(environ))),
    )


def folder_settings(environ: Mapping[str, str], folder: Path) -> tuple[SourceSetting, ...]:
    """Read what the configuration of a folder says of sources, which a lock that is made there records.

    The pip.conf of an environment is left out: it counts only while that is active.
    """
    files = (one for one in read_configuration(environ, folder) if one.file)
    return tuple(
        setting
        for one in files
        for setting in one.source_settings
        if not setting.file.with_name("pyvenv.cfg").is_file()
    )


def _nearest(files: Iterable[Path]) -> list[Path]:
    """Return the nearest of uv's files, and the root of a workspace above it, which uv reads in its place."""
    projects = list[Path]()
    for path in files:
        if not projects or "workspace" in (_uv_table(path) or {}):
            projects.append(path)
    return projects[:2]


def own_file(tool: str, environ: Mapping[str, str]) -> Path:
    """The user's own configuration file of ``pip`` or ``uv``, that which counts most."""
    named = environ.get(f"{tool.upper()}_CONFIG_FILE")
    if named and named != os.devnull:
        return Path(named).absolute()
    return _pip_own_files(environ)[-1] if tool == "pip" else _user_folder(environ) / "uv/uv.toml"


def pip_words(environ: Mapping[str, str], file: Path, text: str, option: str) -> tuple[str, ...]:
    """Return the words that ``pip install`` would take for an option without a further section in ``file``.

    A section ``install`` counts more than ``global``, whatever file it is in, and a later file more than an earlier.

    Args:
        environ: The variables that say which files pip reads.
        file: One of them, or a further one that counts most.
        text: What ``file`` is taken to hold.
        option: Its name in the files, such as ``constraint``.
    """
    others = (*_pip_user_files(environ), *_pip_near_files(environ))
    texts = {**{path: _text(path) for path in others}, file: text}
    words: tuple[str, ...] = ()
    for section in ("global", "install"):
        for path, content in texts.items():
            words = _pip_words(path, content, section, option) or words
    return words


def _pip_words(path: Path, text: str, section: str, option: str) -> tuple[str, ...]:
    try:
        return tuple(_pip_options(text, section).get(option, "").split())
    except ValueError as error:
        raise _malformed(path, error) from error


def trusts_folder(environ: Mapping[str, str]) -> bool:
    """Say whether a folder may choose sources: the variable, else ``trust-folder`` in the person's own file.

    Raise UsageError where one of them is malformed.
    """
    if said := environ.get(TRUST_FOLDER):
        if said not in {"0", "1"}:
            raise UsageError("trust-folder", f"{TRUST_FOLDER} is {said!r}, and not 0 or 1")
        return said == "1"
    path = _user_folder(environ) / "gpuinstall" / "config.toml"
    try:
        trusted = parse_toml(_text(path)).get("trust-folder", True)
    except ValueError as error:
        raise _malformed(path, error) from error
    if not isinstance(trusted, bool):
        raise _malformed(path, "trust-folder is true or false")
    return trusted


def parse_pip_environment(environ: Mapping[str, str], folder: Path) -> Indexes:
    """Read pip's ``PIP_*`` variables."""
    names = (name for name in environ if name.startswith("PIP_"))
    return _of_pip({_option(name.removeprefix("PIP_")): environ[name] for name in names}, folder)


def parse_pip_file(text: str, folder: Path) -> Indexes:
    """Read a ``pip.conf``: its sections global, download and install; raise ValueError where it is malformed."""
    options: dict[str, str] = {}
    for section in ("global", "download", "install"):
        options |= _pip_options(text, section)
    return _of_pip(options, folder)


def _pip_options(text: str, section: str) -> dict[str, str]:
    """Return what one section of a ``pip.conf`` sets; raise ValueError where the file is malformed."""
    parser = parse_ini(text)
    if not parser.has_section(section):
        return {}
    return {_option(name): value for name, value in parser.items(section)}


def parse_uv_environment(environ: Mapping[str, str], folder: Path) -> Indexes:
    """Read uv's ``UV_*`` variables."""
    extra = f"{environ.get('UV_INDEX', '')} {environ.get('UV_EXTRA_INDEX_URL', '')}".split()
    links = (link.strip() for link in environ.get("UV_FIND_LINKS", "").split(","))
    return Indexes(
        default=_unnamed(environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or "")
        or None,
        extra=tuple(_unnamed(url) for url in extra),
        find_links=tuple(_located(link, folder) for link in links if link),
    )


def parse_uv_table(table: Mapping[str, Any], folder: Path) -> Indexes:
    """Read a ``uv.toml`` or ``[tool.uv]``, in which an explicit index is nobody's default and no extra.

    Raise KeyError, TypeError or AttributeError where it has another shape.
    """
    by_key: dict[str, list[str]] = {}
    for key, value in uv_indexes(table):
        by_key.setdefault(key, []).append(value)
    refused = ("index (flat, default)", "index (by relative path)")
    links = (*by_key.get("index (flat)", ()), *by_key.get("find-links", ()))
    return Indexes(
        default=next(
            iter((*by_key.get("index (default)", ()), *by_key.get("index-url", ()))), None
        ),
        extra=(*by_key.get("index", ()), *by_key.get("extra-index-url", ())),
        find_links=tuple(_located(link, folder) for link in links),
        settings=(
            *(("uv", key, value) for key in refused for value in by_key.get(key, ())),
            *uv_settings(table),
        ),
    )


def _pip_near_files(environ: Mapping[str, str]) -> list[Path]:
    """The file of the environment that is active, and the one that is named."""
    prefix = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
    site = [Path(prefix, PIP_NAME)] if prefix else []
    named = environ.get("PIP_CONFIG_FILE", "")
    return [] if named == os.devnull else [*site, *([Path(named)] if named else [])]


def _pip_global_files(environ: Mapping[str, str]) -> list[Path]:
    if sys.platform == "win32":
        return [Path(environ.get("PROGRAMDATA", "C:/ProgramData"), "pip", PIP_NAME)]
    if sys.platform == "darwin":
        return [Path("/Library/Application Support/pip", PIP_NAME)]
    return [
        *(Path(base, "pip", PIP_NAME) for base in _xdg_folders(environ)),
        Path("/etc", PIP_NAME),
    ]


def _pip_user_files(environ: Mapping[str, str]) -> list[Path]:
    named = environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    user = [] if named and Path(named).exists() else _pip_own_files(environ)
    return [*_pip_global_files(environ), *user]


def _pip_own_files(environ: Mapping[str, str]) -> list[Path]:
    home = _home(environ)
    if sys.platform == "win32":
        return [home / "pip" / PIP_NAME, Path(environ.get("APPDATA", home), "pip", PIP_NAME)]
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    if sys.platform == "darwin" and (home / "Library/Application Support/pip").is_dir():
        config = home / "Library/Application Support"
    return [home / ".pip" / PIP_NAME, config / "pip" / PIP_NAME]


def _uv_user_files(environ: Mapping[str, str]) -> list[Path]:
    if environ.get("UV_CONFIG_FILE"):
        return [Path(environ["UV_CONFIG_FILE"])]
    if sys.platform == "win32":
        system = [Path(environ.get("PROGRAMDATA", "C:/ProgramData"))]
    else:
        system = [*_xdg_folders(environ), Path("/etc")]
    machine = [base / "uv/uv.toml" for base in system if (base / "uv/uv.toml").is_file()]
    return [_user_folder(environ) / "uv/uv.toml", *machine[:1]]


def _user_folder(environ: Mapping[str, str]) -> Path:
    name, usual = ("APPDATA", "") if sys.platform == "win32" else ("XDG_CONFIG_HOME", ".config")
    return Path(environ.get(name) or _home(environ) / usual)


def _xdg_folders(environ: Mapping[str, str]) -> list[Path]:
    return [
        Path(base) for base in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":") if base
    ]


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())


def _read_pip_file(path: Path, folder: Path, roots: Iterable[Path]) -> Indexes:
    places = Path(os.path.normpath(path.absolute())), Path(os.path.realpath(path))
    text, strange = (
        _text(path),
        any(place.is_relative_to(root) for place in places for root in roots),
    )
    try:
        return replace(
            parse_pip_file(text, folder), file=path if strange else None, origin=str(path)
        )
    except ValueError as error:
        raise _malformed(path, error) from error


def _read_uv_file(path: Path) -> Indexes:
    try:
        return replace(parse_uv_table(_uv_table(path) or {}, path.parent), origin=str(path))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _malformed(path, error) from error


def _uv_table(path: Path, folder: Path | None = None) -> dict[str, Any] | None:
    try:
        document = parse_toml(_text(path, folder))
    except ValueError as error:
        raise _malformed(path, error) from error
    table = document if path.name != "pyproject.toml" else document.get("tool", {}).get("uv")
    return table if isinstance(table, dict) else None


def _text(path: Path, folder: Path | None = None) -> str:
    """Read a file without what we wrote for plain pip and uv; empty where there is none.

    A block that somebody has changed since is theirs, and counts as pip and uv read it.
    """
    try:
        text = read_document(path, folder)
        try:
            return without_blocks(text)
        except BrokenBlockError:
            return text
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise _malformed(path, getattr(error, "strerror", None) or error) from error


def _malformed(path: Path, error: Exception | str) -> UsageError:
    return UsageError(
        "malformed-configuration", f"{path} is malformed: {error}", hint=f"Repair or move {path}"
    )


def _of_pip(options: Mapping[str, str], folder: Path) -> Indexes:
    return Indexes(
        default=options.get("index-url") or None,
        extra=tuple(options.get("extra-index-url", "").split()),
        find_links=tuple(_located(link, folder) for link in options.get("find-links", "").split()),
        certificates=options.get("cert") or None,
        settings=tuple(pip_settings(options)),
    )


def _option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _unnamed(index: str) -> str:
    name, equals, url = index.partition("=")
    return url if equals and "/" not in name else index


def _located(link: str, folder: Path) -> str:
    return link if "://" in link else os.path.normpath(folder / Path(link).expanduser())
