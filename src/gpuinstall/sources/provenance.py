"""Settings of other tools that say where a package comes from or which file it is: one table for all their readers.

Each of these is obeyed, answered here, or refused with its line: none is passed over, for the default index has a package
of that name too, and anybody may have put it there.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import expanded_home
from gpuinstall.base.location import Location
from gpuinstall.base.requirement import fault_in, is_remote
from gpuinstall.base.text import without_logins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OFFICIAL_HOSTS = ".pytorch.org"


class Effect(Enum):
    """What becomes of a setting, in the words of docs/trust.md."""

    INDEX = "obeyed: the default index"
    EXTRA_INDEX = "obeyed: an index of its own; what it lists comes from it alone"
    FIND_LINKS = "obeyed: an index of its own, and a source of torch"
    PACKAGE_INDEX = "obeyed: the package comes from this index alone"
    EXTENSIONS = "obeyed: a page of prebuilt extensions"
    TORCH_INDEX = "obeyed: PyTorch's index"
    CERTIFICATES = "obeyed: the certificates to trust"
    LIBRARIES = "obeyed: libraries above the driver"
    KNOWN_INDEX = "the command ends, unless UV_INDEX, or another source that is obeyed, has the address too"
    ADDRESS = "obeyed: the package comes from this address"
    LOCATED = "obeyed: the package comes from this address, whoever requires it"
    HASH = "obeyed: no other file is taken"
    ONLY_BINARY = "obeyed: these packages are never built"
    EXCLUDE_NEWER = (
        "obeyed, but not for the packages of PyTorch's index, which has no dates"
    )
    CONSTRAINT = "obeyed: a constraint"
    RESOLUTION = "obeyed: uv is given it, but for the packages of PyTorch"
    FILE = "read: a file outside the folder is named, and belongs to the same user"
    TORCH = "answered: the build of torch is chosen here"
    REFUSED = "refused"
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
        Effect.RESOLUTION,
    }
)


_SUPPLIES_TORCH = "a source of torch"

ROLES = {
    Effect.INDEX: "",
    Effect.EXTRA_INDEX: "",
    Effect.FIND_LINKS: _SUPPLIES_TORCH,
    Effect.PACKAGE_INDEX: "the source of {}",
    Effect.EXTENSIONS: "a source of extensions",
    Effect.TORCH_INDEX: _SUPPLIES_TORCH,
    Effect.CERTIFICATES: "the certificates to trust",
    Effect.LIBRARIES: "libraries above the driver",
    Effect.LOCATED: "the source of {}, and of what its own files name",
    Effect.FILE: "requirements",
}
"""What is named before it is asked, and refused where folders are not trusted: what it is the source of."""

_OF_ADDRESSES = {*ROLES, Effect.KNOWN_INDEX, Effect.ADDRESS}


class SettingRule(NamedTuple):
    """A setting of a tool and what becomes of it.

    An address of PyTorch's own index is answered in any case.
    """

    tool: str
    key: str
    effect: Effect
    instead: str = ""
    """What would work if it is refused."""


_LIST_IT = (
    "a lock has a hash for every file; the hashes of the lines are obeyed without it"
)
_WITHOUT = "--offline, or a find-links folder without it"
_BUILT = "torch and its companions are never built; request the package by the URL of its source"
_FIRST_INDEX = "remove it; a name that an index lists comes from it alone"
_OVERRIDES = "list what to install: [tool.gpuinstall] requirements = […]"

TEAM_LOCK = "uv.lock, poetry.lock"

OTHER_TOOLS = "Poetry, PDM, Rye, pixi, Hatch, Pipenv"
"""Tools whose sources are read to be compared with those that are known, and nothing else."""

RESOLVER_WORDS = ("prerelease", "resolution", "fork-strategy")
"""uv's settings of a word for which of the versions that go together it takes."""

ANY_FILE = "any file"
BY_MARKER = "sources (workspace, marker, list)"
BY_ADDRESS = "name @ address, required or as a constraint"

_NOT_READ = {
    "pip": (
        "--pre",
        "--prefer-binary",
        "--trusted-host",
        "--config-settings",
        "--global-option",
        "--no-build-isolation",
        "--use-feature",
    ),
    "uv": (
        "environments",
        "required-environments",
        "conflicts",
        "build-constraint-dependencies",
        "extra-build-dependencies",
        "extra-build-variables",
        "config-settings",
        "config-settings-package",
        "no-build-isolation",
        "no-build-isolation-package",
        "allow-insecure-host",
    ),
}
"""By tool, the settings that are passed over: no package comes from elsewhere because of them."""

_TABLE: dict[str, dict[str, Effect | str]] = {
    ANY_FILE: {BY_ADDRESS: Effect.LOCATED},
    "pip": {
        "--index-url": Effect.INDEX,
        "--extra-index-url": Effect.EXTRA_INDEX,
        "--find-links": Effect.FIND_LINKS,
        "--hash": Effect.HASH,
        "--only-binary": Effect.ONLY_BINARY,
        "--uploaded-prior-to": Effect.EXCLUDE_NEWER,
        "-r": Effect.FILE,
        "cert": Effect.CERTIFICATES,
        "--no-index": _WITHOUT,
        "--require-hashes": _LIST_IT,
        "--no-binary": _BUILT,
    },
    "uv": {
        "index": Effect.EXTRA_INDEX,
        "index (default)": Effect.INDEX,
        "index (flat)": Effect.FIND_LINKS,
        "index (flat, default)": _WITHOUT,
        "index-url": Effect.INDEX,
        "extra-index-url": Effect.EXTRA_INDEX,
        "find-links": Effect.FIND_LINKS,
        "sources (index)": Effect.PACKAGE_INDEX,
        "sources (git, url, path)": Effect.ADDRESS,
        BY_MARKER: _OVERRIDES,
        "sources of torch": Effect.TORCH,
        "torch-backend": Effect.TORCH,
        "constraint-dependencies": Effect.CONSTRAINT,
        "exclude-newer": Effect.EXCLUDE_NEWER,
        "no-build": Effect.ONLY_BINARY,
        "no-build-package": Effect.ONLY_BINARY,
        "exclude-newer-package": "exclude-newer for all packages",
        "no-index": _WITHOUT,
        "no-sources": _OVERRIDES,
        "no-binary": _BUILT,
        "no-binary-package": _BUILT,
        "index-strategy": _FIRST_INDEX,
        "require-hashes": _LIST_IT,
        "override-dependencies (by URL)": _OVERRIDES,
        "override-dependencies": Effect.RESOLUTION,
        "dependency-metadata (by URL)": _OVERRIDES,
        "dependency-metadata": Effect.RESOLUTION,
        **dict.fromkeys(RESOLVER_WORDS, Effect.RESOLUTION),
    },
    "Poetry": {"git, url, path of a package": Effect.ADDRESS},
    OTHER_TOOLS: {"sources": Effect.KNOWN_INDEX},
    "gpuinstall": {
        "extension-sources": Effect.EXTENSIONS,
        "torch-index": Effect.TORCH_INDEX,
        "libraries of cuda-compat in a lock": Effect.LIBRARIES,
        "index of a package in a lock": Effect.KNOWN_INDEX,
    },
    TEAM_LOCK: {
        "hashes of packages at their versions": Effect.HASH,
        "index of a package": Effect.KNOWN_INDEX,
        "git, url, path of a package": Effect.ADDRESS,
        "files of torch": Effect.TORCH,
    },
}
"""By tool and key, what becomes of every such setting; a text says what would work instead of one that is refused.

uv's count in uv.toml, in [tool.uv] and in the block of a script; pip's also in a pip.conf.
"""


def _rules() -> Iterator[SettingRule]:
    for tool, settings in _TABLE.items():
        not_read = dict.fromkeys(_NOT_READ.get(tool, ()), Effect.UNRELATED)
        for key, effect in {**settings, **not_read}.items():
            if isinstance(effect, str):
                yield SettingRule(tool, key, Effect.REFUSED, effect)
            else:
                yield SettingRule(tool, key, effect)


SETTING_RULES = tuple(_rules())
_BY_KEY = {(row.tool, row.key): row for row in SETTING_RULES}


class SourceSetting(NamedTuple):
    """A setting as it stands in ``file``; ``package`` is the one that it is about, empty for all."""

    row: SettingRule
    value: str
    file: Path
    line: int | None = None
    package: str = ""
    is_own: bool = False
    """Whether the user says it, by configuration or in words, and not a file of the folder."""

    def __str__(self) -> str:
        role = ROLES[self.effect].format(self.package)
        return f"{self.value}, as {self.file} says{role and f': {role}'}"

    @property
    def effect(self) -> Effect:
        """What becomes of it: what is about PyTorch's own index is answered, whatever the setting."""
        effect = self.row.effect
        is_said = effect in {Effect.LOCATED, Effect.TORCH_INDEX}
        if not is_said and is_of_pytorch(self.value):
            return Effect.TORCH
        return effect

    @property
    def is_obeyed(self) -> bool:
        """Whether packages come from elsewhere, or are other files, because of it."""
        return self.effect in _OBEYED

    @property
    def place(self) -> str:
        """Where it stands."""
        if self.line:
            return f"{self.file}, line {self.line}"
        return str(self.file)

    def location(self, folder: Path) -> Location:
        """Where its address leads, if paths begin at ``folder``."""
        if is_remote(self.value):
            return Location.parse(self.value)
        return Location.parse(str(folder / expanded_home(self.value)))


RECORDED_HASHES = "--hash of"
"""How a lock records the hashes of all settings together, which says nothing to a reader."""


def recorded_sources(settings: Iterable[SourceSetting]) -> tuple[str, ...]:
    """Return what a lock records of settings: no login, paths from their files on, one digest of all hashes."""
    lines = []
    hashes = set()
    for setting in settings:
        folder = setting.file.parent
        is_of_environment = setting.file.name.startswith("pip.") and (
            folder.joinpath("pyvenv.cfg").is_file()
        )
        # The user's own is not the folder's, and an environment's counts only while that is active.
        if setting.is_own or is_of_environment:
            continue
        if setting.effect is Effect.HASH:
            hashes.add(f"{setting.package} {setting.value}")
        elif setting.is_obeyed:
            value = without_logins(setting.value)
            if Path(value).is_absolute():
                value = os.path.relpath(value, folder.absolute())
            words = filter(None, (setting.row.key, setting.package, value))
            lines.append(" ".join(words))
    if hashes:
        import hashlib  # loads OpenSSL, and few folders record hashes

        joined = "\n".join(sorted(hashes))
        digest = hashlib.sha256(joined.encode()).hexdigest()
        lines.append(f"{RECORDED_HASHES} {len(hashes)} files: {digest}")
    return tuple(dict.fromkeys(lines))


def source_setting(
    tool: str,
    key: str,
    value: str,
    file: Path,
    *,
    line: int | None = None,
    package: str = "",
) -> SourceSetting:
    """Return a setting with its row; one that the table does not have is refused.

    Raises:
        UsageError: Its address is malformed.
    """
    row = _BY_KEY.get((tool, key))
    if row is None:
        row = SettingRule(tool, key, Effect.REFUSED, "remove it")
    fault = fault_in(value) if row.effect in _OF_ADDRESSES else ""
    if fault:
        place = f"{file}, line {line}" if line else f"{file}"
        address = value.rpartition("@")[2]
        raise UsageError(
            "malformed-address", f"{place}: {address!r} is not a URL: {fault}"
        )
    return SourceSetting(row, value, file, line, package)


def is_known(tool: str, key: str) -> bool:
    """Whether the table has a setting."""
    return (tool, key) in _BY_KEY


def is_of_pytorch(address: str) -> bool:
    """Whether an address is PyTorch's own, in any spelling."""
    try:
        parts = urlsplit(address.strip())
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return False
    return not fault_in(address) and f".{host}".endswith(OFFICIAL_HOSTS)
