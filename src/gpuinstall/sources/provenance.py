"""Apply other tools' settings that select package sources or files.

gpuinstall obeys, replaces, or refuses such a setting, but never ignores it, because anyone
can register a package with the same name on the default index.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache, cached_property
from os.path import isfile
from pathlib import Path
from urllib.parse import urlsplit

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import read_json
from gpuinstall.base.location import Location, malformed_url_error
from gpuinstall.base.request import split_torch_index
from gpuinstall.base.requirement import (
    Requirement,
    find_url_fault,
    marker_holds,
    normalize_file_url,
)
from gpuinstall.base.text import hide_tokens, remove_logins
from gpuinstall.base.values import Value
from gpuinstall.base.versions import known_backend

OFFICIAL_HOSTS = ".pytorch.org"

TRUST_FOLDER = "GPUINSTALL_TRUST_FOLDER"


class Form(Value):
    """Syntax that the value of a setting must have."""

    pattern: str = "(?s:.*)"
    instead: str = ""
    """The hint for a value with a different syntax."""


_URL = Form(
    r"(?i)(https?://[^/{]|file:///|/|[a-z]:[/\\])(?!.*\{\w*\}).*",
    "write a URL or an absolute path without variables, and put credentials into UV_INDEX or a netrc file",
)
_PAGE = Form(
    r"(?!.*\$\{)https?://[^/].*",
    "write a URL without variables, such as https://index.example/{name}/",
)
_ANY_ADDRESS = Form(
    r"(?s)(?!.*\$\{).*",
    "write a URL or path without variables, which are not expanded here, and put credentials into a netrc file or a keyring",
)
_HASHES = Form(r"(sha256:[0-9a-f]{64}\s*)+", "write the hash as sha256:…")
_DATE = Form(r"[0-9A-Za-z:.+ -]+", "write a date")
_SUPPLIES_TORCH = "a source of torch"


class EffectRow(Value):
    """Properties of the effect that a setting has on gpuinstall."""

    text: str
    """The description of the effect in docs/sources.md."""
    role: str | None = None
    """The role of the URL in the report before its first request.

    An untrusted folder must not have a setting with a role. None: no request uses the URL.
    """
    form: Form = Form()
    is_obeyed: bool = False
    """Whether the setting selects package sources or files."""
    is_compared: bool = False
    """Whether the value is a URL without a role."""
    ignore_reason: str = ""


class Effect(Enum):
    """Effect of another tool's setting on gpuinstall."""

    INDEX = EffectRow("obeyed: the default index", "", _URL, is_obeyed=True)
    EXTRA_INDEX = EffectRow(
        "obeyed: an additional index; packages on it are installed only from it",
        "",
        _URL,
        is_obeyed=True,
    )
    FIND_LINKS = EffectRow(
        "obeyed: an additional index, and a source of torch",
        _SUPPLIES_TORCH,
        _URL,
        is_obeyed=True,
    )
    PACKAGE_INDEX = EffectRow(
        "obeyed: the package is installed only from this index",
        "the source of {}",
        _URL,
        is_obeyed=True,
    )
    EXTENSIONS = EffectRow(
        "obeyed: a page of prebuilt extensions", "a source of extensions", _PAGE
    )
    TORCH_INDEX = EffectRow("obeyed: PyTorch's index", _SUPPLIES_TORCH)
    CERTIFICATES = EffectRow(
        "obeyed: the certificates to trust", "the certificates to trust"
    )
    KNOWN_INDEX = EffectRow(
        "an error, unless UV_INDEX or another obeyed setting has the same URL",
        is_compared=True,
    )
    ADDRESS = EffectRow(
        "obeyed: the package is installed from this URL or path", is_compared=True
    )
    LOCATED = EffectRow(
        "obeyed: the package is installed from this URL or path, also as a dependency",
        "the source of {} and of packages that its files select",
        _ANY_ADDRESS,
    )
    HASH = EffectRow("obeyed: no other file is installed", form=_HASHES, is_obeyed=True)
    ONLY_BINARY = EffectRow("obeyed: these packages are never built", is_obeyed=True)
    EXCLUDE_NEWER = EffectRow(
        "obeyed, but not for the packages of PyTorch's index, which has no dates",
        form=_DATE,
        is_obeyed=True,
    )
    CONSTRAINT = EffectRow("obeyed: a constraint")
    RESOLUTION = EffectRow(
        "passed to uv, except for the packages of PyTorch",
        is_obeyed=True,
    )
    FILE = EffectRow(
        "read: a file outside the folder is reported, and must belong to the same user",
        "requirements",
    )
    TORCH = EffectRow(
        "a CPU build is requested, a CUDA build is preferred; otherwise gpuinstall selects the build",
        ignore_reason="gpuinstall selects the build of torch",
    )
    NO_BINARY = EffectRow(
        "obeyed: these packages are built, except PyTorch's", is_obeyed=True
    )
    NO_SOURCES = EffectRow(
        "obeyed: [tool.uv.sources] is not applied, except to torch", is_obeyed=True
    )
    REQUEST = EffectRow("read with the requirements")
    HARMLESS = EffectRow("harmless: it selects no source, version, or build")
    UNKNOWN = EffectRow(
        "a warning", ignore_reason="gpuinstall does not know this setting"
    )
    REFUSED = EffectRow("refused")
    UNRELATED = EffectRow(
        "not read: it does not change the source of a package",
        ignore_reason="gpuinstall does not use it",
    )

    @property
    def is_reported(self) -> bool:
        """Whether a URL with this effect is reported before its use."""
        return self.value.role is not None


class SettingRule(Value):
    """Setting of another tool, and its effect on gpuinstall."""

    tool: str
    key: str
    declared_effect: Effect
    """The effect, unless the value is the URL of PyTorch's index."""
    instead: str = ""
    """The setting to use instead of a refused one."""


TEAM_LOCK = "uv.lock, poetry.lock"

OTHER_TOOLS = "Poetry, PDM, Rye, pixi, Hatch, Pipenv"
"""Tools whose indexes are compared with the indexes of uv."""

RESOLVER_WORDS = ("prerelease", "resolution", "fork-strategy")
"""uv's settings with one word that select among compatible versions."""

RESOLVER_TABLES = ("prerelease-package", "exclude-newer-package")
"""uv's settings with a value for each package."""

ANY_FILE = "any file"
WITHOUT_MEMBER = "sources (workspace without the member)"
TORCH_SOURCE = "sources of torch"
BY_ADDRESS = "name @ address, required or as a constraint"


@cache
def load_rules() -> Mapping[tuple[str, str], SettingRule]:
    """Load the rules of all settings, by tool and key.

    Each value in the table is the name of an effect, the alternative to a refused setting,
    or an effect with its alternative. A list of settings with one effect has the effect's name as
    its key.
    """
    rules = {}
    # The table is JSON, because importing a TOML parser takes longer than reading it.
    for tool, settings in read_json(
        Path(__file__).with_name("settings.json"), None
    ).items():
        for key, effect in settings.items():
            if isinstance(effect, list):
                for name in effect:
                    rules[tool, name] = SettingRule(tool, name, Effect[key])
                continue
            if isinstance(effect, dict):
                [(name, instead)] = effect.items()
            elif effect in Effect.__members__:
                name, instead = effect, ""
            else:
                name, instead = "REFUSED", effect
            rules[tool, key] = SettingRule(tool, key, Effect[name], instead)
    return rules


class SourceSetting(Value):
    """Value of a setting in a file or an environment variable."""

    row: SettingRule
    value: str
    file: Path
    """The file, or the name of a variable."""
    line: int | None = None
    package: str = ""
    """The package that the setting applies to. Empty: all packages."""
    is_own: bool = False
    """Whether the user, not the folder, configured the setting."""
    marker: str = ""
    """The environment marker of a source. Empty: the source always applies."""
    requirements: tuple[Requirement, ...] = ()
    """uv's overrides of the requirements in packages."""

    def __str__(self) -> str:
        role = (self.effect.value.role or "").format(self.package)
        return f"{self.value} (from {self.file}){role and f': {role}'}"

    @cached_property
    def effect(self) -> Effect:
        """The setting's effect, or ``TORCH`` for a URL on PyTorch's host."""
        effect = self.row.declared_effect
        keeps_address = effect in {Effect.LOCATED, Effect.TORCH_INDEX}
        if not keeps_address and is_on_pytorch_host(self.value):
            return Effect.TORCH
        return effect

    @property
    def backend(self) -> str | None:
        """The tag of the selected torch build, such as ``cpu``."""
        if self.effect not in {Effect.TORCH, Effect.INDEX, Effect.EXTRA_INDEX}:
            return None
        if self.row.key == "torch-backend":
            return self.value if known_backend(self.value) else None
        # Poetry and other tools declare sources that only some packages use.
        if self.row.tool == OTHER_TOOLS:
            return None
        return split_torch_index(self.value)[1]

    def applies_in(self, environment: Mapping[str, str]) -> bool:
        """Return whether the setting's marker is true in an environment."""
        return marker_holds(self.marker, environment)

    @property
    def ignore_reason(self) -> str:
        """The reason for ignoring the setting, or an empty string."""
        if self.backend:
            return ""
        is_replaced = self.effect is Effect.UNRELATED and self.row.instead
        if self.effect is Effect.REFUSED or is_replaced:
            instead = self.row.instead.replace("ADDRESS", remove_logins(self.value))
            return f"instead, {instead}"
        row: EffectRow = self.effect.value
        return row.ignore_reason

    @property
    def place(self) -> str:
        """The file and line of the setting, for messages."""
        if self.line:
            return f"{self.file}, line {self.line}"
        return str(self.file)


RECORDED_HASHES = "--hash of"
"""Prefix of the digest that replaces all hashes in a lock's sources."""


def format_recorded_sources(settings: Iterable[SourceSetting]) -> tuple[str, ...]:
    """Return the package sources to record in a lock.

    The result has no logins, has relative paths, and has one digest for all hashes.
    """
    lines = []
    hashes = set()
    for setting in settings:
        folder = setting.file.parent
        is_of_environment = setting.file.name.startswith("pip.") and (
            isfile(folder / "pyvenv.cfg")
        )
        # The pip.conf of an environment has an effect only while it is active.
        if setting.is_own or is_of_environment:
            continue
        if setting.effect is Effect.HASH:
            hashes.add(f"{setting.package} {setting.value}")
        elif setting.effect.value.is_obeyed:
            value = remove_logins(setting.value)
            if Path(value).is_absolute():
                value = os.path.relpath(value, folder.absolute())
            words = filter(None, (setting.row.key, setting.package, value))
            lines.append(" ".join(words))
    if hashes:
        import hashlib  # slow, and few folders have hashes

        joined = "\n".join(sorted(hashes))
        digest = hashlib.sha256(joined.encode()).hexdigest()
        lines.append(f"{RECORDED_HASHES} {len(hashes)} files: {digest}")
    return tuple(dict.fromkeys(lines))


def create_setting(
    tool: str,
    key: str,
    value: str,
    file: Path,
    *,
    line: int | None = None,
    package: str = "",
    marker: str = "",
) -> SourceSetting:
    """Create a setting, with its effect from ``settings.json``.

    A setting that ``settings.json`` does not list is refused.

    Args:
        tool: The tool in ``settings.json``.
        key: The key in ``settings.json``.
        value: The value.
        file: The file, or the name of a variable.
        line: The line number, if known.
        package: The package that the setting applies to. Empty: all packages.
        marker: The environment marker of a source. Empty: the source always applies.

    Raises:
        UsageError: The URL is malformed.
    """
    unknown = SettingRule(tool, key, Effect.REFUSED, "remove it")
    row = load_rules().get((tool, key), unknown)
    if row.declared_effect is Effect.NO_BINARY:
        names = re.split(r"[\s,]+", value)
        if {":all:", "torch"}.intersection(names):
            row = load_rules()[tool, f"{key} (torch)"]
    effect = row.declared_effect
    is_address = effect.is_reported or effect.value.is_compared
    value = normalize_file_url(value) if is_address else value
    fault = find_url_fault(value) if is_address else ""
    if is_address and hide_tokens(value) != value:
        fault = "it contains a token, which locks would record; download the file, and require it by its path"
    setting = SourceSetting(row, value, file, line, package, marker=marker)
    try:
        if fault:
            raise malformed_url_error(value, fault)
        if is_address:
            Location.parse(value)
    except UsageError as error:
        error.message = f"{setting.place}: {key}: {error.message}"
        raise
    return setting


def has_rule(tool: str, key: str) -> bool:
    """Return whether ``settings.json`` lists a setting of a tool."""
    return (tool, key) in load_rules()


def create_unknown_setting(
    tool: str, key: str, file: Path, line: int | None = None
) -> SourceSetting:
    """Create a setting that ``settings.json`` does not list."""
    rule = SettingRule(tool, key, Effect.UNKNOWN, f"remove it, or unset {TRUST_FOLDER}")
    return SourceSetting(rule, "", file, line)


def is_on_pytorch_host(address: str) -> bool:
    """Return whether a URL, in any spelling, is on PyTorch's host."""
    try:
        parts = urlsplit(address.strip())
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return False
    return not find_url_fault(address) and f".{host}".endswith(OFFICIAL_HOSTS)
