"""Read the configuration files and variables of pip and uv.

Sources: pip's "Configuration" topic (pip.pypa.io) and uv's "Configuration files" (docs.astral.sh/uv), read 2026-11.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from itertools import chain
from os.path import exists, isdir, isfile
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from gpuinstall.base.advice import Advice
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import (
    parse_ini,
    parse_toml,
    read_document,
    xdg_folder,
)
from gpuinstall.base.location import Location, file_path, locate_requirement
from gpuinstall.base.owners import is_foreign, owner_of
from gpuinstall.base.request import Sourcing
from gpuinstall.base.shapes import CONFIG, UV, check_shape, parse_pyproject
from gpuinstall.base.text import (
    BrokenBlockError,
    is_guard_text,
    remove_block,
    remove_logins,
)
from gpuinstall.base.trust import (
    TRUST_FOLDER,
    find_user_config,
    is_in_project,
    trusts_folders,
    user_folder,
)
from gpuinstall.base.values import replace
from gpuinstall.sources.gate import Policy
from gpuinstall.sources.provenance import (
    TORCH_BACKEND,
    Effect,
    SourceSetting,
    create_setting,
    resolve_path,
)
from gpuinstall.sources.requirements_file import (
    ADDRESS_KEYS,
    PACKAGE_LISTS,
    PROJECT,
    convert_content_errors,
    convert_pip_option,
    create_list_settings,
    create_reference_settings,
    read_requirements,
    read_requirements_text,
)
from gpuinstall.sources.uv_settings import (
    BUILD_CONSTRAINTS,
    CONSTRAINTS_KEY,
    EXCLUSIONS_KEY,
    OVERRIDES_KEY,
    KeyList,
    UvSetting,
    UvSettings,
    find_list,
)

_Tables: TypeAlias = tuple[Path, dict[str, Any]]
_Settings: TypeAlias = Iterator[SourceSetting | UvSetting]
PipFiles: TypeAlias = Mapping[Path, Mapping[str, str]]
"""The options in each of pip's files, by name."""

OFF = {"", "0", "false", "no", "off", "n", "f"}
"""False values of pip and uv. uv uses clap's ``BoolishValueParser``."""

_ON = {"1", "true", "yes", "on", "y", "t"}
"""True values of pip and uv."""

_UV_VARIABLES = {
    "UV_DEFAULT_INDEX": "index-url",
    "UV_INDEX_URL": "index-url",
    "UV_INDEX": "extra-index-url",
    "UV_EXTRA_INDEX_URL": "extra-index-url",
    "UV_FIND_LINKS": "find-links",
}
"""uv's source variables, by setting, in order of precedence."""

_UV_LISTS = {
    "UV_CONSTRAINT": CONSTRAINTS_KEY,
    "UV_OVERRIDE": OVERRIDES_KEY,
    "UV_EXCLUDE": EXCLUSIONS_KEY,
    "UV_BUILD_CONSTRAINT": BUILD_CONSTRAINTS,
}
"""uv's variables with paths of requirements files, and their settings."""

_NO_VARIABLES = {
    f"UV_{key.replace('-', '_').upper()}"
    for key, shape in UV.items()
    if isinstance(shape, (list, dict)) and not key.endswith("-package")
}
"""The variables of lists and tables, which uv does not read."""

_LOCAL_NAMES = {
    "allow-insecure-host": "UV_INSECURE_HOST",
    "http-proxy": "HTTP_PROXY",
    "https-proxy": "HTTPS_PROXY",
    "no-proxy": "NO_PROXY",
}
"""The variables of local keys with other names."""

_DECIDING = re.compile(
    r".+\.(toml|lock)|requirements.*\.txt|environment\.ya?ml|setup\.(py|cfg)|\.python-version"
)
PIP_NAME = "pip.ini" if sys.platform == "win32" else "pip.conf"

_INDEX_OPTIONS = {
    "authenticate",
    "cache-control",
    "exclude-newer",
    "ignore-error-codes",
}
"""The keys of uv's ``index`` entry that only uv reads."""

_UV_FILE = Path("uv", "uv.toml")
MASKED = "tool.uv."
"""The prefix of the keys in a pyproject.toml that a uv.toml replaces."""


def _machine_folders() -> list[Path]:
    if sys.platform == "win32":
        return [xdg_folder("PROGRAMDATA", "C:/ProgramData")]
    folders = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    return [*map(Path, filter(os.path.isabs, folders.split(":"))), Path("/etc")]


def find_pip_files() -> list[Path]:
    """Return pip's global, user, and environment configuration files.

    The last file has the highest precedence. Some of the files may not exist.
    """
    requested = os.environ.get("PIP_CONFIG_FILE")
    if requested == os.devnull:
        return []
    folders = [folder / "pip" for folder in _machine_folders()]
    if sys.platform == "darwin":
        folders = [Path("/Library/Application Support/pip")]
    elif sys.platform != "win32":
        # pip reads /etc/pip.conf, not /etc/pip/pip.conf.
        folders[-1] = Path("/etc")
    files = [folder / PIP_NAME for folder in folders]
    # PIP_CONFIG_FILE replaces the user's files if the file exists.
    if not requested or not exists(requested):
        files += _pip_files_of_user()
    return [*files, *_active_pip_files()]


def _active_pip_files() -> list[Path]:
    """Return pip's file in the active environment, and ``PIP_CONFIG_FILE``."""
    prefix = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    files = [Path(prefix, PIP_NAME)] if prefix else []
    requested = os.environ.get("PIP_CONFIG_FILE")
    return [*files, Path(requested)] if requested else files


def _pip_files_of_user() -> list[Path]:
    config = user_folder()
    legacy = "pip" if sys.platform == "win32" else ".pip"
    application_support = Path.home() / "Library/Application Support"
    if sys.platform == "darwin" and isdir(application_support / "pip"):
        config = application_support
    return [Path.home() / legacy / PIP_NAME, config / "pip" / PIP_NAME]


def _find_uv_files() -> list[Path]:
    """Return uv's user configuration file and its first existing system file.

    ``UV_CONFIG_FILE`` replaces both files.

    Raises:
        UsageError: ``UV_CONFIG_FILE`` does not exist. uv also reports this error.
    """
    requested = os.environ.get("UV_CONFIG_FILE")
    if requested and not exists(requested):
        raise UsageError(
            "malformed-configuration",
            f"UV_CONFIG_FILE is {requested}, which does not exist",
            hint=Advice("unset", ("UV_CONFIG_FILE",)),
        )
    if os.environ.get("UV_NO_CONFIG") or requested == os.devnull:
        return []
    if requested:
        return [Path(requested)]
    files = [folder / _UV_FILE for folder in _machine_folders()]
    return [user_folder() / _UV_FILE, *filter(isfile, files)][:2]


def find_user_file(tool: str) -> Path:
    """Return the user's highest-precedence pip or uv configuration file."""
    requested = os.environ.get(f"{tool.upper()}_CONFIG_FILE")
    if requested and requested != os.devnull:
        return Path(requested).absolute()
    if tool == "uv":
        return user_folder() / _UV_FILE
    return _pip_files_of_user()[-1]


def read_no_sources(folder: Path, sourcing: Sourcing) -> frozenset[str]:
    """Return the packages of a folder without a source, or ``:all:``."""
    read = read_uv_configuration(folder, sourcing)
    rows = tuple(one for one in read if isinstance(one, UvSetting))
    return UvSettings(rows).no_sources


def read_uv_configuration(folder: Path, sourcing: Sourcing) -> _Settings:
    """Yield uv's settings that apply in a folder, by precedence.

    Args:
        folder: The folder.
        sourcing: The user's options, each of which replaces its variable.

    Raises:
        UsageError: A file is malformed.
    """
    yield from map(_mark_own, read_uv_variables(folder, sourcing))
    # As in uv, these variables replace the project's settings.
    is_replaced = os.environ.get("UV_NO_CONFIG") or os.environ.get("UV_CONFIG_FILE")
    tables = [] if is_replaced else [*read_project_tables(folder)]
    # In a workspace, the root takes precedence.
    for file, table in reversed(tables):
        yield from _parse_judged_settings(table, table, file)
    for file, table in _read_user_tables():
        # The user may have a newer uv with further keys.
        judged = {key for key in table if find_list(key) is not KeyList.UNKNOWN}
        yield from map(_mark_own, _parse_judged_settings(table, judged, file))


def read_pip_files(files: Iterable[Path]) -> PipFiles:
    """Return the options in pip's files.

    Raises:
        UsageError: A file is malformed.
    """
    options = {}
    for file in files:
        with _convert_read_errors(file):
            options[file] = parse_pip_options(_read_text(file, None))
    return options


def read_pip_settings(files: PipFiles, folder: Path) -> _Settings:
    """Yield the settings in pip's variables and files, by precedence.

    Args:
        files: The options in pip's files.
        folder: The folder to which paths are relative.

    Raises:
        UsageError: A value is malformed.
    """
    projects = [folder, *(file.parent for file, _ in read_project_tables(folder))]
    active_files = _active_pip_files()
    # The file of a variable is its name.
    variables = {
        Path(name): {_normalize_pip_option(name.removeprefix("PIP_")): value}
        for name, value in os.environ.items()
        if name.startswith("PIP_")
    }
    for file, options in (*variables.items(), *reversed([*files.items()])):
        with _convert_read_errors(file):
            settings = [*convert_pip_options(options, file, folder)]
        is_of_folder = file in active_files and any(
            is_in_project(str(file), project) for project in projects
        )
        yield from settings if is_of_folder else map(_mark_own, settings)


def _parse_judged_settings(
    table: Mapping[str, Any], judged: Collection[str], file: Path
) -> tuple[SourceSetting | UvSetting, ...]:
    """Parse a table of uv.

    Args:
        table: The table.
        judged: The keys that uv must accept.
        file: The file, to whose folder paths are relative.

    Raises:
        UsageError: uv refuses a key.
    """
    with _convert_read_errors(file):
        # Unlike uv's errors, these contain no logins in any spelling.
        settings = parse_uv_settings(table, file)
        kept = {key: table[key] for key in table if key in judged}
        project = dict[str, Any]()
        if file.name == PROJECT:
            kept, project = _split_project_table(kept)
        if kept or project:
            import tomli_w  # slow to import, and few folders have settings

            from gpuinstall.base.uv import find_settings_fault

            # This is a root, so that uv reads no other project.
            document = {"tool": {"uv": {**project, "workspace": {}}}}
            fault = find_settings_fault(tomli_w.dumps(kept), tomli_w.dumps(document))
            if fault:
                raise UsageError(
                    "malformed-configuration",
                    f"gpuinstall's uv refuses {file}: {fault}",
                    hint=f"Change {file}",
                )
    return settings


def _split_project_table(table: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the settings of a pyproject.toml to judge, and its project keys.

    For other keys of a pyproject.toml, uv's commands only print a warning.
    """
    lists = {key: find_list(key) for key in table.keys() - {"sources"}}
    settings = {
        key: table[key]
        for key, one in lists.items()
        if one in {KeyList.ADDRESSES, KeyList.PASSED} or key == "required-version"
    }
    project = {
        key: table[key]
        for key, one in lists.items()
        # uv reads no other key of an unmanaged project.
        if one is KeyList.REQUEST and (key, table[key]) != ("managed", False)
    }
    return settings, project


def _mark_own(setting: SourceSetting | UvSetting) -> SourceSetting | UvSetting:
    return replace(setting, is_own=True)


def read_project_tables(folder: Path) -> Iterator[_Tables]:
    """Yield uv's configuration files for a folder, with their settings.

    The files are the nearest one and the one in the root of the workspace that has the
    project as a member. uv reads only the file of the root.

    Raises:
        UsageError: A file or a pattern of members is malformed.
    """
    is_nearest = True
    project = None
    for base in (folder, *folder.parents):
        files = [path for path in (base / "uv.toml", base / PROJECT) if isfile(path)]
        read = ((path, _read_uv_table(path, base)) for path in files)
        tables = {path: table for path, table in read if table is not None}
        if len(tables) > 1:
            rows = tables[base / PROJECT].items()
            tables[base / PROJECT] = {_mask_key(key): value for key, value in rows}
        if base / PROJECT in files:
            project = project or base
        workspace = tables.get(base / PROJECT, {}).get("workspace")
        is_root = workspace is not None
        if workspace is not None and project not in {base, None}:
            from gpuinstall.sources.workspace import find_workspace_members

            with _convert_read_errors(base / PROJECT):
                members = find_workspace_members(workspace, base)
            is_root = os.path.relpath(project, base) in members
        if tables and (is_nearest or is_root):
            yield from tables.items()
            is_nearest = False
        if workspace is not None:
            return


def _read_user_tables() -> Iterator[_Tables]:
    """Yield uv's user and system settings, highest precedence first."""
    for file in _find_uv_files():
        yield file, _read_uv_table(file, None) or {}


def read_local_variables() -> dict[str, str]:
    """Return the user's local keys of uv as environment variables."""
    variables = dict[str, str]()
    for _, table in reversed([*_read_user_tables()]):
        for key, value in {**table, **table.get("pip", {})}.items():
            name = _LOCAL_NAMES.get(key, f"UV_{key.replace('-', '_').upper()}")
            if find_list(key) is KeyList.LOCAL and not isinstance(value, dict):
                words = value if isinstance(value, list) else [value]
                # TOML and uv's variables have true and false.
                variables[name] = ("," if name == "NO_PROXY" else " ").join(
                    str(word).lower() if isinstance(word, bool) else str(word)
                    for word in words
                )
    return variables


def find_pip_values(files: PipFiles, option: str) -> tuple[str, ...]:
    """Return the values of an option in pip's files, such as ``pre``."""
    values = [options.get(option) for options in files.values()]
    return tuple(next(filter(None, reversed(values)), "").split())


def read_policy(folder: Path) -> Policy:
    """Read which sources and builds the user permits for a folder.

    If another user owns the folder or one of its files, only the variable
    ``GPUINSTALL_TRUST_FOLDER`` can trust the folder.

    Args:
        folder: The folder of the project.

    Returns:
        The trust in the folder, from the variable or the user's own file, and the
        ``trusted-sources`` of that file.

    Raises:
        UsageError: The variable or the file is malformed.
    """
    variable = os.environ.get(TRUST_FOLDER, "")
    if variable not in {"", "0", "1"}:
        message = f"{TRUST_FOLDER} is {variable!r}, but must be 0 or 1"
        raise UsageError("trust-folder", message)
    path = find_user_config()
    with _convert_read_errors(path):
        table = parse_toml(_read_text(path, None))
        check_shape(table, CONFIG)
        prefixes = table.get("trusted-sources", [])
        for prefix in prefixes:
            if not re.match(r"(https?|ssh)://[^/]|file:///", prefix):
                raise ValueError(f"trusted-sources: {prefix} is not a URL")
        policy = Policy(
            trusts_folder=trusts_folders(),
            trusts_other_users=variable == "1",
            trusted_sources=tuple(map(Location.parse, prefixes)),
            pass_build_variables=tuple(table.get("pass-build-variables", ())),
        )
    return check_owners(policy, [folder], folder)


def check_owners(policy: Policy, paths: Iterable[Path], project: Path) -> Policy:
    """Distrust a project if another user owns one of its files.

    Args:
        policy: The policy for the project.
        paths: Files that select packages or sources, and folders with such files.
        project: The folder of the project.
    """
    if policy.trusts_other_users or not policy.trusts_folder:
        return policy
    for path in chain.from_iterable(map(_find_config_files, dict.fromkeys(paths))):
        # A missing file selects nothing.
        with suppress(OSError):
            if is_foreign(path, project):
                why = f"{path} belongs to {owner_of(path)}"
                return replace(policy, trusts_folder=False, why=why)
    return policy


def _find_config_files(path: Path) -> Iterator[Path]:
    """Yield a file, or a folder with its files that select packages."""
    yield path
    # If the folder cannot be listed, its files cannot be read either.
    with suppress(OSError):
        for file in path.iterdir():
            if _DECIDING.fullmatch(file.name):
                yield file
        yield path / ".venv" / PIP_NAME


def convert_pip_options(
    options: Mapping[str, str], file: Path, folder: Path
) -> _Settings:
    """Convert the options of a ``pip.conf`` or a variable to settings.

    Args:
        options: The options.
        file: The path of the file or the name of the variable, for messages.
        folder: The working folder, to which pip's paths are relative.

    Raises:
        ValueError: A value is malformed.
    """
    for option, value in options.items():
        if value.lower() in OFF:
            continue
        if option == "cert":
            yield UvSetting(option, value, file)
        is_list = option in {"extra-index-url", "find-links"}
        for word in value.split() if is_list else [value]:
            yield from convert_pip_option(f"--{option}", word, file, folder)


def parse_pip_options(text: str) -> dict[str, str]:
    """Parse the text of a ``pip.conf``; [install] overrides [global].

    Raises:
        ValueError: The text is malformed.
    """
    options = dict[str, str]()
    if text:
        sections = parse_ini(text)
        for section in ("global", "install"):
            for name, value in sections.get(section, {}).items():
                options[_normalize_pip_option(name)] = value
    return options


def _normalize_pip_option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def read_uv_variables(folder: Path, sourcing: Sourcing) -> _Settings:
    """Yield the settings in uv's options and variables.

    The file of each setting is the name of the option or the variable.
    """
    if sourcing.no_sources:
        yield UvSetting("no-sources", True, Path("--no-sources"))
    for variable, key in _UV_VARIABLES.items():
        is_of_files = key == "find-links"
        name = variable.replace("UV_", "--").replace("_", "-").lower()
        words = list(sourcing.addresses.get(name, ()))
        if not words:
            name = variable
            words = os.environ.get(name, "").split("," if is_of_files else None)
        for word in filter(None, map(str.strip, words)):
            index, address = "", word
            if not is_of_files:
                # An index may have a name: NAME=URL.
                [(index, address)] = re.findall("^(?:([^=/]+)=)?(.*)", word)
            address = _add_login(address, index)
            yield create_setting(ADDRESS_KEYS[key], key, address, Path(name), folder)
    for name, text in os.environ.items():
        is_key = name.startswith(("UV_", "GPUINSTALL_ONLY_BINARY"))
        if is_key and text and name not in {*_UV_VARIABLES, *_NO_VARIABLES}:
            key = name.partition("_")[2].lower().replace("_", "-")
            value = _parse_value(key, text)
            if name in _UV_LISTS:
                key = _UV_LISTS[name]
                value = [*_read_requirement_files(text, folder)]
            yield from _convert_uv_setting(key, value, Path(name))


def _read_requirement_files(names: str, folder: Path) -> Iterator[str]:
    """Yield the requirements in listed files, with absolute paths.

    Skip gpuinstall's own constraints file, which keeps uv from replacing torch.
    """
    for name in names.split():
        path = folder / file_path(name)
        if is_guard_text(read_requirements_text(path, None)):
            continue
        for one in read_requirements(path, None).lines:
            yield locate_requirement(one, folder).text


def _parse_value(key: str, text: str) -> Any:
    """Parse the value of a variable for a key of uv."""
    if text.lower() in OFF:
        return False
    if key in {"exclude-newer-package", "prerelease-package"}:
        # The variable has words such as NAME=VALUE.
        pairs = (word.partition("=") for word in text.split())
        return {name: value for name, _, value in pairs}
    return text.split() if key.endswith("-package") else text.lower() in _ON or text


def format_index_url(index: Mapping[str, Any], file: Path) -> str:
    """Return the URL of an entry in uv's ``index`` list, with its login."""
    is_index = index.get("format") != "flat"
    address = resolve_path(index["url"], file.parent, is_index=is_index)
    return _add_login(address, index.get("name"))


def _add_login(address: str, name: object) -> str:
    """Add a named index's login from uv's variables to its URL."""
    variable = "UV_INDEX_" + re.sub("[^A-Z0-9]", "_", str(name or "").upper())
    login = [
        os.environ.get(f"{variable}_{part}", "") for part in ("USERNAME", "PASSWORD")
    ]
    if not (name and any(login)):
        return address
    # Without a password, the keyring may have one.
    written = ":".join(quote(part, safe="") for part in login).removesuffix(":")
    return remove_logins(address).replace("://", f"://{written}@", 1)


def parse_uv_settings(
    table: Mapping[str, Any],
    file: Path,
) -> tuple[SourceSetting | UvSetting, ...]:
    """Parse a uv settings table, except ``sources``.

    Explicit indexes apply only to ``sources``. The settings in ``[pip]`` take precedence.

    Args:
        table: A ``uv.toml`` or ``[tool.uv]``.
        file: The file, to whose folder paths are relative.

    Raises:
        ValueError: The table has an invalid shape, or two default indexes. uv's
            commands do not agree on a default index.
    """
    check_shape(table, UV)
    settings = list[SourceSetting | UvSetting]()
    indexes = table.get("index", [])
    defaults = [index["url"] for index in indexes if index.get("default")]
    if len(defaults) > 1:
        message = f"it has more than one default index: {' and '.join(defaults)}"
        raise ValueError(message)
    for index in indexes:
        if not index.get("explicit"):
            address = format_index_url(index, file)
            setting = create_setting(*_describe_index(index), address, file)
            options = {key: index[key] for key in _INDEX_OPTIONS & index.keys()}
            settings.append(replace(setting, options=options))
            if index.get("format") == "flat" and index.get("default"):
                settings.append(UvSetting("no-index", True, file))
    for part in (table.get("pip", {}), table):
        for key, value in part.items():
            settings += _convert_uv_setting(key, value, file)
    return tuple(settings)


def _convert_uv_setting(key: str, value: Any, file: Path) -> _Settings:
    """Yield the sources and settings that one key of uv contains."""
    if key in ADDRESS_KEYS:
        for address in value if isinstance(value, list) else [value]:
            yield create_setting(ADDRESS_KEYS[key], key, address, file)
        return
    if key == TORCH_BACKEND:
        yield create_setting(Effect.TORCH, key, str(value), file)
        return
    skipped = {KeyList.ADDRESSES, KeyList.REQUEST, KeyList.LOCAL}
    is_default = value is False and find_list(key) is not KeyList.PASSED
    # The only supported strategy is also uv's default.
    is_default |= (key, value) == ("index-strategy", "first-index")
    if is_default or find_list(key) in skipped:
        return
    if key in PACKAGE_LISTS and not isinstance(value, bool):
        yield from create_list_settings(PACKAGE_LISTS[key], value, file)
        return
    setting = UvSetting(key, value, file)
    yield setting
    yield from create_reference_settings(setting.requirements)


def _describe_index(index: Mapping[str, Any]) -> tuple[Effect, str]:
    """Return the effect, and the shown key, of an entry in uv's ``index``."""
    if index.get("format") == "flat":
        kind = "flat, default" if index.get("default") else "flat"
        return Effect.FIND_LINKS, f"index ({kind})"
    if index.get("default"):
        return Effect.INDEX, "index (default)"
    return Effect.EXTRA_INDEX, "index"


def _read_uv_table(path: Path, folder: Path | None) -> dict[str, Any] | None:
    """Return uv's settings in a file, if it has any; see ``read_document``."""
    with _convert_read_errors(path):
        text = _read_text(path, folder)
        if path.name == PROJECT:
            tables: dict[str, dict[str, Any]] = parse_pyproject(text).get("tool", {})
            return tables.get("uv")
        return parse_toml(text)


def _mask_key(key: str) -> str:
    """Mark a key of ``[tool.uv]`` if a uv.toml next to it replaces it."""
    is_kept = key == "sources" or find_list(key) is KeyList.REQUEST
    return key if is_kept else f"{MASKED}{key}"


def _read_text(path: Path, folder: Path | None) -> str:
    """Read a configuration file, without constraints that gpuinstall added."""
    try:
        text = read_document(path, folder)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    if is_guard_text(text):
        return ""
    # A block that the user edited is part of the configuration.
    with suppress(BrokenBlockError):
        text = remove_block(text)
    return text


def _convert_read_errors(path: Path) -> AbstractContextManager[None]:
    return convert_content_errors(
        path, "malformed-configuration", f"Repair or move {path}"
    )
