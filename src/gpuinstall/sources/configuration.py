"""What the configuration of pip and uv says about package indexes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import parse_ini, parse_toml, read_document
from gpuinstall.base.marked_block import BrokenBlockError, without_blocks
from gpuinstall.base.values import dataclass
from gpuinstall.sources.configuration_files import ConfigurationFiles
from gpuinstall.sources.provenance import (
    SourceSetting,
    pip_settings,
    source_setting,
    uv_indexes,
    uv_settings,
)

if TYPE_CHECKING:
    from configparser import RawConfigParser

TRUST_FOLDER = "GPUINSTALL_TRUST_FOLDER"
_EXTRA_INDEX_VARIABLES = ("UV_INDEX", "UV_EXTRA_INDEX_URL")
_Environ: TypeAlias = Mapping[str, str]
_REFUSED_INDEXES = ("index (flat, default)", "index (by relative path)")


@dataclass(frozen=True)
class Indexes:
    """What one configuration says."""

    default: str | None = None
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    certificates: str | None = None
    """The path of a CA bundle."""

    settings: tuple[tuple[str, str, str], ...] = ()
    """Tool, key and value of what else it says of sources."""

    file: Path | None = None
    """The project's own file, which may be another author's; None if it is the user's configuration."""

    origin: str = ""
    """The file or the variables that it was read from."""

    @property
    def source_settings(self) -> Iterator[SourceSetting]:
        """What ``file`` says of sources, setting by setting."""
        if self.file is None:
            return
        values = {
            "index-url": filter(None, (self.default,)),
            "extra-index-url": self.extra,
            "find-links": self.find_links,
        }
        for key, addresses in values.items():
            for address in addresses:
                if self.file.suffix == ".toml":
                    yield source_setting("uv", key, address, self.file)
                else:
                    yield source_setting("pip", f"--{key}", address, self.file)
        yield from self.further_settings

    @property
    def further_settings(self) -> Iterator[SourceSetting]:
        """What ``file`` says of sources beside indexes and find-links."""
        if self.file:
            for tool, key, value in self.settings:
                yield source_setting(tool, key, value, self.file)


def merged(configurations: Iterable[Indexes]) -> Indexes:
    """Merge configurations, the strongest first: single values of the first that has one, all of the lists."""
    default = None
    certificates = None
    extra = dict[str, None]()
    find_links = dict[str, None]()
    for indexes in configurations:
        default = default or indexes.default
        certificates = certificates or indexes.certificates
        extra |= dict.fromkeys(indexes.extra)
        find_links |= dict.fromkeys(indexes.find_links)
    return Indexes(
        default=default,
        extra=tuple(extra),
        find_links=tuple(find_links),
        certificates=certificates,
    )


def read_configuration(environ: _Environ, folder: Path) -> list[Indexes]:
    """Return all of uv's and pip's configuration that counts in a folder, the strongest first.

    Raises:
        UsageError: if a file is malformed.
    """
    files = ConfigurationFiles(environ)
    project_files = _uv_project_files(environ, folder)
    projects = [folder, *(file.parent for file in project_files)]

    indexes = parse_uv_environment(environ, folder)
    variables = filter(environ.get, _EXTRA_INDEX_VARIABLES)
    origin = " and ".join(variables)
    configurations = [replace(indexes, origin=origin)]
    for file in project_files:
        indexes = _read_uv_file(file)
        configurations.append(replace(indexes, file=file))
    for file in reversed(files.uv_user):
        indexes = _read_uv_file(file)
        configurations.append(indexes)

    indexes = parse_pip_environment(environ, folder)
    configurations.append(replace(indexes, origin="PIP_EXTRA_INDEX_URL"))
    for file in reversed(files.pip_near):
        indexes = _read_pip_file(file, folder)
        is_in_project = any(_is_in(project, file) for project in projects)
        if is_in_project:
            indexes = replace(indexes, file=file)
        configurations.append(indexes)
    for file in reversed(files.pip_user):
        indexes = _read_pip_file(file, folder)
        configurations.append(indexes)
    return configurations


def _is_in(folder: Path, file: Path) -> bool:
    """Whether a file is in a folder, as they are named or as links lead."""
    absolute = Path(os.path.normpath(file.absolute()))
    real = Path(os.path.realpath(file))
    parents = {*absolute.parents, *real.parents}
    real_folder = Path(os.path.realpath(folder))
    return folder in parents or real_folder in parents


def _uv_project_files(environ: _Environ, folder: Path) -> list[Path]:
    """Return the nearest of uv's files, and the root of a workspace above it, which uv reads in its place."""
    for variable in ("UV_NO_CONFIG", "UV_CONFIG_FILE"):
        if environ.get(variable):
            return []
    files = list[Path]()
    for base in (folder, *folder.parents):
        for name in ("uv.toml", "pyproject.toml"):
            path = base / name
            if not path.is_file():
                continue
            table = _uv_table(path, base)
            if table is None:
                continue
            is_nearest = not files
            if is_nearest or "workspace" in table:
                files.append(path)
    return files[:2]


def settings_to_record(configurations: Iterable[Indexes]) -> list[SourceSetting]:
    """Return what the configuration of a folder says of sources, which a lock that is made there records.

    The pip.conf of an environment is left out: it counts only while that is active.
    """
    settings = list[SourceSetting]()
    for indexes in configurations:
        if indexes.file is None:
            continue
        environment = indexes.file.with_name("pyvenv.cfg")
        if not environment.is_file():
            settings += indexes.source_settings
    return settings


def pip_words(
    environ: _Environ,
    file: Path,
    text: str,
    option: str,
) -> tuple[str, ...]:
    """Return the words that ``pip install`` would take for an option without a further section in ``file``.

    A section ``install`` counts more than ``global``, whatever file it is in, and a later file more than an earlier.

    Args:
        environ: The variables that say which files pip reads.
        file: One of them, or a further one that counts most.
        text: What ``file`` is taken to hold.
        option: Its name in the files, such as ``constraint``.
    """
    files = ConfigurationFiles(environ)
    texts = {}
    for path in (*files.pip_user, *files.pip_near):
        texts[path] = _text(path)
    texts[file] = text
    words = list[str]()
    for section in ("global", "install"):
        for path, content in texts.items():
            try:
                options = _pip_options(parse_ini(content), section)
            except ValueError as error:
                raise _malformed(path, error) from error
            if options.get(option):
                words = options[option].split()
    return tuple(words)


def trusts_folder(environ: _Environ) -> bool:
    """Whether a folder may choose sources: the variable, else ``trust-folder`` in the user's own file.

    Raises:
        UsageError: if one of them is malformed.
    """
    variable = environ.get(TRUST_FOLDER)
    if variable:
        if variable not in {"0", "1"}:
            raise UsageError("trust-folder", f"{TRUST_FOLDER} is {variable!r}, and not 0 or 1")
        return variable == "1"
    folder = ConfigurationFiles(environ).user_folder
    path = folder / "gpuinstall" / "config.toml"
    document = _document(path)
    trusted = document.get("trust-folder", True)
    if not isinstance(trusted, bool):
        raise _malformed(path, "trust-folder is true or false")
    return trusted


def parse_pip_environment(environ: _Environ, folder: Path) -> Indexes:
    """Parse pip's ``PIP_*`` variables."""
    options = {}
    for name, value in environ.items():
        if name.startswith("PIP_"):
            option = _pip_option(name.removeprefix("PIP_"))
            options[option] = value
    return _parse_pip_options(options, folder)


def parse_pip_file(text: str, folder: Path) -> Indexes:
    """Parse a ``pip.conf``: its sections global, download and install; raise ValueError if it is malformed."""
    options: dict[str, str] = {}
    parser = parse_ini(text)
    for section in ("global", "download", "install"):
        options |= _pip_options(parser, section)
    return _parse_pip_options(options, folder)


def _pip_options(parser: RawConfigParser, section: str) -> dict[str, str]:
    """Return what one section of a ``pip.conf`` sets."""
    options = {}
    if parser.has_section(section):
        for name, value in parser.items(section):
            options[_pip_option(name)] = value
    return options


def _pip_option(name: str) -> str:
    option = name.lower().replace("_", "-")
    return option.removeprefix("--")


def _parse_pip_options(options: Mapping[str, str], folder: Path) -> Indexes:
    extra = options.get("extra-index-url", "")
    links = options.get("find-links", "")
    return Indexes(
        default=options.get("index-url") or None,
        extra=tuple(extra.split()),
        find_links=_located(links.split(), folder),
        certificates=options.get("cert") or None,
        settings=tuple(pip_settings(options)),
    )


def parse_uv_environment(environ: _Environ, folder: Path) -> Indexes:
    """Parse uv's ``UV_*`` variables."""
    extra = list[str]()
    for name in _EXTRA_INDEX_VARIABLES:
        value = environ.get(name, "")
        extra += value.split()
    links = environ.get("UV_FIND_LINKS", "")
    default = None
    for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        if environ.get(name):
            default = _without_name(environ[name])
    return Indexes(
        default=default,
        extra=tuple(map(_without_name, extra)),
        find_links=_located(links.split(","), folder),
    )


def _without_name(index: str) -> str:
    """Return the address of an index that may be written ``name=address``."""
    name, equals, address = index.partition("=")
    if equals and "/" not in name:
        return address
    return index


def parse_uv_table(table: Mapping[str, Any], folder: Path) -> Indexes:
    """Parse a ``uv.toml`` or ``[tool.uv]``, in which an explicit index is neither the default nor an extra.

    Raises:
        KeyError, TypeError, AttributeError: if it has another shape.
    """
    default = None
    extra = list[str]()
    links = list[str]()
    settings = list[tuple[str, str, str]]()
    for key, value in uv_indexes(table):
        if key in _REFUSED_INDEXES:
            settings.append(("uv", key, value))
        elif key in {"index (default)", "index-url"}:
            default = default or value
        elif key in {"index (flat)", "find-links"}:
            links.append(value)
        else:
            extra.append(value)
    return Indexes(
        default=default,
        extra=tuple(extra),
        find_links=_located(links, folder),
        settings=(*settings, *uv_settings(table)),
    )


def _located(links: Iterable[str], folder: Path) -> tuple[str, ...]:
    """Return links to pages as they are, and folders as absolute paths."""
    located = list[str]()
    for link in map(str.strip, links):
        if "://" in link:
            located.append(link)
        elif link:
            path = folder / Path(link).expanduser()
            located.append(os.path.normpath(path))
    return tuple(located)


def _read_pip_file(path: Path, folder: Path) -> Indexes:
    text = _text(path)
    if not text:
        return Indexes(origin=str(path))
    try:
        indexes = parse_pip_file(text, folder)
    except ValueError as error:
        raise _malformed(path, error) from error
    return replace(indexes, origin=str(path))


def _read_uv_file(path: Path) -> Indexes:
    table = _uv_table(path) or {}
    try:
        indexes = parse_uv_table(table, path.parent)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _malformed(path, error) from error
    return replace(indexes, origin=str(path))


def _uv_table(path: Path, folder: Path | None = None) -> dict[str, Any] | None:
    """Return uv's settings in a file, which no link may lead out of ``folder``; None if it has none."""
    table = _document(path, folder)
    if path.name == "pyproject.toml":
        tool = table.get("tool", {})
        table = tool.get("uv")
    if isinstance(table, dict):
        return table
    return None


def _document(path: Path, folder: Path | None = None) -> Any:
    text = _text(path, folder)
    try:
        return parse_toml(text)
    except ValueError as error:
        raise _malformed(path, error) from error


def _text(path: Path, folder: Path | None = None) -> str:
    """Return a file without what we wrote for plain pip and uv; empty if there is none."""
    try:
        text = read_document(path, folder)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None)
        raise _malformed(path, reason or error) from error
    # A block that was changed since is the user's: it counts as pip and uv read it.
    with suppress(BrokenBlockError):
        text = without_blocks(text)
    return text


def _malformed(path: Path, error: Exception | str) -> UsageError:
    return UsageError(
        "malformed-configuration",
        f"{path} is malformed: {error}",
        hint=f"Repair or move {path}",
    )
