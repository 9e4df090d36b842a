"""Sources in other tools' settings.

gpuinstall obeys, replaces, or refuses such a setting, but never ignores it, because anyone
can register a package with the same name on the default index.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property
from os.path import isfile
from pathlib import Path
from urllib.parse import urlsplit

from gpuinstall.base.errors import UsageError
from gpuinstall.base.location import Location, malformed_url_error
from gpuinstall.base.request import split_torch_index
from gpuinstall.base.requirement import (
    find_url_fault,
    marker_holds,
    normalize_file_url,
)
from gpuinstall.base.text import hide_tokens, remove_logins
from gpuinstall.base.values import Value
from gpuinstall.base.versions import known_backend
from gpuinstall.sources.uv_settings import UvSetting

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
_SUPPLIES_TORCH = "a source of torch"


class EffectRow(Value):
    """Properties of the effect that a source has on gpuinstall."""

    text: str
    """The description of the effect in docs/sources.md."""
    role: str | None = None
    """The role of the URL in the report before its first request.

    An untrusted folder must not have a setting with a role. None: no request uses the URL.
    """
    form: Form = Form()
    is_recorded: bool = False
    """Whether a lock records the setting."""
    is_compared: bool = False
    """Whether the value is a URL without a role."""


class Effect(Enum):
    """Effect of a source on gpuinstall."""

    INDEX = EffectRow("the default index", "", _URL, is_recorded=True)
    EXTRA_INDEX = EffectRow(
        "an additional index; packages on it are installed only from it",
        "",
        _URL,
        is_recorded=True,
    )
    FIND_LINKS = EffectRow(
        "an additional index, and a source of torch",
        _SUPPLIES_TORCH,
        _URL,
        is_recorded=True,
    )
    PACKAGE_INDEX = EffectRow(
        "the package is installed only from this index",
        "the source of {}",
        _URL,
        is_recorded=True,
    )
    EXTENSIONS = EffectRow(
        "a page of prebuilt extensions", "a source of extensions", _PAGE
    )
    NAME = EffectRow("the name of an index that the user configured", is_recorded=True)
    TORCH_INDEX = EffectRow("PyTorch's index", _SUPPLIES_TORCH)
    CERTIFICATES = EffectRow("the certificates to trust", "the certificates to trust")
    KNOWN_INDEX = EffectRow(
        "an error, unless UV_INDEX or another setting has the same URL",
        is_compared=True,
    )
    FALLBACK = EffectRow("ignored, because a package can only be missing without it")
    ADDRESS = EffectRow(
        "the package is installed from this URL or path", is_compared=True
    )
    LOCATED = EffectRow(
        "the package is installed from this URL or path, also as a dependency",
        "the source of {} and of packages that its files select",
        _ANY_ADDRESS,
    )
    HASH = EffectRow("no other file is installed", form=_HASHES, is_recorded=True)
    FILE = EffectRow(
        "a file outside the folder is reported, and must belong to the same user",
        "requirements",
    )
    TORCH = EffectRow("a CPU build is requested, and a CUDA build is preferred")
    WITHOUT_MEMBER = EffectRow("refused: the package must be a workspace member")

    @property
    def is_reported(self) -> bool:
        """Whether a URL with this effect is reported before its use."""
        return self.value.role is not None


TORCH_BACKEND = "torch-backend"
TORCH_SOURCE = "sources of torch"
BY_ADDRESS = "name @ address, required or as a constraint"


class SourceSetting(Value):
    """URL or path in a setting of a file or an environment variable."""

    declared_effect: Effect
    """The effect, unless the value is the URL of PyTorch's index."""
    key: str
    """The key, for messages."""
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

    def __str__(self) -> str:
        role = (self.effect.value.role or "").format(self.package)
        return f"{self.value} (from {self.file}){role and f': {role}'}"

    @cached_property
    def effect(self) -> Effect:
        """The setting's effect, or ``TORCH`` for a URL on PyTorch's host."""
        effect = self.declared_effect
        keeps_address = effect in {Effect.LOCATED, Effect.TORCH_INDEX}
        if not keeps_address and is_on_pytorch_host(self.value):
            return Effect.TORCH
        return effect

    @property
    def backend(self) -> str | None:
        """The tag of the selected torch build, such as ``cpu``."""
        if self.effect not in {Effect.TORCH, Effect.INDEX, Effect.EXTRA_INDEX}:
            return None
        if self.key == TORCH_BACKEND:
            return self.value if known_backend(self.value) else None
        # Poetry and other tools declare sources that only some packages use.
        if self.declared_effect in {Effect.KNOWN_INDEX, Effect.FALLBACK}:
            return None
        return split_torch_index(self.value)[1]

    @property
    def is_option(self) -> bool:
        """Whether an option of the command is the setting."""
        return self.file.name.startswith("--")

    @property
    def is_of_pip(self) -> bool:
        """Whether pip's configuration has the setting."""
        return self.file.name.startswith(("PIP_", "pip."))

    @property
    def is_recorded(self) -> bool:
        """Whether a lock records the setting."""
        row: EffectRow = self.effect.value
        return row.is_recorded

    def applies_in(self, environment: Mapping[str, str]) -> bool:
        """Return whether the setting's marker is true in an environment."""
        return marker_holds(self.marker, environment)

    @property
    def ignore_reason(self) -> str:
        """The reason for ignoring the setting, or an empty string."""
        if self.effect is Effect.FALLBACK:
            return f"set UV_INDEX={remove_logins(self.value)} if a package is only on that index"
        if self.effect is Effect.TORCH and not self.backend:
            return "gpuinstall selects the build of torch"
        return ""

    @property
    def place(self) -> str:
        """The file and line of the setting, for messages."""
        return format_place(self.file, self.line)


def format_place(file: Path, line: int | None) -> str:
    """Return a file and line, for messages."""
    return f"{file}, line {line}" if line else str(file)


RECORDED_HASHES = "--hash of"
"""Prefix of the digest that replaces all hashes in a lock's sources."""


def format_recorded_sources(
    settings: Iterable[SourceSetting | UvSetting],
) -> tuple[str, ...]:
    """Return the package sources and uv settings to record in a lock.

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
        if not setting.is_recorded:
            continue
        if isinstance(setting, UvSetting):
            lines.append(str(setting))
        elif setting.effect is Effect.HASH:
            hashes.add(f"{setting.package} {setting.value}")
        else:
            value = remove_logins(setting.value)
            if Path(value).is_absolute():
                value = os.path.relpath(value, folder.absolute())
            words = filter(None, (setting.key, setting.package, value))
            lines.append(" ".join(words))
    if hashes:
        import hashlib  # slow, and few folders have hashes

        joined = "\n".join(sorted(hashes))
        digest = hashlib.sha256(joined.encode()).hexdigest()
        lines.append(f"{RECORDED_HASHES} {len(hashes)} files: {digest}")
    return tuple(dict.fromkeys(lines))


def create_setting(
    effect: Effect,
    key: str,
    value: str,
    file: Path,
    *,
    line: int | None = None,
    package: str = "",
    marker: str = "",
) -> SourceSetting:
    """Create a setting with a URL or path.

    Args:
        effect: The effect, unless the value is the URL of PyTorch's index.
        key: The key, for messages.
        value: The value.
        file: The file, or the name of a variable.
        line: The line number, if known.
        package: The package that the setting applies to. Empty: all packages.
        marker: The environment marker of a source. Empty: the source always applies.

    Raises:
        UsageError: The URL is malformed.
    """
    is_address = effect.is_reported or effect.value.is_compared
    value = normalize_file_url(value) if is_address else value
    fault = find_url_fault(value) if is_address else ""
    if is_address and hide_tokens(value) != value:
        fault = "it contains a token, which locks would record; download the file, and require it by its path"
    setting = SourceSetting(effect, key, value, file, line, package, marker=marker)
    try:
        if fault:
            raise malformed_url_error(value, fault)
        if is_address:
            Location.parse(value)
    except UsageError as error:
        error.message = f"{setting.place}: {key}: {error.message}"
        raise
    return setting


def is_on_pytorch_host(address: str) -> bool:
    """Return whether a URL, in any spelling, is on PyTorch's host."""
    try:
        parts = urlsplit(address.strip())
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return False
    return not find_url_fault(address) and f".{host}".endswith(OFFICIAL_HOSTS)
