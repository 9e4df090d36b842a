"""Settings of uv, and the values that gpuinstall passes to uv.

Each of uv's keys is in one list of ``settings.json``. A variable ``UV_NO_BUILD`` is treated
like the key ``no-build``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, time, timedelta, timezone
from enum import Enum
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from gpuinstall.base.files import expand_home, read_json
from gpuinstall.base.requirement import (
    Requirement,
    TextOrigin,
    normalize_name,
    parse_requirement,
)
from gpuinstall.base.values import Value

CONSTRAINTS_KEY = "constraint-dependencies"
OVERRIDES_KEY = "override-dependencies"
EXCLUSIONS_KEY = "exclude-dependencies"
LIMITS = (CONSTRAINTS_KEY, OVERRIDES_KEY)
"""The keys with constraints of a request."""
METADATA_ROWS = "dependency-metadata"
BUILD_CONSTRAINTS = "build-constraint-dependencies"
BUILD_DEPENDENCIES = "extra-build-dependencies"
BUILD_VARIABLES = "extra-build-variables"
_NO_ISOLATION = "no-build-isolation"
_NOT_ISOLATED = "no-build-isolation-package"
_NEWER = "exclude-newer"
_NEWER_PACKAGE = "exclude-newer-package"

BUILD_KEYS = (
    BUILD_CONSTRAINTS,
    BUILD_DEPENDENCIES,
    BUILD_VARIABLES,
    "config-settings",
    "config-settings-package",
    "require-build-hashes",
    "prerelease",
    "prerelease-package",
    _NEWER,
    _NEWER_PACKAGE,
)
"""Passed keys that change how uv builds a package."""

_BUILD_CODE = (
    BUILD_DEPENDENCIES,
    BUILD_VARIABLES,
    BUILD_CONSTRAINTS,
    "config-settings",
    "config-settings-package",
    _NO_ISOLATION,
    _NOT_ISOLATED,
    "no-binary",
    "no-binary-package",
)
"""Keys that an untrusted folder must not have."""

_TIGHTENED = ("no-build", "require-hashes", "require-build-hashes")
"""Passed keys that only the user can set to false."""

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


class KeyList(Enum):
    """List of uv's keys in ``settings.json``."""

    ADDRESSES = "addresses"
    REQUEST = "request"
    PASSED = "passed"
    LOCAL = "local"
    NEVER_PASSED = "never passed"
    UNKNOWN = "unknown"


@cache
def load_lists() -> Mapping[str, Mapping[str, str]]:
    """Load the lists, with the reasons of keys that are not passed."""
    # The table is JSON, because importing a TOML parser takes longer than reading it.
    document = read_json(Path(__file__).with_name("settings.json"), None)
    reasons = document.pop("never passed")
    never = {name: reason for reason, names in reasons.items() for name in names}
    lists = {kind: dict.fromkeys(names, "") for kind, names in document.items()}
    return {**lists, "never passed": never}


@cache
def find_list(key: str) -> KeyList:
    """Return the list that contains a key of uv."""
    for name, keys in load_lists().items():
        if key in keys or any(fnmatchcase(key, one) for one in keys if "*" in one):
            return KeyList(name)
    return KeyList.UNKNOWN


class Setting(Value):
    """Key with its value, in a file, an environment variable, or an option."""

    key: str
    value: Any
    file: Path
    """The file, or the name of a variable or an option."""
    line: int | None = None
    is_own: bool = False
    """Whether the user, not the folder, configured the setting."""
    package: str = ""
    """The package that the setting applies to. Empty: all packages."""

    @property
    def place(self) -> str:
        """The file and line of the setting, for messages."""
        return f"{self.file}, line {self.line}" if self.line else str(self.file)

    @property
    def is_of_pip(self) -> bool:
        """Whether pip's configuration has the setting."""
        return self.file.name.startswith(("PIP_", "pip."))

    @property
    def is_option(self) -> bool:
        """Whether an option of the command is the setting."""
        return self.file.name.startswith("--")

    @property
    def shown(self) -> str:
        """The key and its place, for messages."""
        # Variables and options have no suffix.
        return f"{self.key} in {self.place}" if self.file.suffix else self.place


class UvSetting(Setting):
    """Key of uv with its value."""

    def __str__(self) -> str:
        text = self.value
        if not isinstance(text, str):
            text = json.dumps(text, default=str, ensure_ascii=False)
        return f"{self.key} {text}"

    @cached_property
    def list(self) -> KeyList:
        """The list that contains the key."""
        return find_list(self.key)

    @property
    def is_recorded(self) -> bool:
        """Whether a lock records the setting."""
        unpassed = {_NO_ISOLATION, _NOT_ISOLATED, "no-index"}
        return self.list is KeyList.PASSED or self.key in unpassed

    @property
    def is_refused_without_trust(self) -> bool:
        """Whether an untrusted folder must not have this setting."""
        if self.key in {"no-build", "no-binary"}:
            return self.value is (self.key == "no-binary")
        return self.key in _BUILD_CODE or self.list is KeyList.UNKNOWN

    @property
    def ignore_reason(self) -> str:
        """Why the setting is not passed to uv, or an empty string."""
        if self.list is KeyList.UNKNOWN:
            return "gpuinstall does not know this setting"
        return load_lists()["never passed"].get(self.key, "")

    def builds(self, package: str) -> bool:
        """Return whether the setting changes the build of a package."""
        if self.key not in _BUILD_CODE:
            return False
        is_for_all = self.key in {BUILD_CONSTRAINTS, "config-settings"}
        if is_for_all or isinstance(self.value, bool):
            return bool(self.value)
        return package in map(normalize_name, self.value)

    @property
    def requirements(self) -> Iterator[Requirement]:
        """The requirements in the value."""
        origin = TextOrigin(str(self.file), self.key, self.line)
        for text in _find_requirements(self.key, self.value):
            yield parse_requirement(text, origin)


def _find_requirements(key: str, value: Any) -> Iterator[str]:
    """Yield the texts of the requirements in the value of a key."""
    rows = value
    if key == BUILD_DEPENDENCIES:
        rows = [row for listed in value.values() for row in listed]
    elif key not in {*LIMITS, BUILD_CONSTRAINTS, METADATA_ROWS}:
        return
    for row in rows:
        if isinstance(row, str):
            yield row
        elif "requirement" in row:
            yield row["requirement"]
        else:
            yield from row.get("dependencies", row.get("requires-dist", ()))


def merge_settings(settings: Iterable[UvSetting]) -> dict[str, Any]:
    """Return uv's passed keys with their values, as uv merges its files.

    A folder can only tighten the user's settings. Paths are absolute.

    Args:
        settings: The settings, highest precedence first.
    """
    passed = [one for one in settings if one.list is KeyList.PASSED]
    merged = _merge(passed)
    own = _merge(one for one in passed if one.is_own)
    folder = _merge(one for one in passed if not one.is_own)
    for key in _TIGHTENED:
        if own.get(key):
            merged[key] = True
    return merged | _merge_dates(own, folder)


def find_names(passed: Mapping[str, Any], key: str) -> frozenset[str]:
    """Return ``:all:`` if a key is true, and the packages of its list."""
    names = map(normalize_name, passed.get(f"{key}-package", ()))
    return frozenset(names).union([":all:"] if passed.get(key) else [])


def _merge(settings: Iterable[UvSetting]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for setting in settings:
        value = _locate(setting)
        known = merged.get(setting.key, value)
        merged[setting.key] = known if known is value else _combine(known, value)
    return merged


def _combine(first: Any, second: Any) -> Any:
    """Combine two values of a key. The first one takes precedence."""
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *(one for one in second if one not in first)]
    if isinstance(first, dict) and isinstance(second, dict):
        shared = {
            name: _combine(first[name], second[name])
            for name in first.keys() & second.keys()
        }
        return {**second, **first, **shared}
    return first


def _locate(setting: UvSetting) -> Any:
    """Return the value of a setting with absolute paths."""
    folder = setting.file.absolute().parent
    texts = {}
    for text in _find_requirements(setting.key, setting.value):
        requirement = parse_requirement(text)
        path = requirement.path
        if path and requirement.has_name:
            place = (folder / expand_home(path)).as_uri()
            texts[text] = requirement.with_url(place).text
    return _replace_texts(setting.value, texts) if texts else setting.value


def _replace_texts(value: Any, texts: Mapping[str, str]) -> Any:
    """Replace requirements in a value by other requirements."""
    if isinstance(value, list):
        return [_replace_texts(one, texts) for one in value]
    if isinstance(value, dict):
        return {name: _replace_texts(one, texts) for name, one in value.items()}
    return texts.get(value, value) if isinstance(value, str) else value


def _merge_dates(own: Mapping[str, Any], folder: Mapping[str, Any]) -> dict[str, Any]:
    """Return the earlier of the user's and the folder's dates."""
    merged: dict[str, Any] = {}
    dates = [one[_NEWER] for one in (folder, own) if one.get(_NEWER)]
    if dates:
        merged[_NEWER] = min(dates, key=parse_date)
    packages = dict(own.get(_NEWER_PACKAGE, {}))
    for name, date in folder.get(_NEWER_PACKAGE, {}).items():
        limit = packages.get(name, own.get(_NEWER))
        both = [one for one in (date, limit) if one]
        packages[name] = min(both, key=parse_date, default=False)
    return merged | ({_NEWER_PACKAGE: packages} if packages else {})


def is_later_date(setting: UvSetting, own: Mapping[str, Any]) -> bool:
    """Return whether a setting has a later date than the user's."""
    if setting.key != _NEWER or not own.get(_NEWER):
        return False
    return parse_date(setting.value) > parse_date(own[_NEWER])


def parse_date(text: str) -> datetime:
    """Parse a date, a time, or a duration such as ``1 week`` or ``P7D``."""
    now = datetime.now(timezone.utc)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        day = datetime.fromisoformat(text).date()
        return datetime.combine(day, time.max, timezone.utc)
    # uv reports a malformed time.
    with suppress(ValueError):
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
        return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    parts = re.findall(r"(\d+)\s*([wdhms])", text.lower())
    lengths = {_UNITS[unit]: int(number) for number, unit in parts}
    return now - timedelta(**lengths)


def find_torch_builds(settings: Iterable[UvSetting]) -> dict[str, tuple[str, ...]]:
    """Return packages that build with the selected torch.

    ``no-build-isolation`` and ``match-runtime`` select them.

    Returns:
        The names of locked packages that each package needs for its build. The key
        ``:all:`` stands for all packages.
    """
    builds: dict[str, tuple[str, ...]] = {}
    for setting in settings:
        if setting.key == _NO_ISOLATION and setting.value is True:
            builds.setdefault(":all:", ("torch",))
        elif setting.key == _NOT_ISOLATED:
            for name in setting.value:
                builds.setdefault(normalize_name(name), ("torch",))
        elif setting.key == BUILD_DEPENDENCIES:
            for name, rows in setting.value.items():
                matched = [
                    parse_requirement(row["requirement"]).name
                    for row in rows
                    if _matches_runtime(row)
                ]
                if matched:
                    both = dict.fromkeys(("torch", *matched))
                    builds[normalize_name(name)] = tuple(both)
    return builds


def _matches_runtime(row: object) -> bool:
    return isinstance(row, dict) and bool(row.get("match-runtime"))


def add_build_requirements(
    passed: Mapping[str, Any],
    builds: Mapping[str, tuple[str, ...]],
    names: Iterable[str],
    versions: Mapping[str, str],
) -> dict[str, list[Any]]:
    """Return ``extra-build-dependencies`` with the selected torch.

    Args:
        passed: The values for uv.
        builds: The packages that build with torch.
        names: The packages that may be built.
        versions: The selected versions.
    """
    rows: dict[str, list[Any]] = {}
    for name, listed in passed.get(BUILD_DEPENDENCIES, {}).items():
        kept = [row for row in listed if not _matches_runtime(row)]
        rows[normalize_name(name)] = kept
    for name in names:
        needed = builds.get(name, builds.get(":all:", ()))
        pins = [f"{one}=={versions[one]}" for one in needed if one in versions]
        if pins:
            rows[name] = [*rows.get(name, ()), *pins]
    return {name: rows[name] for name in rows if rows[name]}


def remove_rows(passed: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the values for uv without rows for the packages of torch.

    Args:
        passed: The values.
        names: The packages of the torch family.
    """
    kept = {}
    for key, value in passed.items():
        rows = value if key in _FAMILY_KEYS else ()
        others = [row for row in rows if _find_name(key, row) not in names]
        kept[key] = others if key in _FAMILY_KEYS else value
    return kept


_FAMILY_KEYS = (OVERRIDES_KEY, EXCLUSIONS_KEY, METADATA_ROWS, "no-binary-package")
"""Passed keys without rows for the torch family."""


def find_family_rows(setting: UvSetting, names: Collection[str]) -> list[str]:
    """Return the packages of the torch family with a row that has no effect.

    An override with a version limits the builds.
    """
    if setting.key not in _FAMILY_KEYS:
        return []
    limits = {
        str(one.name)
        for one in setting.requirements
        if setting.key == OVERRIDES_KEY and one.specifier
    }
    names = {*names} - limits
    found = (_find_name(setting.key, row) for row in setting.value)
    return [name for name in dict.fromkeys(found) if name in names]


def _find_name(key: str, row: Any) -> str:
    """Return the package to which the row of a key applies."""
    if isinstance(row, str):
        is_requirement = key == OVERRIDES_KEY
        return parse_requirement(row).name if is_requirement else normalize_name(row)
    if "package" in row:
        return normalize_name(row["package"]["name"])
    return normalize_name(row.get("name", ""))
