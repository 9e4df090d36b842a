"""Where packages come from: the torch index, find-links folders, the default index, and the certificates to trust."""

from __future__ import annotations

import re
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_outside
from gpuinstall.base.location import Location
from gpuinstall.base.shell import joined
from gpuinstall.base.values import dataclass
from gpuinstall.sources.provenance import Effect, SourceSetting, is_of_pytorch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.sources.configuration import Configuration

OFFICIAL = "https://download.pytorch.org/whl"
_SUPPLIES_TORCH = "a source of torch"
_ADDRESSES = (Effect.INDEX, Effect.EXTRA_INDEX, Effect.FIND_LINKS)
"""What becomes of a setting that is the address of a source."""
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})")
_LOGIN = r"(?<=://)[^/\s]+@"


class FolderSetting(NamedTuple):
    """What a file of the folder says, which may be a stranger's."""

    key: str
    file: Path
    value: str
    """The address of a source or of a package."""

    role: str = ""
    """What it is the source of."""

    def __str__(self) -> str:
        role = f": {self.role}" if self.role else ""
        return f"{self.value}, as {self.file} says{role}"


@dataclass(frozen=True)
class Sources:
    """Where the torch family may come from, in this order: ``torch_index``, ``find_links``, the default index.

    No address holds credentials.
    """

    torch_index: str = OFFICIAL
    """The base below which ``<backend>/<package>/`` lie."""

    is_torch_index_requested: bool = False
    """Whether the user gave the torch index; otherwise it comes after ``find_links``."""

    find_links: tuple[str, ...] = ()
    """Addresses or absolute folders."""

    default_index: str | None = None
    """None is the tools' own."""

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

    demanded: tuple[SourceSetting, ...] = ()
    """What files of other tools demand: an index that is to be among the sources, an address for a package."""

    only_binary: frozenset[str] = frozenset()
    exclude_newer: str | None = None
    undated: frozenset[str] = frozenset()
    """Packages for which ``exclude_newer`` does not hold."""

    ignored_settings: tuple[SourceSetting, ...] = ()
    """Settings of files that are not obeyed, because the build of torch is chosen here or they say nothing of it."""

    certificates: str | None = None
    extension_sources: tuple[str, ...] = ()
    """Pages of prebuilt extensions."""

    configured: tuple[SourceSetting, ...] = ()
    """What the configuration of the folder says, which a lock that is made there records."""

    chosen: tuple[FolderSetting, ...] = ()
    """What a file of the folder chose, and the user did not."""

    trust_folder: bool = True
    """Whether the folder may choose."""

    logins: Mapping[str, str] = field(default_factory=dict, repr=False)
    """``user:password`` by host, for the client and for uv's environment alone."""

    def environment(self) -> dict[str, str]:
        """Return the variables for uv: the default index and the certificates.

        Credentials travel here and not in argv.
        """
        variables = {}
        if self.default_index:
            parts = urlsplit(self.default_index)
            login = self.logins.get(parts.netloc)
            if login is not None:
                parts = parts._replace(
                    netloc=f"{quote(login, safe=':')}@{parts.netloc}"
                )
            variables["UV_DEFAULT_INDEX"] = parts.geturl()
        if self.certificates:
            variables["SSL_CERT_FILE"] = self.certificates
        return variables

    def admit(
        self,
        settings: Sequence[FolderSetting],
        reporter: Reporter,
    ) -> None:
        """Name what the folder chose, and not the user; raise UsageError if they do not trust it to."""
        if settings and not self.trust_folder:
            places = dict.fromkeys(
                f"{setting.key} in {setting.file}" for setting in settings
            )
            raise UsageError(
                "folder-not-trusted",
                f"{', '.join(places)}: not trusted",
                why="GPUINSTALL_TRUST_FOLDER=0 or your trust-folder = false refuses sources chosen by a folder",
                hint="export GPUINSTALL_TRUST_FOLDER=1   # trust this folder, or remove the source from the file",
            )
        for setting in settings:
            reporter.notice("Index", str(setting))

    def explain_ignored_settings(self, reporter: Reporter) -> None:
        """Report which settings of files are not obeyed, and why."""
        texts = dict[str, None]()
        for setting in self.ignored_settings:
            is_of_torch = setting.effect is Effect.TORCH
            why = (
                "the build of torch is chosen here"
                if is_of_torch
                else "it is not read here"
            )
            texts[f"{setting.row.key} in {setting.place}: {why}"] = None
        for text in texts:
            reporter.step("Ignored", text)

    def check_known_indexes(self, read_default: Callable[[], str | None]) -> None:
        """Raise UsageError if a file of another tool has packages from an index that is not among the sources.

        They would be taken from the default index. What ``read_default`` returns, the tools' own one, is none of those:
        the user may have named a mirror of it.
        """
        known = _locations(self.places)
        unknown = {}
        for setting in self.demanded:
            if setting.effect is not Effect.KNOWN_INDEX:
                continue
            location = Location.parse(setting.value)
            if location not in known and location not in _locations([read_default()]):
                unknown[_without_login(setting.value)] = setting
        for setting in unknown.values():
            raise _not_obeyed(setting, hint=_naming(unknown))

    @property
    def places(self) -> tuple[str, ...]:
        """Every address that packages may come from, but for the tools' own default index."""
        places = (
            self.torch_index,
            *self.find_links,
            *self.extra_indexes,
            *self.flat_indexes,
            *self.package_indexes.values(),
        )
        if self.default_index is None:
            return places
        return (*places, self.default_index)

    @property
    def _other_indexes(self) -> list[str]:
        """The further indexes that are not PyTorch's."""
        return [address for address in self.extra_indexes if not is_of_pytorch(address)]

    def uv_settings(self) -> dict[str, Any]:
        """Return uv's settings for what comes neither from the sources of the family nor from the default index."""
        indexes = [{"url": address} for address in self._other_indexes]
        indexes += [{"url": place, "format": "flat"} for place in self.flat_indexes]
        settings: dict[str, Any] = {"index": indexes}
        if self.exclude_newer:
            settings["exclude-newer"] = self.exclude_newer
            settings["undated"] = sorted(self.undated)
        return settings

    def is_dated(self, package: str) -> bool:
        """Whether only the files count that a package had at a date."""
        return self.exclude_newer is not None and package not in self.undated

    @property
    def has_further_indexes(self) -> bool:
        """Whether packages beside the family may come from elsewhere than the default index."""
        return any((self.package_indexes, self._other_indexes, self.flat_indexes))

    def indexes_for(
        self,
        package: str,
        default: str | None,
    ) -> tuple[str, ...]:
        """Return the indexes that may have a package; it comes from the first that lists it.

        Args:
            package: Its name.
            default: The default index.
        """
        if package in self.package_indexes:
            return (self.package_indexes[package],)
        indexes = self._other_indexes
        if default:
            indexes.append(default)
        return tuple(indexes)

    def chooser_of(self, address: str) -> FolderSetting | None:
        """Return the setting of the folder by which a file at an address, or a page of files, is a source."""
        location = Location.parse(address)
        for setting in self.chosen:
            source = Location.parse(setting.value)
            if location.is_from(source):
                return setting
        return None

    def with_settings(self, settings: Iterable[SourceSetting]) -> Sources:
        """Obey what files say of sources; raise UsageError for what cannot be obeyed."""
        sources = self
        for setting in dict.fromkeys(settings):
            sources = sources._obey(setting)
        return sources

    def _obey(self, setting: SourceSetting) -> Sources:
        sources = self
        match setting.effect:
            case Effect.REFUSED:
                raise _not_obeyed(setting)
            case (
                Effect.INDEX
                | Effect.EXTRA_INDEX
                | Effect.FIND_LINKS
                | Effect.PACKAGE_INDEX
                | Effect.EXTENSIONS
            ):
                self._check_address(setting)
                is_known = Location.parse(setting.value) in _locations(self.places)
                sources = self.with_address(setting, is_chosen=not is_known)
            case Effect.FILE:
                choice = FolderSetting(
                    "-r", setting.file, setting.value, "requirements"
                )
                sources = replace(self, chosen=(*self.chosen, choice))
            case Effect.HASH:
                sources = self._with_hashes(setting)
            case Effect.TORCH | Effect.UNRELATED:
                sources = replace(
                    self, ignored_settings=(*self.ignored_settings, setting)
                )
            case Effect.KNOWN_INDEX | Effect.ADDRESS:
                sources = replace(self, demanded=(*self.demanded, setting))
            case Effect.ONLY_BINARY:
                sources = self._without_building(setting.value)
            case Effect.EXCLUDE_NEWER:
                if not re.fullmatch(r"[0-9A-Za-z:.+ -]+", setting.value):
                    raise _not_obeyed(setting, "it is a date")
                sources = replace(self, exclude_newer=setting.value)
        return sources

    def _without_building(self, names: str) -> Sources:
        from packaging.utils import canonicalize_name  # which takes long to load

        packages = set(self.only_binary)
        for name in re.split(r"[\s,]+", names):
            if name == ":all:":
                packages.add(name)
            elif name and name != ":none:":
                packages.add(canonicalize_name(name))
        return replace(self, only_binary=frozenset(packages))

    def _with_hashes(self, setting: SourceSetting) -> Sources:
        package = setting.package
        known = self.hashes.get(package, ())
        hashes = set(known)
        for word in setting.value.split() or [""]:
            digest = _SHA256.fullmatch(word)
            if digest is None:
                raise _not_obeyed(setting, "a hash is written sha256:…")
            hashes.add(digest[1])
        return replace(
            self,
            hashes={**self.hashes, package: frozenset(hashes)},
            hash_places={**self.hash_places, package: setting.place},
        )

    def _check_address(self, setting: SourceSetting) -> None:
        address = setting.value.rstrip("/")
        is_page = setting.effect is Effect.EXTENSIONS
        if "{" in address and not is_page:
            raise _not_obeyed(
                setting,
                "an index without variables, and its login in UV_INDEX or a netrc file",
            )
        forms = r"https?://[^/]" if is_page else r"https?://[^/]|file:///|/"
        if not re.match(forms, address):
            raise _not_obeyed(setting, "a URL: https://index.example/simple")
        if setting.effect is Effect.FIND_LINKS:
            location = Location.parse(address)
            if location.server == "file://":
                check_outside(Path(location.path), setting.file)
        if setting.effect is Effect.INDEX:
            for other in self.chosen:
                if other.key == setting.row.key and other.value != _plain(address):
                    raise _not_obeyed(
                        setting, f"one default index; {other.value} is another"
                    )

    def with_address(
        self,
        setting: SourceSetting,
        *,
        is_chosen: bool,
        is_of_folder: bool = True,
    ) -> Sources:
        """Add the address of a setting, which is named if the folder alone has chosen it."""
        address = _plain(setting.value)
        added: dict[str, Any] = {"logins": {**self.logins, **_logins([setting.value])}}
        role = ""
        match setting.row.effect:
            case Effect.INDEX:
                added["default_index"] = address
            case Effect.EXTRA_INDEX:
                added["extra_indexes"] = tuple(
                    dict.fromkeys((*self.extra_indexes, address))
                )
            case Effect.FIND_LINKS:
                role = _SUPPLIES_TORCH
                added["find_links"] = tuple(dict.fromkeys((*self.find_links, address)))
                if is_of_folder:
                    added["flat_indexes"] = tuple(
                        dict.fromkeys((*self.flat_indexes, address))
                    )
            case Effect.PACKAGE_INDEX:
                role = f"the source of {setting.package}"
                added["package_indexes"] = {
                    **self.package_indexes,
                    setting.package: address,
                }
            case Effect.EXTENSIONS:
                role = "a source of extensions"
                address = _without_login(setting.value)
                added["extension_sources"] = (*self.extension_sources, address)
        if is_chosen:
            choice = FolderSetting(setting.row.key, setting.file, address, role)
            added["chosen"] = (*self.chosen, choice)
        return replace(self, **added)


def read_sources(
    torch_index: str | None,
    environ: Mapping[str, str],
    folder: Path,
    *,
    configured: str | None = None,
) -> Sources:
    """Return the sources that count in a folder.

    Args:
        torch_index: The torch index that the user gave.
        environ: The variables.
        folder: Where the command runs.
        configured: The torch index of the project, which counts if the user gave none.

    Raises:
        UsageError: if an address is none, or a configuration file is malformed.
    """
    from gpuinstall.sources.configuration import (
        read_configuration,
        settings_to_record,
        trusts_folder,
    )

    configurations = read_configuration(environ, folder)
    index = torch_index or configured
    base = torch_index_of(index)
    choices = []
    if configured and not torch_index:
        file = folder / "pyproject.toml"
        choices.append(FolderSetting("torch-index", file, base, _SUPPLIES_TORCH))
    certificates = environ.get("SSL_CERT_FILE") or environ.get("REQUESTS_CA_BUNDLE")
    for one in configurations:
        if one.certificates and not certificates:
            certificates = one.certificates
            if one.is_of_folder:
                role = "the certificates to trust"
                choices.append(FolderSetting("cert", one.file, certificates, role))
    sources = Sources(
        torch_index=base,
        is_torch_index_requested=bool(index),
        certificates=certificates,
        configured=tuple(settings_to_record(configurations)),
        chosen=tuple(choices),
        trust_folder=trusts_folder(environ),
        logins=_logins([index or OFFICIAL]),
    )
    of_folder = [one for one in configurations if one.is_of_folder]
    by_folder = _addresses(of_folder)
    by_user = _addresses(one for one in configurations if not one.is_of_folder)
    own_indexes = {}
    for key, setting in _addresses(configurations).items():
        effect, _ = key
        if effect is Effect.INDEX and sources.default_index:
            continue
        is_of_folder = key in by_folder
        sources = sources.with_address(
            setting, is_chosen=key not in by_user, is_of_folder=is_of_folder
        )
        is_extra = effect is Effect.EXTRA_INDEX and not is_of_pytorch(setting.value)
        if is_extra and not is_of_folder:
            own_indexes[_plain(setting.value)] = str(setting.file)
    return replace(sources, own_indexes=own_indexes).with_settings(
        setting
        for one in of_folder
        for setting in one.settings
        if setting.row.effect not in _ADDRESSES
    )


def torch_index_of(requested: str | None) -> str:
    """Return the base of the requested torch index, or the official one; raise UsageError for no address."""
    if not requested:
        return OFFICIAL
    if not re.match(r"https?://[^/]", requested):
        hint = "Run it again with --torch-index https://index.example/whl: the URL above <backend>/<package>/"
        raise UsageError(
            "torch-index", f"the torch index {requested!r} is not a URL", hint=hint
        )
    return _without_login(requested.rstrip("/"))


def _addresses(
    configurations: Iterable[Configuration],
) -> dict[tuple[Effect, Location], SourceSetting]:
    """Return the addresses of sources by what becomes of them, those of the strongest configuration first."""
    settings = dict[tuple[Effect, Location], SourceSetting]()
    for one in configurations:
        for setting in one.settings:
            if setting.row.effect in _ADDRESSES:
                key = setting.row.effect, Location.parse(setting.value)
                settings.setdefault(key, setting)
    return settings


def _locations(addresses: Iterable[str | None]) -> set[Location]:
    return {Location.parse(address) for address in addresses if address}


def _naming(addresses: Iterable[str]) -> str:
    """Return the commands that make indexes and folders of files sources."""
    variables = {
        "UV_INDEX": [address for address in addresses if "://" in address],
        "UV_FIND_LINKS": [address for address in addresses if "://" not in address],
    }
    commands = [
        f"export {name}={joined([' '.join(values)])}"
        for name, values in variables.items()
        if values
    ]
    return "\n".join(commands)


def _not_obeyed(
    setting: SourceSetting, instead: str = "", hint: str = ""
) -> UsageError:
    package = f" of {setting.package}" if setting.package else ""
    return UsageError(
        "source-setting",
        f"{setting.place}: {setting.row.key}{package} cannot be obeyed",
        why="it says where packages may come from or which files they are; without it others could be installed",
        hint=hint or f"Instead: {instead or setting.row.instead}",
    )


def _plain(address: str) -> str:
    """Return an address without its login and the slash at its end."""
    plain = _without_login(address)
    stripped = plain.rstrip("/")
    return stripped if "/" in stripped else plain


def _without_login(address: str) -> str:
    return re.sub(_LOGIN, "", address)


def _logins(addresses: Iterable[str]) -> dict[str, str]:
    """Return the logins of addresses by host; raise UsageError for one that is malformed."""
    logins = {}
    for address in addresses:
        try:
            netloc = urlsplit(address).netloc
        except ValueError as error:
            raise _malformed(address, str(error)) from error
        quoted, at, host = netloc.rpartition("@")
        login = unquote(quoted)
        # It would be an option of keyring, or a line of a netrc file.
        if login.startswith("-") or not login.isprintable():
            raise _malformed(address, "its login has odd characters")
        if at:
            logins[host] = login
    return logins


def _malformed(address: str, why: str) -> UsageError:
    return UsageError("malformed-address", f"{address!r} is not a URL: {why}")
