"""Sources in other tools' settings.

gpuinstall obeys, replaces, or refuses such a setting, but never ignores it, because anyone
can register a package with the same name on the default index.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from os.path import isfile
from pathlib import Path
from typing import Any

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import expand_home
from gpuinstall.base.location import (
    LINKS_FRAGMENT,
    Location,
    PackageSource,
    SourceKind,
    malformed_url_error,
    parse_source,
)
from gpuinstall.base.request import split_torch_index
from gpuinstall.base.requirement import (
    find_path,
    is_url,
    marker_holds,
    normalize_file_url,
    quote_path,
)
from gpuinstall.base.text import hide_tokens, remove_logins, split_login
from gpuinstall.base.values import replace
from gpuinstall.base.versions import known_backend
from gpuinstall.sources.uv_settings import Setting, UvSetting


class Effect(Enum):
    """Effect of a source on gpuinstall."""

    INDEX = "the default index"
    EXTRA_INDEX = "an index that precedes the default index"
    FIND_LINKS = "an additional page or folder of files, also of torch"
    PACKAGE_INDEX = "the only index of a package"
    NAME = "an index that the user configured, too"
    EXTENSIONS = "a page of prebuilt extensions"
    TORCH_INDEX = "PyTorch's index"
    KNOWN_INDEX = "an index that another setting must select, too"
    FALLBACK = "an index that is ignored"
    ADDRESS = "the URL or path of a package if it is required"
    LOCATED = "the URL or path of a required package"
    HASH = "the only allowed files of a package"
    COMMIT = "the commit of a package in a repository"
    FILE = "a requirements file outside the folder"
    TORCH = "a CPU build is requested, and a CUDA build is preferred"

    @property
    def is_reported(self) -> bool:
        """Whether a URL with this effect is reported before its use.

        An untrusted folder must not have such a setting.
        """
        return self in _ROLES


INDEXES = (Effect.INDEX, Effect.EXTRA_INDEX, Effect.FIND_LINKS)
"""The effects of settings for all packages."""

_RECORDED = {*INDEXES, Effect.PACKAGE_INDEX, Effect.NAME, Effect.HASH, Effect.COMMIT}

_DECLARED = {Effect.KNOWN_INDEX, Effect.FALLBACK}
"""The effects of sources that only some packages of another tool use."""

_COMPARED = {*_DECLARED, Effect.ADDRESS, Effect.TORCH}
"""The effects of URLs that gpuinstall only compares with others."""

_KEPT = {Effect.LOCATED, Effect.TORCH_INDEX}
"""The effects that a URL on PyTorch's host may have."""

_ROLES = {
    Effect.INDEX: "",
    Effect.EXTRA_INDEX: "",
    Effect.FIND_LINKS: "a source of torch",
    Effect.PACKAGE_INDEX: "the source of {}",
    Effect.EXTENSIONS: "a source of extensions",
    Effect.TORCH_INDEX: "a source of torch",
    Effect.LOCATED: "the source of {} and of packages that its files select",
    Effect.FILE: "requirements",
}
"""The roles of URLs, for the report before their first request."""

_URL = (
    r"(?i)(https?://[^/{]|file:///|/|[a-z]:[/\\])(?!.*\{\w*\}).*",
    "write a URL or an absolute path without variables, and put credentials into UV_INDEX or a netrc file",
)
FORMS = {
    **dict.fromkeys((*INDEXES, Effect.PACKAGE_INDEX), _URL),
    Effect.EXTENSIONS: (
        r"(?!.*\$\{)https?://[^/].*",
        "write a URL without variables, such as https://index.example/{name}/",
    ),
    Effect.LOCATED: (
        r"(?s)(?!.*\$\{).*",
        "write a URL or path without variables, which are not expanded here, and put credentials into a netrc file or a keyring",
    ),
    Effect.HASH: (r"(sha256:[0-9a-f]{64}\s*)+", "write the hash as sha256:…"),
}
"""The pattern of a value, and the hint for any other value."""

TORCH_BACKEND = "torch-backend"
TORCH_SOURCE = "sources of torch"
BY_ADDRESS = "name @ address, required or as a constraint"


_NOWHERE = PackageSource(SourceKind.INDEX, "", Location("", ""))


class SourceSetting(Setting):
    """URL or path in a setting of a file or an environment variable.

    The value has no login. Only find-links have a trailing slash, on which relative
    links of a page depend.
    """

    login: str = ""
    """The ``user:password@`` part of the URL."""
    effect: Effect = Effect.ADDRESS
    tag: str | None = None
    """The tag of a torch build in the value, such as ``cpu``."""
    marker: str = ""
    """The environment marker of a source. Empty: the source always applies."""
    options: Mapping[str, Any] = {}
    """Further keys of uv's ``index`` entry, or a commit's ``vcs`` table."""

    source: PackageSource = _NOWHERE
    """The parsed URL or path, if the value is one."""

    def __hash__(self) -> int:
        # Options have lists.
        return hash((self.key, self.value, self.file))

    def __str__(self) -> str:
        role = _ROLES.get(self.effect, "").format(self.package)
        value = self.value.removesuffix(LINKS_FRAGMENT)
        return f"{value} (from {self.file}){role and f': {role}'}"

    @property
    def path(self) -> Path | None:
        """The local path of a file or folder, but not of a repository."""
        source = self.source
        is_path = source.location.is_local and source.kind is not SourceKind.REPOSITORY
        return Path(source.location.path) if is_path else None

    def locate(self, folder: Path | None = None) -> SourceSetting:
        """Parse the URL or path of the setting again.

        Args:
            folder: The folder to which a path is relative. None: the working folder.

        Raises:
            UsageError: The URL is malformed.
        """
        kind = None if self.key == BY_ADDRESS else SourceKind.INDEX
        return replace(self, source=parse_source(self.value, folder, kind=kind))

    @property
    def backend(self) -> str | None:
        """The tag of the selected torch build."""
        selects_torch = {Effect.TORCH, Effect.INDEX, Effect.EXTRA_INDEX}
        return self.tag if self.effect in selects_torch else None

    @property
    def is_recorded(self) -> bool:
        """Whether a lock records the setting."""
        return self.effect in _RECORDED

    def applies_in(self, environment: Mapping[str, str]) -> bool:
        """Return whether the setting's marker is true in an environment."""
        return marker_holds(self.marker, environment)

    @property
    def ignore_reason(self) -> str:
        """The reason for ignoring the setting, or an empty string."""
        if self.effect is Effect.FALLBACK:
            return f"set UV_INDEX={self.value} if a package is only on that index"
        if self.effect is Effect.TORCH and not self.backend:
            return "gpuinstall selects the build of torch"
        return ""


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
        if setting.is_own or is_of_environment or not setting.is_recorded:
            continue
        if isinstance(setting, UvSetting):
            lines.append(remove_logins(str(setting)))
        elif setting.effect is Effect.HASH:
            hashes.add(f"{setting.package} {setting.value}")
        else:
            value = setting.value
            path = find_path(value)
            if path and os.path.isabs(path):  # noqa: PTH117
                value = os.path.relpath(path, folder.absolute())
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
    folder: Path | None = None,
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
        folder: The folder to which the path of an index is relative. None: the folder
            of the file.
        line: The line number, if known.
        package: The package that the setting applies to. Empty: all packages.
        marker: The environment marker of a source. Empty: the source always applies.

    Raises:
        UsageError: The URL is malformed.
    """
    setting = SourceSetting(
        key, value, file, line, package=package, effect=effect, marker=marker
    )
    if key == TORCH_BACKEND:
        return replace(setting, tag=value if known_backend(value) else None)
    if not (effect.is_reported or effect in _COMPARED):
        return setting
    address = normalize_file_url(value)
    if effect in INDEXES:
        is_index = effect is not Effect.FIND_LINKS
        address = resolve_path(value, folder or file.parent, is_index=is_index)
    address, login = split_login(address)
    if effect not in {Effect.EXTENSIONS, Effect.FIND_LINKS}:
        # The path "/" remains.
        address = re.sub(r"(?<=[^/:])/+\Z", "", address)
    try:
        if hide_tokens(address) != address:
            fault = "it contains a token, which locks would record; download the file, and require it by its path"
            raise malformed_url_error(address, fault)
        setting = replace(setting, value=address, login=login).locate()
    except UsageError as error:
        error.message = f"{setting.place}: {key}: {error.message}"
        raise
    if effect not in _DECLARED:
        setting = replace(setting, tag=split_torch_index(address)[1])
    if effect not in _KEPT and is_on_pytorch_host(setting.source.location):
        return replace(setting, effect=Effect.TORCH)
    return setting


def resolve_path(address: str, folder: Path, *, is_index: bool) -> str:
    """Return the URL of an index or of find-links, or an absolute path.

    Args:
        address: The URL or path.
        folder: The folder to which a path is relative.
        is_index: Whether it is the address of an index.
    """
    # The path of an index needs a leading dot. "simple" would be the name of an index, and
    # "index.example/simple" a URL without its scheme.
    address = normalize_file_url(address)
    if is_url(address) or (is_index and not address.startswith(".")):
        return address
    path = os.path.normpath(folder.absolute() / expand_home(address))
    return path if is_index else quote_path(path)


def is_on_pytorch_host(location: Location) -> bool:
    """Return whether a location is on PyTorch's host."""
    return re.fullmatch(r"\w+://(.+\.)?pytorch\.org:\d*", location.server) is not None
