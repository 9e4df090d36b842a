"""Where packages come from: the torch index, find-links folders, the default index, and the certificates to trust."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from gpuinstall.errors import UsageError
from gpuinstall.files import check_outside
from gpuinstall.location import Location
from gpuinstall.provenance import Effect, SourceSetting, is_of_pytorch, source_setting
from gpuinstall.sources.shown import are_shown_today, remember_shown
from gpuinstall.units import display_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.reporter import Reporter
    from gpuinstall.sources.configuration import Indexes

OFFICIAL = "https://download.pytorch.org/whl"
_SUPPLIES_TORCH = "a source of torch"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOGIN = r"(?<=://)[^/\s]+@"


class FolderSetting(NamedTuple):
    """What a file of the folder says, which may be a stranger's: ``value`` is the address of a source or of a package.

    ``role`` is what it is the source of.
    """

    key: str
    file: Path
    value: str
    role: str = ""

    def __str__(self) -> str:
        return f"{self.value}, as {self.file} says{self.role and f': {self.role}'}"


@dataclass(frozen=True)
class Sources:
    """Where the torch family may come from, in this order: ``torch_index``, ``find_links``, the default index.

    ``torch_index`` is the base below which ``<backend>/<package>/`` lie; ``named`` says that the user gave it, and
    then it comes before ``find_links`` (addresses or absolute folders), else after them. ``default_index`` None is
    the tools' own. ``extension_sources`` are pages of prebuilt extensions that were named. ``chosen`` is what a file of
    the folder chose and the person did not; where they do not ``trust_folder``, that is refused. No address holds
    credentials: ``logins`` are "user:password" by host, for the client and for uv's environment alone.
    """

    torch_index: str = OFFICIAL
    named: bool = False
    find_links: tuple[str, ...] = ()
    default_index: str | None = None
    extra_indexes: tuple[str, ...] = ()
    """Indexes that never serve the family; whatever else they list comes from them alone."""
    own_indexes: Mapping[str, str] = field(default_factory=dict)
    """Those of them that the user's own configuration names, and no file of the folder, with the place that does."""
    flat_indexes: tuple[str, ...] = ()
    """The find-links of the folder, which are such indexes too."""
    package_indexes: Mapping[str, str] = field(default_factory=dict)
    """The index of each package that may come from no other."""
    hashes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The SHA-256 of the files that a package may be, or the package at one version: ``name==version``."""
    hash_places: Mapping[str, str] = field(default_factory=dict)
    """Where the hashes of a package stand."""
    locked: tuple[SourceSetting, ...] = ()
    """The index of each package in the lock of the project's own tool, or that it comes from an address."""
    only_binary: frozenset[str] = frozenset()
    exclude_newer: str | None = None
    answered: tuple[SourceSetting, ...] = ()
    """Settings of files that are not obeyed, because the build of torch is chosen here or they say nothing of it."""
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
        if self.extra_indexes or self.find_links:
            variables["UV_NO_CONFIG"] = "1"
        if self.certificates:
            variables["SSL_CERT_FILE"] = self.certificates
        return variables

    def admit(self, settings: Sequence[FolderSetting], reporter: Reporter) -> None:
        """Name what the folder chose, and not the user; raise UsageError if they do not trust it to.

        What a user has been shown in full today, with nothing new beside it, is one line.
        """
        if settings and not self.trust_folder:
            names = ", ".join(
                dict.fromkeys(f"{setting.key} in {setting.file}" for setting in settings)
            )
            why = "GPUINSTALL_TRUST_FOLDER=0 or your trust-folder = false refuses sources chosen by a folder"
            hint = "export GPUINSTALL_TRUST_FOLDER=1   # trust this folder, or remove the source from the file"
            raise UsageError("folder-not-trusted", f"{names}: not trusted", why=why, hint=hint)
        sources = [str(setting) for setting in settings]
        is_brief = reporter.is_brief and len(sources) > 1
        if is_brief and are_shown_today(sources):
            files = list(dict.fromkeys(display_path(setting.file) for setting in settings))
            names = " and ".join(filter(None, (", ".join(files[:-1]), files[-1])))
            reporter.notice("Index", f"{len(sources)} sources named by {names} (-v lists them)")
            return
        for source in sources:
            reporter.notice("Index", source)
        if is_brief:
            remember_shown(sources)

    def explain_answered(self, reporter: Reporter) -> None:
        """Say which settings of files are not obeyed, and why."""
        for place, key, effect in dict.fromkeys(
            (one.place, one.row.key, one.effect) for one in self.answered
        ):
            why = (
                "the build of torch is chosen here"
                if effect is Effect.TORCH
                else "it is not read here"
            )
            reporter.step("Ignored", f"{key} in {place}: {why}")

    def with_settings(self, settings: Iterable[SourceSetting]) -> Sources:
        """Obey what files say of sources; raise UsageError for what cannot be obeyed."""
        sources = self
        for setting in dict.fromkeys(settings):
            sources = sources._obey(setting)
        return sources

    def check_locked_indexes(self, read_default: Callable[[], str | None]) -> None:
        """Raise UsageError if a package is locked from an index that is not among the sources.

        It would be taken from the default index. What ``read_default`` returns, the tools' own one, is none of those:
        the user may have named a mirror of it.
        """
        known = _locations(self.places)
        indexes = (one for one in self.locked if one.effect is Effect.LOCKED_INDEX)
        unknown = [one for one in indexes if Location.parse(one.value) not in known]
        if not unknown:
            return
        own = _locations([read_default()])
        for setting in unknown:
            if Location.parse(setting.value) not in own:
                raise _not_obeyed(setting, f"{setting.row.instead}: {setting.value}")

    def uv_settings(self) -> dict[str, Any]:
        """uv's settings for what comes neither from the sources of the family nor from the default index."""
        extra = [{"url": address} for address in self.extra_indexes if not is_of_pytorch(address)]
        flat = [{"url": place, "format": "flat"} for place in self.flat_indexes]
        return {
            "index": [*extra, *flat],
            **({"exclude-newer": self.exclude_newer} if self.exclude_newer else {}),
        }

    @property
    def places(self) -> tuple[str, ...]:
        """Every address that packages may come from, but for the tools' own default index."""
        own = (self.torch_index, *self.find_links, *self.extra_indexes, *self.flat_indexes)
        return (*own, *self.package_indexes.values(), *filter(None, [self.default_index]))

    @property
    def has_further_indexes(self) -> bool:
        """Whether packages beside the family may come from elsewhere than the default index."""
        return bool(self.package_indexes or self.uv_settings()["index"])

    def indexes_for(self, package: str, default: str | None) -> tuple[str, ...]:
        """The indexes that may have a package, the first that lists it alone; ``default`` is the default index."""
        if package in self.package_indexes:
            return (self.package_indexes[package],)
        extra = (address for address in self.extra_indexes if not is_of_pytorch(address))
        return (*extra, *filter(None, [default]))

    def _obey(self, setting: SourceSetting) -> Sources:
        """Obey one setting; that of a package which the person's own word already names is not named again."""
        changed: dict[str, Any] = {}
        match setting.effect:
            case Effect.REFUSED:
                raise _not_obeyed(setting)
            case Effect.INDEX | Effect.EXTRA_INDEX | Effect.FIND_LINKS | Effect.PACKAGE_INDEX:
                return self._with_address(setting)
            case Effect.HASH:
                return self._with_hashes(setting)
            case Effect.TORCH | Effect.UNRELATED:
                changed = {"answered": (*self.answered, setting)}
            case Effect.LOCKED_INDEX | Effect.ADDRESS:
                changed = {"locked": (*self.locked, setting)}
            case Effect.ONLY_BINARY:
                from packaging.utils import canonicalize_name  # which takes long to load

                names = re.split(r"[\s,]+", setting.value)
                packages = {
                    name if name == ":all:" else canonicalize_name(name) for name in names if name
                }
                changed = {"only_binary": self.only_binary | packages - {":none:"}}
            case Effect.EXCLUDE_NEWER:
                if not re.fullmatch(r"[0-9A-Za-z:.+ -]+", setting.value):
                    raise _not_obeyed(setting, "it is a date")
                changed = {"exclude_newer": setting.value}
        return replace(self, **changed)

    def _with_hashes(self, setting: SourceSetting) -> Sources:
        digests = [value.removeprefix("sha256:") for value in setting.value.split()]
        if setting.value.count("sha256:") < max(len(digests), 1) or not all(
            map(_SHA256.fullmatch, digests)
        ):
            raise _not_obeyed(setting, "a hash is written sha256:…")
        hashes = self.hashes.get(setting.package, frozenset()).union(digests)
        places = {**self.hash_places, setting.package: setting.place}
        return replace(self, hashes={**self.hashes, setting.package: hashes}, hash_places=places)

    def _with_address(self, setting: SourceSetting) -> Sources:
        address, key = setting.value.rstrip("/"), setting.row.key
        if "{" in address:
            raise _not_obeyed(
                setting, "an index without variables, and its login in UV_INDEX or a netrc file"
            )
        if not re.match(r"(https?://[^/]|file:///|/)", address):
            raise _not_obeyed(setting, "a URL: https://index.example/simple")
        login = dict([_login(address)]) if "@" in _host(address) else {}
        plain = _without_login(address)
        location, role = Location.parse(plain), ""
        is_new = location not in map(Location.parse, self.places)
        if setting.effect is Effect.INDEX:
            others = [one for one in self.chosen if one.key == key and one.value != plain]
            if others:
                raise _not_obeyed(setting, f"one default index; {others[0].value} is another")
            sources = replace(self, default_index=plain)
        elif setting.effect is Effect.EXTRA_INDEX:
            sources = replace(
                self, extra_indexes=tuple(dict.fromkeys((*self.extra_indexes, plain)))
            )
        elif setting.effect is Effect.FIND_LINKS:
            role = _SUPPLIES_TORCH
            if location.server == "file://":
                check_outside(Path(location.path), setting.file)
            links, flat = (*self.find_links, plain), (*self.flat_indexes, plain)
            sources = replace(
                self,
                find_links=tuple(dict.fromkeys(links)),
                flat_indexes=tuple(dict.fromkeys(flat)),
            )
        else:
            role = f"the source of {setting.package}"
            sources = replace(
                self, package_indexes={**self.package_indexes, setting.package: plain}
            )
        chosen = (
            *self.chosen,
            *([FolderSetting(key, setting.file, plain, role)] if is_new else []),
        )
        return replace(sources, chosen=chosen, logins={**self.logins, **login})

    def with_extensions(
        self, named: Sequence[str], configured: Sequence[str], file: Path
    ) -> Sources:
        """Add the sources of extensions that the user named, and those of a project's ``file``.

        Raise UsageError for an address that is none.
        """
        every = tuple(dict.fromkeys((*named, *configured)))
        if wrong := next(
            (address for address in every if not re.match(r"https?://[^/]", address)), None
        ):
            message = f"the source of extensions {wrong!r} is not a URL"
            raise UsageError(
                "extension-source",
                message,
                hint="Give a page of files: https://index.example/{name}/",
            )
        theirs = (_without_login(address) for address in configured if address not in named)
        chosen = (
            FolderSetting("extension-sources", file, one, "a source of extensions")
            for one in theirs
        )
        logins = {
            **self.logins,
            **dict(_login(address) for address in every if "@" in _host(address)),
        }
        sources = tuple(map(_without_login, every))
        return replace(
            self, extension_sources=sources, chosen=(*self.chosen, *chosen), logins=logins
        )

    def chooser_of(self, address: str) -> FolderSetting | None:
        """The setting of the folder by which a file at an address, or a page of files, is a source."""
        wanted = Location.parse(address)
        return next(
            (one for one in self.chosen if one.value and wanted.is_from(Location.parse(one.value))),
            None,
        )

    def _with_login(self, address: str) -> str:
        parts = urlsplit(address)
        login = self.logins.get(parts.netloc)
        return (
            address
            if login is None
            else parts._replace(netloc=f"{quote(login, safe=':')}@{parts.netloc}").geturl()
        )


def read_sources(
    named: str | None, environ: Mapping[str, str], folder: Path, *, configured: str | None = None
) -> Sources:
    """Read the sources that count in ``folder``; ``named`` is the torch index that the user gave, if any.

    ``configured`` is the one that the project gives, which counts where the user gave none. Raise UsageError for an
    address that is none, or a configuration file that is malformed.
    """
    from gpuinstall.sources.configuration import merged, read_configuration, trusts_folder

    said = read_configuration(environ, folder)
    sources, own = (
        sources_of(named or configured, environ, merged(said)),
        merged(one for one in said if not one.file),
    )
    chosen = [*_chosen(sources, said, own)]
    if sources.named and not named:
        index = sources.torch_index
        chosen.insert(
            0, FolderSetting("torch-index", folder / "pyproject.toml", index, _SUPPLIES_TORCH)
        )
    flat = tuple(_without_login(link) for one in said if one.file for link in one.find_links)
    by_folder = _locations(url for one in said if one.file for url in one.extra)
    own_indexes = {
        _without_login(url): one.origin
        for one in reversed(said)
        for url in one.extra
        if not (is_of_pytorch(url) or Location.parse(url) in by_folder)
    }
    sources = replace(
        sources,
        chosen=tuple(chosen),
        trust_folder=trusts_folder(environ),
        flat_indexes=flat,
        own_indexes=own_indexes,
    )
    return sources.with_settings(
        source_setting(tool, key, value, one.file)
        for one in said
        if one.file
        for tool, key, value in one.settings
    )


def _chosen(sources: Sources, said: Iterable[Indexes], own: Indexes) -> Iterator[FolderSetting]:
    """What files of the folder say that counts and is not the person's ``own`` word."""
    rows = (
        ("index", lambda one: (one.default,), (sources.default_index,), ""),
        ("index", lambda one: one.extra, sources.extra_indexes, ""),
        ("find-links", lambda one: one.find_links, sources.find_links, _SUPPLIES_TORCH),
        (
            "cert",
            lambda one: (one.certificates,),
            (sources.certificates,),
            "the certificates to trust",
        ),
    )
    for indexes, file in ((one, one.file) for one in said if one.file):
        for key, values, used, role in rows:
            strange = _locations(used) - _locations(values(own))
            for value in values(indexes):
                if _locations([value]) & strange:
                    yield FolderSetting(key, file, _without_login(value), role)


def _locations(addresses: Iterable[str | None]) -> set[Location]:
    return {Location.parse(address) for address in addresses if address}


def sources_of(named: str | None, environ: Mapping[str, str], indexes: Indexes) -> Sources:
    """Put together what the user named and what pip and uv are configured for; raise UsageError for no address."""
    torch_index = _base(named) if named else OFFICIAL
    default = (indexes.default or "").rstrip("/")
    addresses = (torch_index, default, *indexes.extra, *indexes.find_links)
    return Sources(
        torch_index=_without_login(torch_index),
        named=bool(named),
        find_links=tuple(_without_login(link) for link in indexes.find_links),
        default_index=_without_login(default) or None,
        extra_indexes=tuple(_without_login(url) for url in indexes.extra),
        certificates=environ.get("SSL_CERT_FILE")
        or environ.get("REQUESTS_CA_BUNDLE")
        or indexes.certificates,
        logins=dict(_login(address) for address in addresses if "@" in _host(address)),
    )


def torch_index_of(named: str | None) -> str:
    """The base of the torch index that was named, or the official one; raise UsageError for no address."""
    return _without_login(_base(named)) if named else OFFICIAL


def _not_obeyed(setting: SourceSetting, instead: str = "") -> UsageError:
    return UsageError(
        "source-setting",
        f"{setting.place}: {setting.row.key}{f' of {setting.package}' * bool(setting.package)} cannot be obeyed",
        why="it says where packages may come from or which files they are; without it others could be installed",
        hint=f"Instead: {instead or setting.row.instead}",
    )


def _without_login(address: str) -> str:
    return re.sub(_LOGIN, "", address)


def _login(address: str) -> tuple[str, str]:
    login, _, host = _host(address).rpartition("@")
    if (
        unquote(login).startswith("-") or not unquote(login).isprintable()
    ):  # an option of keyring, a line of netrc
        raise UsageError(
            "malformed-address", f"{address!r} is not a URL: its login has odd characters"
        )
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
