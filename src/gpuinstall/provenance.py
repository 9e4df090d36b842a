"""Settings of other tools that say where a package comes from or which file it is: one table for all their readers.

Each is obeyed, answered here, or refused with its line: none is passed over, for the default index has a package of
that name too, and anybody may have put it there.
"""

from __future__ import annotations

import hashlib
import os
import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

OFFICIAL_HOSTS = ".pytorch.org"


class Effect(Enum):
    """What becomes of a setting, in the words of docs/trust.md."""

    INDEX = "obeyed: the default index"
    EXTRA_INDEX = "obeyed: an index of its own; what it lists comes from it alone"
    FIND_LINKS = "obeyed: an index of its own, and a source of torch"
    PACKAGE_INDEX = "obeyed: the package comes from this index alone"
    LOCKED_INDEX = "the command ends, unless this index is among the sources"
    ADDRESS = "obeyed: the package comes from this address"
    HASH = "obeyed: no other file is taken"
    ONLY_BINARY = "obeyed: these packages are never built"
    EXCLUDE_NEWER = "obeyed, but not for the packages of PyTorch's index, which has no dates"
    CONSTRAINT = "obeyed: a constraint"
    TORCH = "answered: the build of torch is chosen here"
    REFUSED = "refused"
    SAME = "as in the rows above"
    UNRELATED = "not read: no package comes from elsewhere because of it"


_OBEYED = frozenset(
    {
        Effect.INDEX,
        Effect.EXTRA_INDEX,
        Effect.FIND_LINKS,
        Effect.PACKAGE_INDEX,
        Effect.HASH,
        Effect.ONLY_BINARY,
        Effect.EXCLUDE_NEWER,
    }
)


class SettingRule(NamedTuple):
    """A setting of a tool and what becomes of it.

    An address of PyTorch's own index is answered in any case.
    """

    tool: str
    key: str
    effect: Effect
    instead: str = ""
    """What would work where it is refused."""


_LIST_IT = "a lock has a hash for every file; the hashes of the lines are obeyed without it"
_WITHOUT = "--offline, or a find-links folder without it"
_BUILT = "torch and its companions are never built; request the package by the URL of its source"
_BY_URL = "a requirement by URL: name @ https://…"
_FIRST_INDEX = "remove it; a name that an index lists comes from it alone"
_NAME_IT = "name it by [[tool.uv.index]] or UV_INDEX"
_OVERRIDES = "list what to install: [tool.gpuinstall] requirements = […], or --no-project"

TEAM_LOCK = "uv.lock, poetry.lock, pdm.lock, Pipfile.lock"

SETTING_RULES = (
    SettingRule("pip", "--index-url", Effect.INDEX),
    SettingRule("pip", "--extra-index-url", Effect.EXTRA_INDEX),
    SettingRule("pip", "--find-links", Effect.FIND_LINKS),
    SettingRule("pip", "--hash", Effect.HASH),
    SettingRule("pip", "--only-binary", Effect.ONLY_BINARY),
    SettingRule("pip", "--uploaded-prior-to", Effect.EXCLUDE_NEWER),
    SettingRule("pip", "--no-index", Effect.REFUSED, _WITHOUT),
    SettingRule("pip", "--require-hashes", Effect.REFUSED, _LIST_IT),
    SettingRule("pip", "--no-binary", Effect.REFUSED, _BUILT),
    SettingRule("pip", "--pre", Effect.UNRELATED),
    SettingRule("pip", "--prefer-binary", Effect.UNRELATED),
    SettingRule("pip", "--trusted-host", Effect.UNRELATED),
    SettingRule("pip", "--config-settings", Effect.UNRELATED),
    SettingRule("pip", "--global-option", Effect.UNRELATED),
    SettingRule("pip", "--no-build-isolation", Effect.UNRELATED),
    SettingRule("pip", "--use-feature", Effect.UNRELATED),
    SettingRule("uv", "index", Effect.EXTRA_INDEX),
    SettingRule("uv", "index (default)", Effect.INDEX),
    SettingRule("uv", "index (flat)", Effect.FIND_LINKS),
    SettingRule("uv", "index (flat, default)", Effect.REFUSED, _WITHOUT),
    SettingRule(
        "uv", "index (by relative path)", Effect.REFUSED, "find-links, or a URL: file:///…"
    ),
    SettingRule("uv", "index-url", Effect.INDEX),
    SettingRule("uv", "extra-index-url", Effect.EXTRA_INDEX),
    SettingRule("uv", "find-links", Effect.FIND_LINKS),
    SettingRule("uv", "sources (index)", Effect.PACKAGE_INDEX),
    SettingRule("uv", "sources (git, url, path)", Effect.ADDRESS),
    SettingRule("uv", "sources (workspace)", Effect.REFUSED, _OVERRIDES),
    SettingRule("uv", "sources of torch", Effect.TORCH),
    SettingRule("uv", "torch-backend", Effect.TORCH),
    SettingRule("uv", "constraint-dependencies", Effect.CONSTRAINT),
    SettingRule("uv", "exclude-newer", Effect.EXCLUDE_NEWER),
    SettingRule("uv", "no-build", Effect.ONLY_BINARY),
    SettingRule("uv", "no-build-package", Effect.ONLY_BINARY),
    SettingRule("uv", "exclude-newer-package", Effect.REFUSED, "exclude-newer for all packages"),
    SettingRule("uv", "no-index", Effect.REFUSED, _WITHOUT),
    SettingRule("uv", "no-sources", Effect.REFUSED, _OVERRIDES),
    SettingRule("uv", "no-binary", Effect.REFUSED, _BUILT),
    SettingRule("uv", "no-binary-package", Effect.REFUSED, _BUILT),
    SettingRule("uv", "index-strategy", Effect.REFUSED, _FIRST_INDEX),
    SettingRule("uv", "require-hashes", Effect.REFUSED, _LIST_IT),
    SettingRule("uv", "override-dependencies (by URL)", Effect.REFUSED, _OVERRIDES),
    SettingRule("uv", "override-dependencies", Effect.UNRELATED),
    SettingRule("uv", "build-constraint-dependencies", Effect.UNRELATED),
    SettingRule("uv", "extra-build-dependencies", Effect.UNRELATED),
    SettingRule("uv", "extra-build-variables", Effect.UNRELATED),
    SettingRule("uv", "config-settings", Effect.UNRELATED),
    SettingRule("uv", "config-settings-package", Effect.UNRELATED),
    SettingRule("uv", "no-build-isolation", Effect.UNRELATED),
    SettingRule("uv", "no-build-isolation-package", Effect.UNRELATED),
    SettingRule("uv", "allow-insecure-host", Effect.UNRELATED),
    SettingRule("Poetry", "source of a dependency", Effect.PACKAGE_INDEX),
    SettingRule("Poetry", "source of torch", Effect.TORCH),
    SettingRule(
        "Poetry", "source that is not listed", Effect.REFUSED, "list it in [[tool.poetry.source]]"
    ),
    SettingRule("Poetry", "[[source]] (supplemental)", Effect.EXTRA_INDEX),
    SettingRule("Poetry", "[[source]] (primary)", Effect.INDEX),
    SettingRule("Poetry", "url, git, path of a dependency", Effect.ADDRESS),
    SettingRule("PDM", "[[source]]", Effect.EXTRA_INDEX),
    SettingRule("PDM", "[[source]] pypi", Effect.INDEX),
    SettingRule("PDM", "[[source]] of find_links", Effect.FIND_LINKS),
    SettingRule(
        "PDM",
        "include_packages, exclude_packages",
        Effect.REFUSED,
        "[tool.uv.sources] with an explicit index",
    ),
    SettingRule("PDM", "overrides", Effect.REFUSED, _OVERRIDES),
    SettingRule("PDM", "pdm.toml: pypi.url", Effect.INDEX),
    SettingRule("PDM", "pdm.toml: pypi.NAME.url", Effect.EXTRA_INDEX),
    SettingRule("Rye", "[[sources]]", Effect.EXTRA_INDEX),
    SettingRule("Rye", "[[sources]] default", Effect.INDEX),
    SettingRule("Rye", "[[sources]] of find-links", Effect.FIND_LINKS),
    SettingRule("pixi", "index-url", Effect.INDEX),
    SettingRule("pixi", "extra-index-urls", Effect.EXTRA_INDEX),
    SettingRule("pixi", "find-links", Effect.FIND_LINKS),
    SettingRule("pixi", "no-build", Effect.ONLY_BINARY),
    SettingRule("pixi", "no-binary", Effect.REFUSED, _BUILT),
    SettingRule("pixi", "index-strategy", Effect.REFUSED, _FIRST_INDEX),
    SettingRule("pixi", "pypi-dependencies (index)", Effect.PACKAGE_INDEX),
    SettingRule("pixi", "pypi-dependencies (git, url, path)", Effect.ADDRESS),
    SettingRule("pixi", "dependency-overrides", Effect.REFUSED, _OVERRIDES),
    SettingRule("pixi", "exclude-newer", Effect.EXCLUDE_NEWER),
    SettingRule("pixi", "channels", Effect.UNRELATED),
    SettingRule("Pipenv", "[[source]] (the first)", Effect.INDEX),
    SettingRule("Pipenv", "[[source]] (install_search_all_sources)", Effect.EXTRA_INDEX),
    SettingRule("Pipenv", "index of a package", Effect.PACKAGE_INDEX),
    SettingRule("Pipenv", "index of torch", Effect.TORCH),
    SettingRule("Pipenv", "index that is not listed", Effect.REFUSED, "list it in [[source]]"),
    SettingRule("Pipenv", "git, file, path of a package", Effect.ADDRESS),
    SettingRule("Hatch", "env-vars: PIP_…, UV_…", Effect.SAME),
    SettingRule("setuptools", "dependency_links", Effect.REFUSED, _BY_URL),
    SettingRule("setuptools", "[easy_install] index_url", Effect.INDEX),
    SettingRule("setuptools", "[easy_install] find_links", Effect.FIND_LINKS),
    SettingRule("conda", "pip's options in the pip part", Effect.SAME),
    SettingRule("conda", "channels", Effect.UNRELATED),
    SettingRule("PEP 723", "[tool.uv]", Effect.SAME),
    SettingRule("PEP 751", "hashes of packages", Effect.HASH),
    SettingRule("gpuinstall", "index of a package in a lock", Effect.LOCKED_INDEX, _NAME_IT),
    SettingRule(TEAM_LOCK, "hashes of packages at their versions", Effect.HASH),
    SettingRule(TEAM_LOCK, "index of a package", Effect.LOCKED_INDEX, _NAME_IT),
    SettingRule(TEAM_LOCK, "git, url, path of a package", Effect.ADDRESS),
    SettingRule(TEAM_LOCK, "files of torch", Effect.TORCH),
)
"""Every such setting. uv's count in uv.toml, in [tool.uv] and in the block of a script; pip's also in a pip.conf."""

_BY_KEY = {(row.tool, row.key): row for row in SETTING_RULES}


class SourceSetting(NamedTuple):
    """A setting as it stands in ``file``; ``package`` is the one that it is about, empty for all."""

    row: SettingRule
    value: str
    file: Path
    line: int | None = None
    package: str = ""

    @property
    def effect(self) -> Effect:
        """What becomes of it: what is about PyTorch's own index is answered, whatever the setting."""
        return Effect.TORCH if is_of_pytorch(self.value) else self.row.effect

    @property
    def is_obeyed(self) -> bool:
        """Whether packages come from elsewhere, or are other files, because of it."""
        return self.effect in _OBEYED

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.file}, line {self.line}" if self.line else str(self.file)


RECORDED_HASHES = "--hash of"
"""How a lock records the hashes of all settings together, which says nothing to a reader."""


def recorded_sources(settings: Iterable[SourceSetting]) -> tuple[str, ...]:
    """Return what a lock records of settings: no login, paths from their files on, one digest of all hashes."""
    lines, hashes = dict[str, None](), set[str]()
    for setting in settings:
        if setting.effect is Effect.HASH:
            hashes.add(f"{setting.package} {setting.value}")
        elif setting.is_obeyed:
            value = re.sub(r"(?<=://)[^/\s]+@", "", setting.value)
            if Path(value).is_absolute():
                value = os.path.relpath(value, setting.file.absolute().parent)
            lines[" ".join(filter(None, (setting.row.key, setting.package, value)))] = None
    digest = hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()
    return (*lines, *([f"{RECORDED_HASHES} {len(hashes)} files: {digest}"] if hashes else []))


def source_setting(
    tool: str, key: str, value: str, file: Path, *, line: int | None = None, package: str = ""
) -> SourceSetting:
    """Return a setting with its row; one that the table does not have is refused."""
    row = _BY_KEY.get((tool, key)) or SettingRule(tool, key, Effect.REFUSED, "remove it")
    return SourceSetting(row, value, file, line, package)


def is_known(tool: str, key: str) -> bool:
    """Whether the table has a setting."""
    return (tool, key) in _BY_KEY


def uv_indexes(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield key and value of what uv's settings say of indexes; an explicit one is for ``sources`` alone.

    ``[pip]`` is of uv's pip interface: it does not take the place of the rest. Raise ValueError for two default
    indexes, each of which counts in some of uv's commands only.
    """
    _check_one_default(table)
    for index in table.get("index", []):
        if not index.get("explicit"):
            yield index_key(index), index["url"]
    for part in (table.get("pip", {}), table):
        if "index-url" in part:
            yield "index-url", part["index-url"]
        for address in _texts(part, "extra-index-url"):
            yield (
                "index (by relative path)" if _is_relative(address) else "extra-index-url",
                address,
            )
        for link in _texts(part, "find-links"):
            yield "find-links", link


def _check_one_default(table: Mapping[str, Any]) -> None:
    defaults = dict[str, str]()
    for index in table.get("index", []):
        if index.get("default"):
            defaults[index["url"].rstrip("/")] = "[[index]] default"
    for place, part in {"index-url": table, "[pip] index-url": table.get("pip", {})}.items():
        if "index-url" in part:
            defaults.setdefault(part["index-url"].rstrip("/"), place)
    if len(defaults) > 1:
        lines = (f"{place} {address}" for address, place in defaults.items())
        raise ValueError(f"it has more than one default index: {' and '.join(lines)}")


def index_key(index: Mapping[str, Any]) -> str:
    """Return the key of the rule for an entry of uv's ``index``."""
    if _is_relative(index["url"]):
        return "index (by relative path)"
    if index.get("format") == "flat":
        return "index (flat, default)" if index.get("default") else "index (flat)"
    return "index (default)" if index.get("default") else "index"


def _is_relative(address: str) -> bool:
    """Whether an address is a path whose beginning uv would not find from its own folder."""
    return "://" not in address and not address.startswith("/")


def _texts(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = table.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{key} is not a list of strings")
    return tuple(values)


def uv_settings(table: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield tool, key and value of what uv's settings say beside indexes, sources and constraints."""
    read_elsewhere = {
        "index",
        "index-url",
        "extra-index-url",
        "find-links",
        "constraint-dependencies",
    }
    for key, value in (*table.items(), *table.get("pip", {}).items()):
        if key in read_elsewhere or not is_known("uv", key) or not value:
            continue
        if key == "index-strategy" and value == "first-index":
            continue
        values = value if isinstance(value, list) else [":all:" if value is True else value]
        text = " ".join(map(str, values))
        by_address = key == "override-dependencies" and "@" in text
        yield "uv", f"{key} (by URL)" if by_address else key, text


def pip_settings(options: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield tool, key and value of what pip's configuration says beside indexes and find-links."""
    read_elsewhere = {"--index-url", "--extra-index-url", "--find-links"}
    for name, value in options.items():
        key = f"--{name}"
        if (
            key not in read_elsewhere
            and is_known("pip", key)
            and value.lower() not in {"", "0", "no", "off", "false"}
        ):
            yield "pip", key, value


def is_of_pytorch(address: str) -> bool:
    """Whether an address is PyTorch's own, in any spelling."""
    try:
        host = (urlsplit(address.strip()).hostname or "").rstrip(".")
    except ValueError:
        return False
    return f".{host}".endswith(OFFICIAL_HOSTS)
