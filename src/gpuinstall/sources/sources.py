"""Where packages come from: the torch index, find-links folders, the default index, and the certificates to trust."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from os.path import exists, isfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_outside
from gpuinstall.base.finding import Rejection
from gpuinstall.base.location import Location, malformed_address
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.requirement import (
    Requirement,
    fault_in,
    normalized,
    parse_requirement,
)
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import redacted, shorten, without_logins
from gpuinstall.base.values import Value, replace
from gpuinstall.sources.gate import (
    TRUST,
    Entry,
    GateVerdict,
    Policy,
    SourceKind,
    admit,
    source_location,
)
from gpuinstall.sources.provenance import (
    BY_ADDRESS,
    RESOLVER_TABLES,
    RESOLVER_WORDS,
    Effect,
    SourceSetting,
    source_setting,
)

OFFICIAL = "https://download.pytorch.org/whl"

_LINKS = "#find-links"
"""What tells the address of find-links from that of an index."""

SYSTEM_CERTIFICATES = "UV_SYSTEM_CERTS"
"""uv's variable for the certificates of the system; we obey it too."""
_SYSTEM_STORES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where Linux and macOS have them."""


class Sources(Value):
    """Where the torch family may come from, in this order: ``torch_index``, ``find_links``, the default index.

    No address holds credentials.
    """

    torch_index: str = OFFICIAL
    """The base below which ``<backend>/<package>/`` lie."""

    is_torch_index_requested: bool = False
    """Whether a command, a variable or the project names it; otherwise it comes after ``find_links``."""

    default_index: str | None = None
    """None is the tools' own."""

    settings: tuple[SourceSetting, ...] = ()
    """What configuration says, the strongest first, and what files of the request say; without logins."""

    certificates: str | None = None
    policy: Policy = Policy()
    """What the user allows folders to do."""

    logins: Mapping[str, str] = {}
    """``user:password`` by scheme, host, and port, for requests and uv."""

    def __repr__(self) -> str:
        # Shown by a traceback too: without the logins.
        return f"Sources of {self.torch_index}, {self.default_index}"

    def _of(self, *effects: Effect) -> list[SourceSetting]:
        """Return the settings that have one of these effects."""
        return [setting for setting in self.settings if setting.effect in effects]

    def _addresses(self, effect: Effect) -> tuple[str, ...]:
        return tuple(dict.fromkeys(setting.value for setting in self._of(effect)))

    @property
    def find_links(self) -> tuple[str, ...]:
        """Addresses or absolute folders."""
        return self._addresses(Effect.FIND_LINKS)

    @property
    def extra_indexes(self) -> tuple[str, ...]:
        """Indexes that never serve the family; whatever else they list comes from them alone."""
        return self._addresses(Effect.EXTRA_INDEX)

    @property
    def own_indexes(self) -> dict[str, str]:
        """The extra indexes and find-links that the user's own configuration names, with the place that does.

        Those that a file of the folder names too are not among them. Their addresses are as a lock has them.
        """
        indexes = self._of(Effect.EXTRA_INDEX, Effect.FIND_LINKS)
        of_folder = {index.value for index in indexes if not index.is_own}
        own = {}
        for index in indexes:
            if index.value not in of_folder:
                is_links = index.effect is Effect.FIND_LINKS
                address = links_url(index.value) if is_links else index.value
                own[address] = str(index.file)
        return own

    @property
    def overrides(self) -> list[Requirement]:
        """uv's ``override-dependencies`` of the folder."""
        return list(
            map(parse_requirement, self._of_resolution("override-dependencies"))
        )

    @property
    def metadata(self) -> list[Mapping[str, Any]]:
        """The rows of these settings that stand in place of METADATA of packages."""
        return self._of_resolution("dependency-metadata")

    def _of_resolution(self, key: str) -> list[Any]:
        settings = [one for one in self._of(Effect.RESOLUTION) if one.row.key == key]
        return [*chain.from_iterable(json.loads(one.value) for one in settings)]

    @property
    def resolver_words(self) -> dict[str, str]:
        """uv's words for which versions it takes, the strongest setting's of each."""
        words: dict[str, str] = {}
        for setting in self._of(Effect.RESOLUTION):
            if setting.row.key in RESOLVER_WORDS:
                words.setdefault(setting.row.key, setting.value)
            elif setting.row.key == "--pre":
                words.setdefault("prerelease", "allow")
        return words

    @property
    def resolver_tables(self) -> dict[str, dict[str, Any]]:
        """uv's settings by package. The strongest setting counts."""
        tables: dict[str, dict[str, Any]] = {}
        for setting in self._of(Effect.RESOLUTION):
            if setting.row.key in RESOLVER_TABLES:
                table = tables.setdefault(setting.row.key, {})
                for name, value in json.loads(setting.value).items():
                    table.setdefault(normalized(name), value)
        return tables

    @property
    def takes_lowest(self) -> bool:
        """Whether uv takes the lowest versions, at least of what is requested."""
        return self.resolver_words.get("resolution", "highest") != "highest"

    @property
    def extension_sources(self) -> tuple[str, ...]:
        """Pages of prebuilt extensions."""
        return self._addresses(Effect.EXTENSIONS)

    @property
    def exclude_newer(self) -> str | None:
        """The date after which files do not count: uv's variable, a file's of the request, else the strongest's."""
        settings = self._of(Effect.EXCLUDE_NEWER)
        # Configuration is read from the strongest on, files of the request in their order, where the last counts.
        of_folder = [one for one in settings if not one.is_own]
        of_variable = [one for one in settings if one.file.name == "UV_EXCLUDE_NEWER"]
        counting = of_variable or of_folder[-1:] or settings[:1]
        return counting[0].value if counting else None

    @cached_property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of requirements and constraints that readers of a request have handed over."""
        return self._addresses(Effect.LOCATED)

    @cached_property
    def package_indexes(self) -> dict[str, str]:
        """The index of each package that may come from no other."""
        settings = self._of(Effect.PACKAGE_INDEX)
        return {setting.package: setting.value for setting in settings}

    @cached_property
    def hashes(self) -> dict[str, frozenset[str]]:
        """The SHA-256 of the files that a package may be, or the package at one version: ``name==version``."""
        hashes: dict[str, frozenset[str]] = {}
        for setting in self._of(Effect.HASH):
            known = hashes.get(setting.package, frozenset())
            digests = setting.value.replace("sha256:", "").split()
            hashes[setting.package] = known.union(digests)
        return hashes

    @property
    def hash_places(self) -> dict[str, str]:
        """Where the hashes of a package stand."""
        return {setting.package: setting.place for setting in self._of(Effect.HASH)}

    @property
    def only_binary(self) -> frozenset[str]:
        """The packages that are never built; ``:all:`` stands for each."""
        return self._names_in(Effect.ONLY_BINARY)

    @property
    def no_binary(self) -> frozenset[str]:
        """The packages that are built from source."""
        return self._names_in(Effect.NO_BINARY)

    @property
    def no_sources(self) -> frozenset[str]:
        """The packages without ``[tool.uv.sources]``; ``:all:`` is all."""
        return self._names_in(Effect.NO_SOURCES)

    def _names_in(self, effect: Effect) -> frozenset[str]:
        """Return the package names in the values of settings."""
        names = " ".join(self._addresses(effect)).replace(",", " ").split()
        return frozenset(map(normalized, names)) - {":none:"}

    @property
    def ignored_settings(self) -> list[SourceSetting]:
        """Those that are not obeyed, with ``why_ignored``."""
        return [one for one in self.settings if one.why_ignored]

    @property
    def demanded(self) -> dict[str, SourceSetting]:
        """What files of other tools demand: an address for a package, by its name."""
        return {one.package: one for one in self._of(Effect.ADDRESS)}

    @property
    def places(self) -> tuple[str, ...]:
        """Every address that packages may come from, but for the tools' own default index."""
        return (
            self.torch_index,
            *self.find_links,
            *self.extra_indexes,
            *self.package_indexes.values(),
            *filter(None, [self.default_index]),
        )

    @cached_property
    def chosen(self) -> tuple[SourceSetting, ...]:
        """What a file of the folder chose, and the user did not: each source once."""
        # Of these one counts alone.
        single = {
            Effect.INDEX: self.default_index,
            Effect.CERTIFICATES: self.certificates,
        }
        own = set()
        chosen: dict[tuple[Effect, Location], SourceSetting] = {}
        for setting in self.settings:
            effect = setting.effect
            if not effect.is_named:
                continue
            source = effect, Location.parse(setting.value)
            if setting.is_own:
                own.add(source)
            elif single.get(effect, setting.value) == setting.value:
                chosen.setdefault(source, setting)
        return tuple(setting for source, setting in chosen.items() if source not in own)

    def chooser_of(self, address: str) -> SourceSetting | None:
        """Return the setting of the folder by which a file at an address, or a page of files, is a source."""
        location = Location.parse(address)
        for setting in self.chosen:
            if location.is_from(Location.parse(setting.value)):
                return setting
        return None

    def has_files_at(self, location: Location) -> bool:
        """Return whether a file is in an index or links folder here."""
        places = map(Location.parse, self.places)
        return location.server == "file://" and any(map(location.is_from, places))

    @property
    def has_further_indexes(self) -> bool:
        """Whether packages beside the family may come from elsewhere than the default index."""
        return any((self.package_indexes, self.extra_indexes, self.find_links))

    def indexes_for(self, package: str, default: str | None) -> tuple[str, ...]:
        """Return the indexes that may have a package; it comes from the first that lists it.

        Args:
            package: Its name.
            default: The default index.
        """
        if package in self.package_indexes:
            return (self.package_indexes[package],)
        return (*self.extra_indexes, *filter(None, [default]))

    @property
    def newest_day(self) -> str | None:
        """The day of ``exclude_newer`` for the pages that are read here; None if there is none.

        Raises:
            UsageError: It is no date, which uv alone can read.
        """
        if self.exclude_newer is None:
            return None
        day = self.exclude_newer[:10]
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", day):
            raise UsageError(
                "source-setting",
                f"exclude-newer {self.exclude_newer} cannot be obeyed for {', '.join(self.package_indexes)}",
                hint='Write a date: exclude-newer = "2026-01-31"',
            )
        return day

    def environment(self) -> dict[str, str]:
        """Return the variables for uv: the default index and the certificates.

        Credentials travel here and not in argv.
        """
        variables = {}
        if self.default_index:
            variables["UV_DEFAULT_INDEX"] = self._with_login(self.default_index)
        if self.certificates:
            variables["SSL_CERT_FILE"] = self.certificates
        return variables

    def _with_login(self, address: str) -> str:
        """Return an address with the login of its server, for uv alone."""
        login = self.logins.get(server_of(address))
        if login is None:
            return address
        parts = urlsplit(address)
        netloc = f"{quote(login, safe=':')}@{parts.netloc}"
        return parts._replace(netloc=netloc).geturl()

    def login_indexes(self) -> list[dict[str, Any]]:
        """Return indexes that give uv the login of each server.

        uv asks none of them for packages, and sends a login to no other port.
        """
        servers = [server for server in self.logins if server.startswith("http")]
        return [
            {
                "name": f"login-{number}",
                "url": self._with_login(server),
                "explicit": True,
            }
            for number, server in enumerate(servers)
        ]

    def uv_settings(self) -> dict[str, Any]:
        """Return uv's settings for what comes neither from the sources of the family nor from the default index."""
        indexes = [{"url": address} for address in self.extra_indexes]
        indexes += [{"url": place, "format": "flat"} for place in self.find_links]
        settings: dict[str, Any] = {"index": indexes}
        if self.exclude_newer:
            settings["exclude-newer"] = self.exclude_newer
        if ":all:" in self.no_sources:
            settings["no-sources"] = True
        return settings | self.resolver_words | self.resolver_tables

    def for_markers(self, values: Mapping[str, str]) -> Sources:
        """Return the sources without those whose markers do not hold.

        Args:
            values: The marker environment of the target.
        """
        settings = tuple(one for one in self.settings if one.applies_in(values))
        return replace(self, settings=settings)

    def with_settings(
        self,
        settings: Iterable[SourceSetting],
        folder: Path | None = None,
    ) -> Sources:
        """Obey what files of the request, and the user's own words, say of sources.

        Args:
            settings: What they say.
            folder: The project's, where relative paths begin; None: the working folder.

        Raises:
            UsageError: It cannot be obeyed.
        """
        sources = self
        for written in dict.fromkeys(settings):
            sources.check_form(written)
            setting = sources._located(written, folder or Path.cwd())
            sources = sources.obeying(setting)
        return sources

    def check_form(self, setting: SourceSetting) -> None:
        """Raise UsageError for a refused setting or a malformed value."""
        effect = setting.effect
        is_untrusted = not (setting.is_own or self.policy.trusts_folder)
        if effect is Effect.REFUSED or (effect is Effect.UNKNOWN and is_untrusted):
            raise _not_obeyed(setting)
        form = effect.value.form
        if not re.fullmatch(form.pattern, setting.value):
            raise _not_obeyed(setting, form.instead)

    def _located(self, setting: SourceSetting, folder: Path) -> SourceSetting:
        """Return what a file says as the folder's own or as a stranger's.

        Raises:
            UsageError: It leads where a file may not lead, or names a second default index.
        """
        effect = setting.effect
        if setting.is_own:
            return setting
        if effect is Effect.INDEX:
            for other in self.chosen:
                is_alike = other.row == setting.row
                if is_alike and other.value != _plain(setting.value):
                    raise _not_obeyed(
                        setting, f"one default index; {other.value} is another"
                    )
        if effect in {Effect.LOCATED, Effect.FIND_LINKS}:
            location = Location.parse(setting.value, folder)
            is_path = location.server == "file://"
            is_inside = is_path and location.is_from(Location.parse(str(folder)))
            if effect is Effect.LOCATED and is_inside:
                # A project of a trusted folder has been read; uv may read more in an archive.
                is_archive = isfile(location.path)
                return replace(
                    setting, is_own=self.policy.trusts_folder and not is_archive
                )
            if is_path:
                file = folder / setting.file
                check_outside(Path(location.path), file if exists(file) else folder)
        return setting

    def obeying(self, setting: SourceSetting, *, overrides: bool = True) -> Sources:
        """Return the sources with what one setting says, without its login.

        Args:
            setting: It has the form that it must have.
            overrides: Whether a default index takes the place of another.
        """
        plain = without_logins if setting.effect is Effect.EXTENSIONS else _plain
        address = plain(setting.value)
        default_index = self.default_index
        if setting.effect is Effect.INDEX and (overrides or not default_index):
            default_index = address
        logins = self.logins
        if setting.effect.is_named:
            # The user's own stay.
            logins = {**_logins(setting.value), **logins}
        settings = (*self.settings, replace(setting, value=address))
        return replace(
            self, settings=settings, default_index=default_index, logins=logins
        )

    def name_chosen(
        self,
        settings: Sequence[SourceSetting],
        reporter: Reporter,
    ) -> None:
        """Name what the folder chose, and not the user.

        Args:
            settings: What it chose.
            reporter: Is told, also if the run is quiet.

        Raises:
            UsageError: The user does not trust folders to choose.
        """
        _check(admit(_entry(setting), self.policy) for setting in settings)
        for setting in settings:
            server = Location.parse(setting.value).server
            login = "; a login is sent to it" if server in self.logins else ""
            reporter.notice("Index", f"{setting}{login}")

    def check_build(self, package: str, name: str, default: str | None) -> None:
        """Raise UsageError if a package of an index may not be built.

        Args:
            package: The package, with its version.
            name: Its name.
            default: The default index.
        """
        for index in self.indexes_for(name, default)[:1]:
            entry = Entry(
                SourceKind.ARCHIVE,
                f"{shorten(package)} from {index}",
                source_location(index),
                is_requested=name in self.policy.requested,
            )
            _check([admit(entry, self.policy)])

    def explain_ignored_settings(self, reporter: Reporter) -> None:
        """Report settings that are not obeyed, and warn of unknown ones."""
        texts = {}
        for setting in self.ignored_settings:
            key = setting.row.key
            name = key if key == setting.place else f"{key} in {setting.place}"
            texts[f"{name}: {setting.why_ignored}"] = setting.effect
        for text, effect in texts.items():
            if effect is Effect.UNKNOWN:
                reporter.warn(text)
            else:
                reporter.step("Ignored", text)

    def check_known_indexes(self, read_default: Callable[[], str | None]) -> None:
        """Raise UsageError if a file of another tool has packages from an index that is not among the sources.

        Its packages would be taken from the default index instead.

        Args:
            read_default: Returns the tools' own default index. It counts as a source even where the user has named a
                mirror of it: the packages are the same. Asked only if need be.
        """
        demanded = self._of(Effect.KNOWN_INDEX)
        if not demanded:
            return
        places = filter(None, (*self.places, read_default()))
        known = set(map(Location.parse, places))
        unknown = {
            setting.value: setting
            for setting in demanded
            if Location.parse(setting.value) not in known
        }
        for setting in unknown.values():
            raise _not_obeyed(setting, hint=naming(unknown))

    def check_address(self, name: str, address: str) -> None:
        """Raise UsageError unless metadata may require a package by URL.

        Args:
            name: The package.
            address: The URL in the metadata of another package.
        """
        shown = f"{name} from {shorten(redacted(address))}"
        entry = Entry(SourceKind.ADDRESS, shown, source_location(address))
        _check([admit(entry, self.policy)])

    def check_handed_over(self, requirement: Requirement) -> None:
        """Raise UsageError for an address that no reader of a request has handed over: none goes to uv unnamed."""
        if requirement.url and not self.has_address(requirement.url):
            raise UsageError(
                "source-setting",
                f"{requirement.name} has an address that was not named: {redacted(requirement.url)}",
                hint=f"gpuinstall install {quoted(requirement.text)}   # requests it by its address",
            )

    def has_address(self, address: str) -> bool:
        """Whether an address is that of a requirement or constraint, whatever the commit of a repository."""
        return _bare(address) in map(_bare, self.addresses)


def _entry(setting: SourceSetting) -> Entry:
    """Return a setting as an entry for the gate."""
    is_address = setting.row.key == BY_ADDRESS
    shown = shorten(redacted(setting.value)) if is_address else setting.row.key
    return Entry(
        SourceKind.ADDRESS if is_address else SourceKind.INDEX,
        f"{setting.file}: {shown}",
        source_location(setting.value),
        is_requested=setting.is_own,
    )


def _check(verdicts: Iterable[GateVerdict]) -> None:
    """Raise UsageError if a source is rejected."""
    rejected = [one.reason for one in verdicts if isinstance(one, Rejection)]
    if rejected:
        messages = dict.fromkeys(reason.message for reason in rejected)
        raise UsageError(
            rejected[0].code,
            "; ".join(messages),
            why="GPUINSTALL_TRUST_FOLDER=0 or your trust-folder = false refuses what a folder selects",
            hint=TRUST,
        )


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
    from gpuinstall.sources.configuration import read_configuration, read_policy
    from gpuinstall.sources.requirements_file import with_variables

    index = torch_index or configured
    settings = list(read_configuration(environ, folder))
    if configured and not torch_index:
        file = folder / "pyproject.toml"
        requested = source_setting("gpuinstall", "torch-index", configured, file)
        settings.insert(0, requested)
    certificates = [environ.get("SSL_CERT_FILE"), environ.get("REQUESTS_CA_BUNDLE")]
    certificates += [one.value for one in settings if one.effect is Effect.CERTIFICATES]
    if environ.get(SYSTEM_CERTIFICATES):
        certificates += [path for path in _SYSTEM_STORES if isfile(path)]
    sources = Sources(
        torch_index=torch_index_of(index),
        is_torch_index_requested=bool(index),
        certificates=next(filter(None, certificates), None),
        policy=read_policy(environ, folder),
        logins=_logins(index or OFFICIAL),
    )
    for written in settings:
        setting = written
        if setting.is_own:
            # A variable may lead to PyTorch's own index.
            effect = setting.row.declared_effect
            if effect.is_named:
                value = with_variables(setting.value, environ)
                setting = replace(setting, value=value)
            elif effect in {Effect.REFUSED, Effect.UNRELATED, Effect.UNKNOWN}:
                # A stranger's would end the command; of this one the user knows.
                sources = sources.obeying(setting)
                continue
            elif not (effect.value.is_obeyed or setting.backend):
                continue
        sources.check_form(setting)
        # Of several default indexes the strongest configuration's counts.
        sources = sources.obeying(setting, overrides=False)
    return sources


def torch_index_of(requested: str | None) -> str:
    """Return the base of the requested torch index, or the official one; raise UsageError for no address."""
    if not requested:
        return OFFICIAL
    is_url = re.match(r"(?!.*\$\{)https?://[^/]", requested)
    if not is_url or fault_in(requested):
        hint = (
            "Run it again with --torch-index https://index.example/whl: the URL above <backend>/<package>/\n"
            "Set UV_FIND_LINKS to a folder of wheels, if one is meant"
        )
        raise UsageError(
            "torch-index", f"the torch index {requested!r} is not a URL", hint=hint
        )
    return without_logins(requested.rstrip("/"))


def links_url(place: str) -> str:
    """Return the address of find-links as a lock has it, which takes them for no index."""
    address = place if "://" in place else Path(place).as_uri()
    return address + _LINKS


def naming(addresses: Iterable[str]) -> str:
    """Return the commands that make indexes and find-links sources.

    Args:
        addresses: As a lock or a file of another tool has them.
    """
    values: dict[str, str] = {}
    for written in addresses:
        address = written.removesuffix(_LINKS)
        is_index = address == written and "://" in address
        # uv separates indexes by blanks, and find-links by commas.
        name, sign = ("UV_INDEX", " ") if is_index else ("UV_FIND_LINKS", ",")
        values[name] = f"{values[name]}{sign}{address}" if name in values else address
    return "\n".join(f"export {name}={quoted(text)}" for name, text in values.items())


def _not_obeyed(
    setting: SourceSetting,
    instead: str = "",
    hint: str = "",
) -> UsageError:
    package = f" of {setting.package}" if setting.package else ""
    value = f" = {without_logins(setting.value)}" if setting.value else ""
    return UsageError(
        "source-setting",
        f"{setting.place}: {setting.row.key}{package}{value} cannot be obeyed",
        why="it says where packages may come from or which files they are; without it others could be installed",
        hint=hint or f"Instead: {instead or setting.row.instead}",
    )


def _plain(address: str) -> str:
    """Return an address without its login and the slash at its end."""
    plain = without_logins(address)
    stripped = plain.rstrip("/")
    return stripped if "/" in stripped else plain


def _bare(address: str) -> str:
    """Return an address without its fragment, that of a repository as uv writes it: without its reference."""
    bare = unquote(_plain(address.partition("#")[0]))
    if not bare.startswith("git+"):
        return bare
    return re.sub(r"@[^/@]*\Z", "", bare.removeprefix("git+"))


def server_of(address: str) -> str:
    """Return the scheme, host, and port of an address."""
    parts = urlsplit(address)
    return f"{parts.scheme.removeprefix('git+')}://{parts.netloc}"


def _logins(address: str) -> dict[str, str]:
    """Return the login of an address by its server, if it has one.

    Raises:
        UsageError: The address is malformed.
    """
    try:
        server = server_of(address)
    except ValueError as error:
        raise malformed_address(address, str(error)) from error
    if without_logins(address) == address:
        return {}
    scheme, _, netloc = server.partition("://")
    written, _, host = netloc.rpartition("@")
    login = unquote(written)
    # It would be an option of keyring, or a line of a netrc file.
    if login.startswith("-") or not login.isprintable():
        raise malformed_address(address, "its login has odd characters")
    return {f"{scheme}://{host}": login}
