"""Settings of other tools that say where a package comes from or which file it is: one table for all their readers.

Each of these is obeyed, answered here, or refused with its line: none is passed over, for the default index has a package
of that name too, and anybody may have put it there.
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
from gpuinstall.base.location import Location, malformed_address
from gpuinstall.base.request import split_torch_index
from gpuinstall.base.requirement import fault_in, standard_marker
from gpuinstall.base.text import TOKEN, without_logins
from gpuinstall.base.values import Value
from gpuinstall.base.versions import known_backend

OFFICIAL_HOSTS = ".pytorch.org"

TRUST_FOLDER = "GPUINSTALL_TRUST_FOLDER"


class Form(Value):
    """What the value of a setting must look like."""

    pattern: str = "(?s:.*)"
    instead: str = ""
    """What to write in place of another."""


_URL = Form(
    r"(?i)(https?://[^/{]|file:///|/|[a-z]:[/\\])(?!.*\{\w*\}).*",
    "a URL or an absolute path without variables, and a login in UV_INDEX or a netrc file",
)
_PAGE = Form(
    r"(?!.*\$\{)https?://[^/].*",
    "a URL without variables: https://index.example/{name}/",
)
_ANY_ADDRESS = Form(
    r"(?s)(?!.*\$\{).*",
    "an address without variables, which are not read here: write the path, and have a login in a netrc file or a keyring",
)
_HASHES = Form(r"(sha256:[0-9a-f]{64}\s*)+", "a hash is written sha256:…")
_DATE = Form(r"[0-9A-Za-z:.+ -]+", "it is a date")
_SUPPLIES_TORCH = "a source of torch"


class EffectRow(Value):
    """What an effect means."""

    text: str
    """In the words of docs/sources.md."""
    role: str | None = None
    """What an address is the source of: it is named before it is asked, and refused where folders are not trusted. None: no
    address is asked because of it."""
    form: Form = Form()
    is_obeyed: bool = False
    """Whether packages come from elsewhere, or are other files, because of it."""
    is_compared: bool = False
    """Whether it is an address all the same."""
    why_ignored: str = ""


class Effect(Enum):
    """What becomes of a setting."""

    INDEX = EffectRow("obeyed: the default index", "", _URL, is_obeyed=True)
    EXTRA_INDEX = EffectRow(
        "obeyed: an index of its own; what it lists comes from it alone",
        "",
        _URL,
        is_obeyed=True,
    )
    FIND_LINKS = EffectRow(
        "obeyed: an index of its own, and a source of torch",
        _SUPPLIES_TORCH,
        _URL,
        is_obeyed=True,
    )
    PACKAGE_INDEX = EffectRow(
        "obeyed: the package comes from this index alone",
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
        "the command ends, unless UV_INDEX, or another source that is obeyed, has the address too",
        is_compared=True,
    )
    ADDRESS = EffectRow("obeyed: the package comes from this address", is_compared=True)
    LOCATED = EffectRow(
        "obeyed: the package comes from this address, for every package that requires it",
        "the source of {}, and of what its own files name",
        _ANY_ADDRESS,
    )
    HASH = EffectRow("obeyed: no other file is taken", form=_HASHES, is_obeyed=True)
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
        "read: a file outside the folder is named, and belongs to the same user",
        "requirements",
    )
    TORCH = EffectRow(
        "a CPU build is requested, a CUDA build is preferred; otherwise gpuinstall selects the build",
        why_ignored="gpuinstall selects the build of torch",
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
        "a warning", why_ignored="gpuinstall does not know this setting"
    )
    REFUSED = EffectRow("refused")
    UNRELATED = EffectRow(
        "not read: no package comes from elsewhere because of it",
        why_ignored="it is not read here",
    )

    @property
    def is_reported(self) -> bool:
        """Whether it is named before it is asked."""
        return self.value.role is not None


class SettingRule(Value):
    """A setting of a tool and what becomes of it.

    An address of PyTorch's own index is answered in any case.
    """

    tool: str
    key: str
    declared_effect: Effect
    instead: str = ""
    """What would work if it is refused."""


TEAM_LOCK = "uv.lock, poetry.lock"

OTHER_TOOLS = "Poetry, PDM, Rye, pixi, Hatch, Pipenv"
"""Tools whose indexes are compared with uv's."""

RESOLVER_WORDS = ("prerelease", "resolution", "fork-strategy")
"""uv's settings of one word that select among compatible versions."""

RESOLVER_TABLES = ("prerelease-package", "exclude-newer-package")
"""uv's settings with a value for each package."""

ANY_FILE = "any file"
WITHOUT_MEMBER = "sources (workspace without the member)"
TORCH_SOURCE = "sources of torch"
BY_ADDRESS = "name @ address, required or as a constraint"


@cache
def load_rules() -> Mapping[tuple[str, str], SettingRule]:
    """Return the rule of every setting, by tool and key.

    A value of the table is the name of an effect, the alternative to a refused
    setting, or an effect with its alternative. The name of an effect is also the key
    of a list of settings.
    """
    rules = {}
    # Many machines have a setting of pip, and what parses TOML takes longer to load than a table.
    for tool, settings in read_json(Path(__file__).with_name("settings.json")).items():
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
    """A setting as it stands in ``file``; ``package`` is the one that it is about, empty for all."""

    row: SettingRule
    value: str
    file: Path
    line: int | None = None
    package: str = ""
    is_own: bool = False
    """Whether the user says it, by configuration or in words, and not a file of the folder."""
    marker: str = ""
    """The condition of a source; empty: always."""

    def __str__(self) -> str:
        role = (self.effect.value.role or "").format(self.package)
        return f"{self.value}, as {self.file} says{role and f': {role}'}"

    @cached_property
    def effect(self) -> Effect:
        """What becomes of it: what is about PyTorch's own index is answered, whatever the setting."""
        effect = self.row.declared_effect
        is_said = effect in {Effect.LOCATED, Effect.TORCH_INDEX}
        if not is_said and is_of_pytorch(self.value):
            return Effect.TORCH
        return effect

    @property
    def backend(self) -> str | None:
        """The tag of the torch build that it selects, such as ``cpu``."""
        if self.effect not in {Effect.TORCH, Effect.INDEX, Effect.EXTRA_INDEX}:
            return None
        if self.row.key == "torch-backend":
            return self.value if known_backend(self.value) else None
        # Poetry and others declare sources that only some packages use.
        if self.row.tool == OTHER_TOOLS:
            return None
        return split_torch_index(self.value)[1]

    def applies_in(self, environment: Mapping[str, str]) -> bool:
        """Return whether its marker holds in an environment."""
        if not self.marker:
            return True
        return standard_marker(self.marker).evaluate(dict(environment))

    @property
    def why_ignored(self) -> str:
        """The reason why it is not obeyed; empty if it is."""
        if self.backend:
            return ""
        is_replaced = self.effect is Effect.UNRELATED and self.row.instead
        if self.effect is Effect.REFUSED or is_replaced:
            return f"instead: {self.row.instead}"
        row: EffectRow = self.effect.value
        return row.why_ignored

    @property
    def place(self) -> str:
        """Where it stands."""
        if self.line:
            return f"{self.file}, line {self.line}"
        return str(self.file)


RECORDED_HASHES = "--hash of"
"""How a lock records the hashes of all settings together, which says nothing to a reader."""


def recorded_sources(settings: Iterable[SourceSetting]) -> tuple[str, ...]:
    """Return the sources that a lock records.

    It has no logins, paths relative to their files, and one digest of all hashes.
    """
    lines = []
    hashes = set()
    for setting in settings:
        folder = setting.file.parent
        is_of_environment = setting.file.name.startswith("pip.") and (
            isfile(folder / "pyvenv.cfg")
        )
        # The user's own is not the folder's, and an environment's counts only while that is active.
        if setting.is_own or is_of_environment:
            continue
        if setting.effect is Effect.HASH:
            hashes.add(f"{setting.package} {setting.value}")
        elif setting.effect.value.is_obeyed:
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
    marker: str = "",
) -> SourceSetting:
    """Return a setting with its row; one that the table does not have is refused.

    Args:
        tool: Whose setting it is, as the table calls it.
        key: Its name there.
        value: What it says.
        file: Where it stands, or the name of a variable.
        line: The number of the line, if one is known.
        package: The package that it is about; empty: all.
        marker: The condition of a source; empty: always.

    Raises:
        TypeError: A value is no text.
        UsageError: Its address is malformed.
    """
    for text in (value, package, marker):
        if not isinstance(text, str):
            raise TypeError(f"{key} has {text!r} instead of a text")
    unknown = SettingRule(tool, key, Effect.REFUSED, "remove it")
    row = load_rules().get((tool, key), unknown)
    if row.declared_effect is Effect.NO_BINARY:
        names = re.split(r"[\s,]+", value)
        if {":all:", "torch"}.intersection(names):
            row = load_rules()[tool, f"{key} (torch)"]
    effect = row.declared_effect
    is_address = effect.is_reported or effect.value.is_compared
    fault = fault_in(value) if is_address else ""
    if is_address and TOKEN.search(value):
        fault = "it has a token, which locks would record; put it into a netrc file"
    setting = SourceSetting(row, value, file, line, package, marker=marker)
    try:
        if fault:
            raise malformed_address(value, fault)
        if is_address:
            Location.parse(value)
    except UsageError as error:
        error.message = f"{setting.place}: {key}: {error.message}"
        raise
    return setting


def is_known(tool: str, key: str) -> bool:
    """Return whether the table has a setting."""
    return (tool, key) in load_rules()


def unknown_setting(
    tool: str, key: str, file: Path, line: int | None = None
) -> SourceSetting:
    """Return a setting that the table lacks."""
    rule = SettingRule(tool, key, Effect.UNKNOWN, f"remove it, or unset {TRUST_FOLDER}")
    return SourceSetting(rule, "", file, line)


def is_of_pytorch(address: str) -> bool:
    """Whether an address is PyTorch's own, in any spelling."""
    try:
        parts = urlsplit(address.strip())
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return False
    return not fault_in(address) and f".{host}".endswith(OFFICIAL_HOSTS)
