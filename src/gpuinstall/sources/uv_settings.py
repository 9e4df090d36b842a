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
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import read_json
from gpuinstall.base.requirement import (
    Constraint,
    Requirement,
    TextOrigin,
    normalize_name,
    parse_requirement,
)
from gpuinstall.base.text import matches
from gpuinstall.base.trust import TRUST_FOLDER
from gpuinstall.base.values import Value, replace
from gpuinstall.sources.gate import Policy

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

_BUILD_INPUTS = (
    BUILD_CONSTRAINTS,
    BUILD_DEPENDENCIES,
    BUILD_VARIABLES,
    "config-settings",
    "config-settings-package",
)
"""Keys that add code or settings to a build."""

_BUILD_KEYS = (
    *_BUILD_INPUTS,
    "require-build-hashes",
    "prerelease",
    "prerelease-package",
    _NEWER,
    _NEWER_PACKAGE,
)
"""Passed keys that change how uv builds a package."""

_BUILD_CODE = (
    *_BUILD_INPUTS,
    _NO_ISOLATION,
    _NOT_ISOLATED,
    "no-binary",
    "no-binary-package",
)
"""Keys that an untrusted folder must not have."""

ONLY_BINARY = "only-binary"
_NO_BUILDS = (ONLY_BINARY, "no-build", "no-build-package")
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
def load_lists() -> Any:
    """Load the keys of each list, by the reason why they are not passed."""
    # The table is JSON, because importing a TOML parser takes longer than reading it.
    return read_json(Path(__file__).with_name("settings.json"), None)


@cache
def _find_row(key: str) -> tuple[KeyList, str]:
    """Return the list with a key of uv, and the reason to ignore the key."""
    for name, reasons in load_lists().items():
        for reason, keys in reasons.items():
            if any(matches(key, one) for one in keys):
                return KeyList(name), reason
    return KeyList.UNKNOWN, "gpuinstall does not know this setting"


def find_list(key: str) -> KeyList:
    """Return the list that contains a key of uv."""
    return _find_row(key)[0]


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
        return _find_row(self.key)[1]

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


class UvSettings(Value):
    """uv's settings of the user and the folder, with their values for uv."""

    settings: tuple[UvSetting, ...] = ()
    """The settings, highest precedence first."""
    family: frozenset[str] = frozenset()
    """The packages of the torch family, which have their own rules."""

    @cached_property
    def passed(self) -> dict[str, Any]:
        """The passed keys with their values, also for the torch family.

        The keys are merged as uv merges its files, but a folder can only tighten the
        user's settings.
        """
        passed = [one for one in self.settings if one.list is KeyList.PASSED]
        merged = _merge(passed)
        own = _merge(one for one in passed if one.is_own)
        folder = _merge(one for one in passed if not one.is_own)
        tightened = {key: True for key in _TIGHTENED if own.get(key)}
        return merged | tightened | _merge_dates(own, folder)

    def name_setting(self, key: str) -> str:
        """Return a key with the place of its setting, for messages."""
        return next((one.shown for one in self.settings if one.key == key), key)

    def add(self, settings: Collection[UvSetting], policy: Policy) -> UvSettings:
        """Add settings, with lower precedence than the existing ones.

        Raises:
            UsageError: The user does not trust the folder to have a setting.
        """
        new = [one for one in settings if one not in self.settings]
        added = replace(self, settings=(*self.settings, *new))
        own = tuple(one for one in added.settings if one.is_own)
        date = replace(self, settings=own).exclude_newer
        for setting in settings:
            if setting.is_own or policy.trusts_folder:
                continue
            is_later = (
                date
                and setting.key == _NEWER
                and parse_date(setting.value) > parse_date(date)
            )
            if setting.is_refused_without_trust or is_later:
                raise UsageError(
                    "source-setting",
                    f"{setting.shown} cannot be applied",
                    why=policy.why,
                    hint=f"Remove {setting.key}, or unset {TRUST_FOLDER}",
                )
        return added

    @property
    def overrides(self) -> list[Requirement]:
        """The requirements in ``override-dependencies``."""
        settings = (one for one in self.settings if one.key == OVERRIDES_KEY)
        return [*chain.from_iterable(one.requirements for one in settings)]

    @property
    def limits(self) -> tuple[Constraint, ...]:
        """The constraints, and the overrides of torch-family packages."""
        listed = (one.requirements for one in self.settings if one.key in LIMITS)
        return tuple(
            one.constraint
            for one in chain.from_iterable(listed)
            if one.origin.key == CONSTRAINTS_KEY or one.name in self.family
        )

    @property
    def excluded(self) -> frozenset[str]:
        """The packages in ``exclude-dependencies``."""
        rows = self.passed.get(EXCLUSIONS_KEY, ())
        return frozenset(normalize_name(row) for row in rows if isinstance(row, str))

    @cached_property
    def torch_builds(self) -> dict[str, tuple[str, ...]]:
        """The locked packages that each package needs for its build.

        ``no-build-isolation`` and ``match-runtime`` select them. The key ``:all:``
        stands for all packages.
        """
        names = _find_names(_merge(self.settings), _NO_ISOLATION)
        builds: dict[str, tuple[str, ...]] = dict.fromkeys(names, ("torch",))
        for name, rows in self.passed.get(BUILD_DEPENDENCIES, {}).items():
            matched = [
                parse_requirement(row["requirement"]).name
                for row in rows
                if _matches_runtime(row)
            ]
            if matched:
                both = tuple(dict.fromkeys(("torch", *matched)))
                builds[normalize_name(name)] = both
        return builds

    @property
    def build_keys(self) -> dict[str, Any]:
        """The passed keys that change how a package is built."""
        passed = {key: self.passed[key] for key in _BUILD_KEYS if key in self.passed}
        if _NEWER in passed:
            # The selected torch may be on an index without dates.
            dates = passed.get(_NEWER_PACKAGE, {})
            undated = dict.fromkeys(sorted(self.family), False)
            passed[_NEWER_PACKAGE] = {**dates, **undated}
        return passed

    def find_build_requirements(
        self, names: Iterable[str], versions: Mapping[str, str]
    ) -> dict[str, list[Any]]:
        """Return ``extra-build-dependencies``, with the selected torch.

        Args:
            names: The packages that may be built.
            versions: The selected versions.
        """
        rows: dict[str, list[Any]] = {}
        for name, listed in self.passed.get(BUILD_DEPENDENCIES, {}).items():
            kept = [row for row in listed if not _matches_runtime(row)]
            rows[normalize_name(name)] = kept
        builds = self.torch_builds
        for name in names:
            needed = builds.get(name, builds.get(":all:", ()))
            pins = [f"{one}=={versions[one]}" for one in needed if one in versions]
            rows[name] = [*rows.get(name, ()), *pins]
        return {name: listed for name, listed in rows.items() if listed}

    def list_build_settings(self, package: str) -> list[str]:
        """Return the folder's settings that change the build of a package."""
        settings = (one for one in self.settings if not one.is_own)
        return [one.shown for one in settings if one.builds(package)]

    @cached_property
    def resolver_keys(self) -> dict[str, Any]:
        """The keys for uv's resolver, without rows for the torch family."""
        kept = dict(self.passed)
        for key in kept.keys() & _FAMILY_KEYS:
            rows = kept[key]
            kept[key] = [row for row in rows if _find_name(key, row) not in self.family]
        # These keys are parts of the request or of the command.
        for key in (CONSTRAINTS_KEY, *_NO_BUILDS):
            kept.pop(key, None)
        # uv accepts this key only for its pip interface.
        if "require-hashes" in kept:
            kept["pip"] = {"require-hashes": kept.pop("require-hashes")}
        return kept

    def list_family_rows(self, setting: UvSetting) -> list[str]:
        """Return the torch-family packages with a row that has no effect.

        An override with a version limits the builds.
        """
        if setting.key not in _FAMILY_KEYS:
            return []
        limits = {
            str(one.name)
            for one in setting.requirements
            if setting.key == OVERRIDES_KEY and one.specifier
        }
        found = (_find_name(setting.key, row) for row in setting.value)
        names = self.family - limits
        return [name for name in dict.fromkeys(found) if name in names]

    @property
    def prefers_lowest(self) -> bool:
        """Whether uv selects the lowest versions of requested packages."""
        return bool(self.passed.get("resolution", "highest") != "highest")

    @property
    def selects_latest(self) -> bool:
        """Whether uv selects the latest versions, without a date or mode."""
        is_dated = self.exclude_newer or self.passed.get(_NEWER_PACKAGE)
        return not (is_dated or self.prefers_lowest)

    @property
    def exclude_newer(self) -> str | None:
        """The date after which uploaded files are ignored."""
        return self.passed.get(_NEWER)

    def find_last_day(self, package: str) -> str | None:
        """Return the last upload day of a package's files, or None."""
        newest = self.passed.get(_NEWER_PACKAGE, {}).get(package, self.exclude_newer)
        return parse_date(newest).date().isoformat() if newest else None

    @property
    def only_binary(self) -> frozenset[str]:
        """The packages that must not be built from source, or ``:all:``."""
        names = _find_names(self.passed, "no-build")
        return names | _find_names(self.passed, ONLY_BINARY)

    @property
    def build_hints(self) -> tuple[str, ...]:
        """The hint to change the first setting that forbids builds, if any."""
        banning = [one for one in self.settings if one.key in _NO_BUILDS and one.value]
        return tuple(
            f"Change {one.shown}, or request another version" for one in banning[:1]
        )

    @property
    def no_binary(self) -> frozenset[str]:
        """The packages that must be built from source, or ``:all:``."""
        return _find_names(self.passed, "no-binary") - self.family

    @property
    def no_sources(self) -> frozenset[str]:
        """The packages that ignore ``[tool.uv.sources]``, or ``:all:``."""
        return _find_names(self.passed, "no-sources")


def _find_names(passed: Mapping[str, Any], key: str) -> frozenset[str]:
    """Return ``:all:`` if a key is true, and the packages of its list."""
    names = map(normalize_name, passed.get(f"{key}-package", ()))
    return frozenset(names).union([":all:"] if passed.get(key) else [])


def _merge(settings: Iterable[UvSetting]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for setting in settings:
        value = setting.value
        merged[setting.key] = _combine(merged.get(setting.key, value), value)
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


def _merge_dates(own: Mapping[str, Any], folder: Mapping[str, Any]) -> dict[str, Any]:
    """Return the earlier of the user's and the folder's dates."""
    packages = dict(own.get(_NEWER_PACKAGE, {}))
    for name, date in folder.get(_NEWER_PACKAGE, {}).items():
        packages[name] = _find_earliest(date, packages.get(name, own.get(_NEWER)))
    newest = _find_earliest(folder.get(_NEWER), own.get(_NEWER))
    merged = {_NEWER: newest, _NEWER_PACKAGE: packages}
    return {key: value for key, value in merged.items() if value}


def _find_earliest(*dates: Any) -> Any:
    """Return the earliest date, or False without any."""
    return min(filter(None, dates), key=parse_date, default=False)


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


def _matches_runtime(row: object) -> bool:
    return isinstance(row, dict) and bool(row.get("match-runtime"))


_FAMILY_KEYS = (OVERRIDES_KEY, EXCLUSIONS_KEY, METADATA_ROWS, "no-binary-package")
"""Passed keys without rows for the torch family."""


def _find_name(key: str, row: Any) -> str:
    """Return the package to which the row of a key applies."""
    if isinstance(row, str):
        is_requirement = key == OVERRIDES_KEY
        return parse_requirement(row).name if is_requirement else normalize_name(row)
    if "package" in row:
        return normalize_name(row["package"]["name"])
    return normalize_name(row.get("name", ""))
