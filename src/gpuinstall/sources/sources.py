"""Where packages come from: the torch index, find-links folders, the default index, and the certificates to trust."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_outside
from gpuinstall.base.location import Location
from gpuinstall.base.requirement import fault_in, normalised
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import redacted, without_logins
from gpuinstall.base.values import Value, field, replace
from gpuinstall.sources.provenance import BY_ADDRESS, Effect, SourceSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.base.requirement import ParsedRequirement
    from gpuinstall.sources.configuration import Configuration

OFFICIAL = "https://download.pytorch.org/whl"
_SUPPLIES_TORCH = "a source of torch"

ROLES = {
    Effect.INDEX: "",
    Effect.EXTRA_INDEX: "",
    Effect.FIND_LINKS: _SUPPLIES_TORCH,
    Effect.PACKAGE_INDEX: "the source of {}",
    Effect.EXTENSIONS: "a source of extensions",
    Effect.LOCATED: "the source of {}",
    Effect.FILE: "requirements",
}
"""What is named before it is asked, and refused where folders are not trusted: what it is the source of."""

_URL = (
    r"(?i)(https?://[^/{]|file:///|/|[a-z]:[/\\])(?!.*\{\w*\}).*",
    "a URL or an absolute path without variables, and a login in UV_INDEX or a netrc file",
)
_FORMS = {
    Effect.INDEX: _URL,
    Effect.EXTRA_INDEX: _URL,
    Effect.FIND_LINKS: _URL,
    Effect.PACKAGE_INDEX: _URL,
    Effect.EXTENSIONS: (
        r"(?!.*\$\{)https?://[^/].*",
        "a URL without variables: https://index.example/{name}/",
    ),
    Effect.LOCATED: (
        r"(?s)(?!.*\$\{).*",
        "an address without variables, and a login in a netrc file or a keyring",
    ),
    Effect.HASH: (r"(sha256:[0-9a-f]{64}\s*)+", "a hash is written sha256:…"),
    Effect.EXCLUDE_NEWER: (r"[0-9A-Za-z:.+ -]+", "it is a date"),
}
"""The form that the value of a setting must have, and what to write in place of another."""

_WHY_IGNORED = {
    Effect.TORCH: "the build of torch is chosen here",
    Effect.UNRELATED: "it is not read here",
}


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


class Sources(Value):
    """Where the torch family may come from, in this order: ``torch_index``, ``find_links``, the default index.

    No address holds credentials.
    """

    torch_index: str = OFFICIAL
    """The base below which ``<backend>/<package>/`` lie."""

    is_torch_index_requested: bool = False
    """Whether a command, a variable or the project names it; otherwise it comes after ``find_links``."""

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

    settings: tuple[SourceSetting, ...] = ()
    """All that files say of sources, without logins."""

    exclude_newer: str | None = None
    undated: frozenset[str] = frozenset()
    """Packages for which ``exclude_newer`` does not hold."""

    certificates: str | None = None
    extension_sources: tuple[str, ...] = ()
    """Pages of prebuilt extensions."""

    configured: tuple[SourceSetting, ...] = ()
    """What the configuration of the folder says, which a lock that is made there records."""

    chosen: tuple[FolderSetting, ...] = ()
    """What a file of the folder chose, and the user did not."""

    trust_folder: bool = True
    """Whether the folder may choose."""

    logins: Mapping[str, str] = field(default_factory=dict)
    """``user:password`` by host, for the client and for uv's environment alone."""

    def __repr__(self) -> str:
        # Shown by a traceback too: without the logins.
        return f"Sources of {self.torch_index}, {self.default_index}"

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
                f"{setting.value if setting.key == BY_ADDRESS else setting.key} in {setting.file}"
                for setting in settings
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
        texts = [
            f"{setting.row.key} in {setting.place}: {_WHY_IGNORED[setting.effect]}"
            for setting in self.ignored_settings
        ]
        for text in dict.fromkeys(texts):
            reporter.step("Ignored", text)

    def check_known_indexes(self, read_default: Callable[[], str | None]) -> None:
        """Raise UsageError if a file of another tool has packages from an index that is not among the sources.

        They would be taken from the default index. What ``read_default`` returns, the tools' own one, is none of those:
        the user may have named a mirror of it.
        """
        demanded = self._of(Effect.KNOWN_INDEX)
        if not demanded:
            return
        known = _locations((*self.places, read_default()))
        unknown = {
            setting.value: setting
            for setting in demanded
            if Location.parse(setting.value) not in known
        }
        for setting in unknown.values():
            raise _not_obeyed(setting, hint=_naming(unknown))

    def _of(self, *effects: Effect) -> list[SourceSetting]:
        """Return the settings of which one of these becomes."""
        return [setting for setting in self.settings if setting.effect in effects]

    @property
    def ignored_settings(self) -> list[SourceSetting]:
        """Those that are not obeyed, because the build of torch is chosen here or they say nothing of it."""
        return self._of(*_WHY_IGNORED)

    @property
    def demanded(self) -> list[SourceSetting]:
        """What files of other tools demand: an index that is to be among the sources, an address for a package."""
        return self._of(Effect.KNOWN_INDEX, Effect.ADDRESS)

    @cached_property
    def package_indexes(self) -> dict[str, str]:
        """The index of each package that may come from no other."""
        settings = self._of(Effect.PACKAGE_INDEX)
        return {setting.package: _plain(setting.value) for setting in settings}

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
        values = [setting.value for setting in self._of(Effect.ONLY_BINARY)]
        names = " ".join(values).replace(",", " ").split()
        return frozenset(map(normalised, names)) - {":none:"}

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

    def uv_settings(self) -> dict[str, Any]:
        """Return uv's settings for what comes neither from the sources of the family nor from the default index."""
        indexes = [{"url": address} for address in self.extra_indexes]
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

    @property
    def has_further_indexes(self) -> bool:
        """Whether packages beside the family may come from elsewhere than the default index."""
        return any((self.package_indexes, self.extra_indexes, self.flat_indexes))

    def indexes_for(self, package: str, default: str | None) -> tuple[str, ...]:
        """Return the indexes that may have a package; it comes from the first that lists it.

        Args:
            package: Its name.
            default: The default index.
        """
        if package in self.package_indexes:
            return (self.package_indexes[package],)
        return (*self.extra_indexes, *filter(None, [default]))

    def chooser_of(self, address: str) -> FolderSetting | None:
        """Return the setting of the folder by which a file at an address, or a page of files, is a source."""
        location = Location.parse(address)
        for setting in self.chosen:
            if location.is_from(Location.parse(setting.value)):
                return setting
        return None

    def with_settings(
        self,
        settings: Iterable[SourceSetting],
        folder: Path | None = None,
    ) -> Sources:
        """Obey what files say of sources.

        Args:
            settings: What they say.
            folder: The project's, where relative paths begin; None: the working folder.

        Raises:
            UsageError: It cannot be obeyed.
        """
        sources = self
        for setting in dict.fromkeys(settings):
            sources._check(setting)
            is_chosen = False
            if setting.effect is Effect.LOCATED:
                is_chosen = sources._is_stranger(setting, folder or Path.cwd())
            elif setting.effect in ROLES:
                # What the user has configured too is not the folder's choice alone.
                location = Location.parse(setting.value)
                is_chosen = location not in _locations(sources.places)
            sources = sources.obeying(setting, is_chosen=is_chosen)
        return sources

    def with_own(self, setting: SourceSetting) -> Sources:
        """Obey what the user says; raise UsageError for a variable in an address."""
        _check_form(setting)
        return self.obeying(setting, is_chosen=False)

    def _is_stranger(self, setting: SourceSetting, folder: Path) -> bool:
        """Whether the address of a requirement is to be named: not the user's own word, nor in a trusted folder."""
        if _plain(setting.value) in self.addresses:
            return False
        location = setting.location(folder)
        if location.server != "file://":
            return True
        if location.is_from(Location.parse(str(folder))):
            return not self.trust_folder
        place = folder / setting.file
        check_outside(Path(location.path), place if place.exists() else folder)
        return True

    def check_admitted(self, requirement: ParsedRequirement) -> None:
        """Raise UsageError for an address that no reader of a request has handed over: none goes to uv unnamed."""
        if requirement.url and not self.has_address(requirement.url):
            raise UsageError(
                "source-setting",
                f"{requirement.name} has an address that was not named: {redacted(requirement.url)}",
                hint=f"Request it by its address: {quoted(requirement.text)}",
            )

    def has_address(self, address: str) -> bool:
        """Whether an address is that of a requirement or constraint, whatever the commit of a repository."""
        return _bare(address) in map(_bare, self.addresses)

    @cached_property
    def addresses(self) -> frozenset[str]:
        """The addresses of requirements and constraints that were admitted."""
        return frozenset(_plain(one.value) for one in self._of(Effect.LOCATED))

    def _check(self, setting: SourceSetting) -> None:
        """Raise UsageError for a setting that a file may not have, whatever the user says."""
        effect = setting.effect
        _check_form(setting)
        if effect is Effect.FIND_LINKS:
            location = Location.parse(setting.value)
            if location.server == "file://":
                check_outside(Path(location.path), setting.file)
        if effect is Effect.INDEX:
            for other in self.chosen:
                is_alike = other.key == setting.row.key
                if is_alike and other.value != _plain(setting.value):
                    raise _not_obeyed(
                        setting, f"one default index; {other.value} is another"
                    )

    def obeying(
        self,
        setting: SourceSetting,
        *,
        is_chosen: bool = True,
        is_of_folder: bool = True,
    ) -> Sources:
        """Return the sources with what one setting says.

        Args:
            setting: It has the form that it must have.
            is_chosen: Whether the folder alone has chosen it, so that it is named.
            is_of_folder: Whether a file of the folder has it, and not only the user's own configuration.
        """
        address = _plain(setting.value)
        changes: dict[str, Any] = {}
        match setting.effect:
            case Effect.INDEX:
                changes["default_index"] = address
            case Effect.EXTRA_INDEX:
                changes["extra_indexes"] = _joined(self.extra_indexes, address)
                if not is_of_folder:
                    place = {address: str(setting.file)}
                    changes["own_indexes"] = {**self.own_indexes, **place}
            case Effect.FIND_LINKS:
                changes["find_links"] = _joined(self.find_links, address)
                # The user's own serve the family alone.
                if is_of_folder:
                    changes["flat_indexes"] = _joined(self.flat_indexes, address)
            case Effect.EXTENSIONS:
                address = without_logins(setting.value)
                changes["extension_sources"] = _joined(self.extension_sources, address)
            case Effect.EXCLUDE_NEWER:
                changes["exclude_newer"] = setting.value
        if setting.effect in ROLES:
            # The user's own stay.
            changes["logins"] = {**_logins(setting.value), **self.logins}
            if is_chosen:
                role = ROLES[setting.effect].format(setting.package)
                choice = FolderSetting(setting.row.key, setting.file, address, role)
                changes["chosen"] = (*self.chosen, choice)
        # The settings are shown and compared; only ``logins`` has what is secret.
        plain = setting._replace(value=without_logins(setting.value))
        return replace(self, settings=(*self.settings, plain), **changes)


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
    from gpuinstall.sources.requirements_file import with_variables

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
        logins=_logins(index or OFFICIAL),
    )
    of_folder = [one for one in configurations if one.is_of_folder]
    by_folder = _addresses(of_folder)
    by_user = _addresses(one for one in configurations if not one.is_of_folder)
    for key, written in _addresses(configurations).items():
        setting = written
        if key not in by_folder:
            setting = setting._replace(value=with_variables(written.value, environ))
        # Of several default indexes the strongest configuration's counts.
        if setting.effect is Effect.INDEX and sources.default_index:
            continue
        _check_form(setting)
        sources = sources.obeying(
            setting,
            is_chosen=key not in by_user,
            is_of_folder=key in by_folder,
        )
    return sources.with_settings(
        setting
        for one in of_folder
        for setting in one.settings
        if setting.row.effect not in ROLES
    )


def torch_index_of(requested: str | None) -> str:
    """Return the base of the requested torch index, or the official one; raise UsageError for no address."""
    if not requested:
        return OFFICIAL
    is_url = re.match(r"(?!.*\$\{)https?://[^/]", requested)
    if not is_url or fault_in(requested):
        hint = "Run it again with --torch-index https://index.example/whl: the URL above <backend>/<package>/"
        raise UsageError(
            "torch-index", f"the torch index {requested!r} is not a URL", hint=hint
        )
    return without_logins(requested.rstrip("/"))


def _check_form(setting: SourceSetting) -> None:
    """Raise UsageError for a setting that is refused, or whose value has another form than it must have."""
    if setting.effect is Effect.REFUSED:
        raise _not_obeyed(setting)
    form, instead = _FORMS.get(setting.effect, ("(?s:.*)", ""))
    if not re.fullmatch(form, setting.value):
        raise _not_obeyed(setting, instead)


def _addresses(
    configurations: Iterable[Configuration],
) -> dict[tuple[Effect, Location], SourceSetting]:
    """Return the addresses of sources by what becomes of them, those of the strongest configuration first."""
    settings = dict[tuple[Effect, Location], SourceSetting]()
    for one in configurations:
        for setting in one.settings:
            if setting.row.effect in ROLES:
                key = setting.row.effect, Location.parse(setting.value)
                settings.setdefault(key, setting)
    return settings


def _locations(addresses: Iterable[str | None]) -> set[Location]:
    return {Location.parse(address) for address in addresses if address}


def _naming(addresses: Iterable[str]) -> str:
    """Return the commands that make indexes and folders of files sources."""
    values: dict[str, str] = {}
    for address in addresses:
        # uv separates indexes by blanks, and folders of files by commas.
        name, sign = ("UV_INDEX", " ") if "://" in address else ("UV_FIND_LINKS", ",")
        values[name] = f"{values[name]}{sign}{address}" if name in values else address
    return "\n".join(f"export {name}={quoted(text)}" for name, text in values.items())


def _not_obeyed(
    setting: SourceSetting,
    instead: str = "",
    hint: str = "",
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
    plain = without_logins(address)
    stripped = plain.rstrip("/")
    return stripped if "/" in stripped else plain


def _bare(address: str) -> str:
    """Return an address without its fragment, that of a repository as uv writes it: without its reference."""
    bare = unquote(_plain(address.partition("#")[0]))
    if not bare.startswith("git+"):
        return bare
    return re.sub(r"@[^/@]*\Z", "", bare.removeprefix("git+"))


def _joined(addresses: tuple[str, ...], address: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*addresses, address)))


def _logins(address: str) -> dict[str, str]:
    """Return the login of an address by its host, if it has one; raise UsageError for one that is malformed."""
    try:
        netloc = urlsplit(address).netloc
    except ValueError as error:
        raise _malformed(address, str(error)) from error
    if without_logins(address) == address:
        return {}
    written, _, host = netloc.rpartition("@")
    login = unquote(written)
    # It would be an option of keyring, or a line of a netrc file.
    if login.startswith("-") or not login.isprintable():
        raise _malformed(address, "its login has odd characters")
    return {host: login}


def _malformed(address: str, why: str) -> UsageError:
    return UsageError("malformed-address", f"{address!r} is not a URL: {why}")
