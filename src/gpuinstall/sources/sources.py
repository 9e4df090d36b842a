"""Where packages come from: the torch index, find-links folders, the default index, and the certificates to trust."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from gpuinstall.errors import UsageError
from gpuinstall.location import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from gpuinstall.reporter import Reporter
    from gpuinstall.sources.configuration import Indexes

OFFICIAL = "https://download.pytorch.org/whl"
_SUPPLIES_TORCH = "a source of torch"
_LOGIN = r"(?<=://)[^/\s]+@"


class FolderSetting(NamedTuple):
    """What a file of the folder says, which may be a stranger's: ``value`` is the address of a source or of a package.

    ``role`` is what it is the source of. Without a value the setting does not count here.
    """

    key: str
    file: Path
    value: str = ""
    role: str = ""

    def __str__(self) -> str:
        return f"{self.value}, as {self.file} says{self.role and f': {self.role}'}"


@dataclass(frozen=True)
class Sources:
    """Where the torch family may come from, in this order: ``torch_index``, ``find_links``, the default index.

    ``torch_index`` is the base below which ``<backend>/<package>/`` lie; ``named`` says that the user gave it, and
    then it comes before ``find_links`` (addresses or absolute folders), else after them. ``default_index`` None is
    the tools' own. ``ignored_extra`` are configured indexes that never serve the family; ``extension_sources`` are
    pages of prebuilt extensions that were named. ``chosen`` is what a file of the folder chose and the person did not;
    where they do not ``trust_folder``, that is refused. No address holds credentials: ``logins`` are "user:password" by
    host, for the client and for uv's environment alone.
    """

    torch_index: str = OFFICIAL
    named: bool = False
    find_links: tuple[str, ...] = ()
    default_index: str | None = None
    ignored_extra: tuple[str, ...] = ()
    certificates: str | None = None
    extension_sources: tuple[str, ...] = ()
    chosen: tuple[FolderSetting, ...] = ()
    trust_folder: bool = True
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

    def admit(self, settings: Sequence[FolderSetting], reporter: Reporter) -> None:
        """Name what the folder chose, and not the person; raise UsageError where they do not trust it to."""
        if settings and not self.trust_folder:
            names = ", ".join(dict.fromkeys(f"{setting.key} in {setting.file}" for setting in settings))
            why = "GPUINSTALL_TRUST_FOLDER=0 or your trust-folder = false refuses sources chosen by a folder"
            hint = "export GPUINSTALL_TRUST_FOLDER=1   # trust this folder, or remove the source from the file"
            raise UsageError("folder-not-trusted", f"{names}: not trusted", why=why, hint=hint)
        for setting in settings:
            if setting.value:
                reporter.notice("Index", str(setting))
            else:
                reporter.step("Ignored", f"{setting.key} in {setting.file}")

    def with_extensions(self, named: Sequence[str], configured: Sequence[str], file: Path) -> Sources:
        """Add the sources of extensions that the user named, and those of a project's ``file``.

        Raise UsageError for an address that is none.
        """
        every = tuple(dict.fromkeys((*named, *configured)))
        if wrong := next((address for address in every if not re.match(r"https?://[^/]", address)), None):
            message = f"the source of extensions {wrong!r} is not a URL"
            raise UsageError("extension-source", message, hint="Give a page of files: https://index.example/{name}/")
        theirs = (_without_login(address) for address in configured if address not in named)
        chosen = (FolderSetting("extension-sources", file, one, "a source of extensions") for one in theirs)
        logins = {**self.logins, **dict(_login(address) for address in every if "@" in _host(address))}
        sources = tuple(map(_without_login, every))
        return replace(self, extension_sources=sources, chosen=(*self.chosen, *chosen), logins=logins)

    def chooser_of(self, address: str) -> FolderSetting | None:
        """The setting of the folder by which a file at an address, or a page of files, is a source."""
        wanted = Location.parse(address)
        return next((one for one in self.chosen if one.value and wanted.is_from(Location.parse(one.value))), None)

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
    from gpuinstall.sources.configuration import merged, read_configuration, trusts_folder

    said = read_configuration(environ, folder)
    sources, own = sources_of(named or configured, environ, merged(said)), merged(one for one in said if not one.file)
    chosen = [*_chosen(sources, said, own)]
    if sources.named and not named:
        index = sources.torch_index
        chosen.insert(0, FolderSetting("torch-index", folder / "pyproject.toml", index, _SUPPLIES_TORCH))
    return replace(sources, chosen=tuple(chosen), trust_folder=trusts_folder(environ))


def _chosen(sources: Sources, said: Iterable[Indexes], own: Indexes) -> Iterator[FolderSetting]:
    """What files of the folder say that counts and is not the person's ``own`` word; then what does not count."""
    rows = (
        ("index", lambda one: (one.default,), (sources.default_index,), ""),
        ("find-links", lambda one: one.find_links, sources.find_links, _SUPPLIES_TORCH),
        ("cert", lambda one: (one.certificates,), (sources.certificates,), "the certificates to trust"),
    )
    for indexes, file in ((one, one.file) for one in said if one.file):
        for key, values, used, role in rows:
            strange = _locations(used) - _locations(values(own))
            for value in values(indexes):
                if _locations([value]) & strange:
                    yield FolderSetting(key, file, _without_login(value), role)
        yield from (FolderSetting(key, file) for key in indexes.passed_over)
        yield from (FolderSetting(f"index {_without_login(extra)}", file) for extra in indexes.extra)


def _locations(addresses: Iterable[str | None]) -> set[Location]:
    return {Location.parse(address) for address in addresses if address}


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


def _without_login(address: str) -> str:
    return re.sub(_LOGIN, "", address)


def _login(address: str) -> tuple[str, str]:
    login, _, host = _host(address).rpartition("@")
    if unquote(login).startswith("-") or not unquote(login).isprintable():  # an option of keyring, a line of netrc
        raise UsageError("malformed-address", f"{address!r} is not a URL: its login has odd characters")
    return host, unquote(login)


def _host(address: str) -> str:
    try:
        return urlsplit(address).netloc
    except ValueError as error:
        raise UsageError("malformed-address", f"{address!r} is not a URL: {error}") from error


def _base(named: str) -> str:
    if not re.match(r"https?://[^/]", named):
        hint = "the same with --torch-index https://index.example/whl   # the URL above <backend>/<package>/"
        raise UsageError("torch-index", f"the torch index {named!r} is not a URL", hint=hint)
    return named.rstrip("/")
