"""Where packages come from: the torch index, find-links folders, the default index, and the certificates to trust."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from gpuinstall.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpuinstall.reporter import Reporter
    from gpuinstall.sources.configuration import Indexes

OFFICIAL = "https://download.pytorch.org/whl"
_LOGIN = r"(?<=://)[^/\s]+@"


@dataclass(frozen=True)
class Sources:
    """Where the torch family may come from, in this order: ``torch_index``, ``find_links``, the default index.

    ``torch_index`` is the base below which ``<backend>/<package>/`` lie; ``named`` says that the user gave it, and
    then it comes before ``find_links`` (addresses or absolute folders), else after them. ``default_index`` None is
    the tools' own. ``ignored_extra`` are configured indexes that never serve the family. ``chosen`` are the addresses
    that a file of the folder chose, which may be a stranger's, by that file. No address holds credentials: ``logins``
    are "user:password" by host, for the client and for uv's environment alone.
    """

    torch_index: str = OFFICIAL
    named: bool = False
    find_links: tuple[str, ...] = ()
    default_index: str | None = None
    ignored_extra: tuple[str, ...] = ()
    certificates: str | None = None
    chosen: Mapping[str, Path] = field(default_factory=dict)
    logins: Mapping[str, str] = field(default_factory=dict, repr=False)

    def environment(self) -> dict[str, str]:
        """The variables for uv: one default index, nothing beside it, one set of certificates.

        Credentials travel here and not in argv. uv's own files are passed over where they could add an index.
        """
        variables = dict.fromkeys(("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"), "")
        if self.default_index:
            variables["UV_DEFAULT_INDEX"] = self._with_login(self.default_index)
        if self.ignored_extra or self.find_links:
            variables["UV_NO_CONFIG"] = "1"
        if self.certificates:
            variables["SSL_CERT_FILE"] = self.certificates
        return variables

    def announce(self, reporter: Reporter) -> None:
        """Say which of the sources the folder chose, and not the user."""
        for address, file in self.chosen.items():
            reporter.step("Index", f"{address}, as {file} says")

    def _with_login(self, address: str) -> str:
        parts = urlsplit(address)
        login = self.logins.get(parts.netloc)
        return address if login is None else parts._replace(netloc=f"{quote(login, safe=':')}@{parts.netloc}").geturl()


def read_sources(
    named: str | None, environ: Mapping[str, str], folder: Path, *, configured: str | None = None
) -> Sources:
    """Read the sources that count in ``folder``; ``named`` is the torch index that the user gave, if any.

    ``configured`` is the one that the project gives, which counts where the user gave none. Raise UsageError for an
    address that is none, or a configuration file that is malformed.
    """
    from gpuinstall.sources.configuration import addresses_in_folder, merged, read_pip, read_uv

    sources = sources_of(named or configured, environ, merged([read_uv(environ, folder), read_pip(environ, folder)]))
    used = {sources.default_index, *sources.find_links, *([sources.torch_index] if configured and not named else [])}
    written = [(configured, folder / "pyproject.toml"), *addresses_in_folder(environ, folder)]
    plain = [(_without_login(address).rstrip("/"), file) for address, file in written if address]
    return replace(sources, chosen={address: file for address, file in plain if address in used})


def sources_of(named: str | None, environ: Mapping[str, str], indexes: Indexes) -> Sources:
    """Put together what the user named and what pip and uv are configured for; raise UsageError for no address."""
    torch_index = _base(named) if named else OFFICIAL
    default = (indexes.default or "").rstrip("/")
    addresses = (torch_index, default, *indexes.find_links)
    return Sources(
        torch_index=_without_login(torch_index),
        named=bool(named),
        find_links=tuple(_without_login(link) for link in indexes.find_links),
        default_index=_without_login(default) or None,
        ignored_extra=tuple(_without_login(url) for url in indexes.extra),
        certificates=environ.get("SSL_CERT_FILE") or environ.get("REQUESTS_CA_BUNDLE") or indexes.certificates,
        logins=dict(_login(address) for address in addresses if "@" in _host(address)),
    )


def torch_index_of(named: str | None) -> str:
    """The base of the torch index that was named, or the official one; raise UsageError for no address."""
    return _without_login(_base(named)) if named else OFFICIAL


def redacted(text: str) -> str:
    """Take the credentials out of every address in ``text``."""
    return re.sub(_LOGIN, "****@", text)


def _without_login(address: str) -> str:
    return re.sub(_LOGIN, "", address)


def _login(address: str) -> tuple[str, str]:
    login, _, host = _host(address).rpartition("@")
    return host, unquote(login)


def _host(address: str) -> str:
    try:
        return urlsplit(address).netloc
    except ValueError as error:
        raise UsageError("malformed-address", f"{redacted(address)!r} is not an address: {error}") from error


def _base(named: str) -> str:
    if not re.match(r"https?://[^/]", named):
        raise UsageError(
            "torch-index",
            f"the torch index {redacted(named)!r} is not an address",
            hint="give the base below which <backend>/<package>/ lie, such as --torch-index https://index.example/whl",
        )
    return named.rstrip("/")
