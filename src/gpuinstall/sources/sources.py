"""Package sources: indexes, find-links, and their settings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from os.path import exists, isfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuinstall.base.advice import Advice, Hint, make_change, make_command
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_outside, real_path
from gpuinstall.base.location import (
    Location,
    SourceKind,
    SourceOrigin,
    parse_source,
)
from gpuinstall.base.request import DEFAULT_SOURCING, Sourcing, split_torch_index
from gpuinstall.base.requirement import (
    Requirement,
    find_url_fault,
    is_url,
)
from gpuinstall.base.text import redact, remove_logins, shorten
from gpuinstall.base.values import Value, replace
from gpuinstall.sources.credentials import Credentials, parse_login
from gpuinstall.sources.gate import (
    Entry,
    Policy,
)
from gpuinstall.sources.provenance import (
    BY_ADDRESS,
    FORMS,
    INDEXES,
    Effect,
    SourceSetting,
    create_setting,
)
from gpuinstall.sources.uv_settings import (
    Setting,
    UvSetting,
    UvSettings,
)

OFFICIAL = "https://download.pytorch.org/whl"

_NO_INDEX = Path(__file__).with_name("no-index").as_uri()
"""The URL of an index without packages."""

_LINKS = "#find-links"
"""The URL fragment that distinguishes find-links from an index."""


class Sources(Value):
    """Package sources, with logins stored separately from URLs.

    PyTorch packages are installed from ``torch_index``, ``find_links``, or the default
    index, in this order.
    """

    torch_index: str = OFFICIAL
    """The torch index, to which ``<backend>/<package>/`` is added."""

    is_torch_index_requested: bool = False
    """Whether the torch index is configured and so precedes find-links."""

    default_index: str | None = None
    """The default index. None: the default of pip and uv."""

    unused_indexes: tuple[str, ...] = ()
    """The indexes that ``no-index`` excludes. Locked files may be on them."""

    settings: tuple[SourceSetting, ...] = ()
    """The user's sources, highest precedence first, then the folder's."""

    uv: UvSettings = UvSettings()
    credentials: Credentials = Credentials()
    policy: Policy = Policy()

    pip: Mapping[Path, Mapping[str, str]] = {}
    """The options in pip's files. The last file has the highest precedence."""

    family_links: frozenset[str] = frozenset()
    """The find-links with torch-family packages, which uv must not merge."""

    def __repr__(self) -> str:
        # A traceback must not show the logins.
        return f"Sources of {self.torch_index}, {self.default_index}"

    def list_settings(self, *effects: Effect) -> list[SourceSetting]:
        """Return the settings with one of these effects."""
        return [setting for setting in self.settings if setting.effect in effects]

    def list_addresses(self, effect: Effect) -> tuple[str, ...]:
        """Return the unique URLs and paths with an effect."""
        return tuple(dict.fromkeys(one.value for one in self.list_settings(effect)))

    @property
    def find_links(self) -> tuple[str, ...]:
        """The find-links, which are URLs or absolute paths of folders."""
        return self.list_addresses(Effect.FIND_LINKS)

    @property
    def extra_indexes(self) -> tuple[str, ...]:
        """The indexes that take precedence over the default index."""
        return self.list_addresses(Effect.EXTRA_INDEX)

    @property
    def own_indexes(self) -> dict[str, str]:
        """Extra indexes and find-links that only the user configured.

        The keys are URLs as recorded in a lock, and the values configuration files.
        """
        indexes = self.list_settings(Effect.EXTRA_INDEX, Effect.FIND_LINKS)
        named = {one.value for one in self.list_settings(Effect.NAME)}
        of_folder = named | {index.value for index in indexes if not index.is_own}
        own = {}
        for index in indexes:
            if index.value not in of_folder:
                is_links = index.effect is Effect.FIND_LINKS
                address = links_url(index.value) if is_links else index.value
                own[address] = str(index.file)
        return own

    @property
    def locations(self) -> frozenset[Location]:
        """The locations of the direct references, at any commit."""
        settings = self.list_settings(Effect.LOCATED)
        return frozenset(one.source.location for one in settings)

    @cached_property
    def package_indexes(self) -> dict[str, str]:
        """The explicit index of each package that has one."""
        settings = self.list_settings(Effect.PACKAGE_INDEX)
        return {setting.package: setting.value for setting in settings}

    @cached_property
    def hashes(self) -> dict[str, frozenset[str]]:
        """The allowed SHA-256 hashes by ``name`` or ``name==version``."""
        hashes: dict[str, frozenset[str]] = {}
        for setting in self.list_settings(Effect.HASH):
            known = hashes.get(setting.package, frozenset())
            digests = setting.value.replace("sha256:", "").split()
            hashes[setting.package] = known.union(digests)
        return hashes

    @property
    def required_addresses(self) -> dict[str, SourceSetting]:
        """The direct references in other tools' files, by package."""
        return {one.package: one for one in self.list_settings(Effect.ADDRESS)}

    @property
    def places(self) -> tuple[str, ...]:
        """The locations of all configured indexes and find-links."""
        return (
            self.torch_index,
            *self.find_links,
            *self.extra_indexes,
            *self.package_indexes.values(),
            *filter(None, [self.default_index]),
            *self.unused_indexes,
        )

    @cached_property
    def folder_sources(self) -> tuple[SourceSetting, ...]:
        """The unique sources that only the folder's files select."""
        own = set()
        chosen: dict[tuple[Effect, object], SourceSetting] = {}
        for setting in self.settings:
            effect = setting.effect
            # Only one default index is used.
            is_unused = effect is Effect.INDEX and setting.value != self.default_index
            if is_unused or not effect.is_reported:
                continue
            source = setting.source
            is_repository = source.kind is SourceKind.REPOSITORY
            inside = source.reference, source.subdirectory
            place = is_repository, source.location, inside
            if setting.is_own:
                own.add(place)
            else:
                chosen.setdefault((effect, place), setting)
        return tuple(
            setting for (_, place), setting in chosen.items() if place not in own
        )

    def folder_source_of(self, address: str) -> SourceSetting | None:
        """Return the setting with which the folder requires a URL, if any."""
        location = parse_source(address).location
        found = (one for one in self.folder_sources if one.source.location == location)
        return next(found, None)

    def find_place(self, host: str) -> str:
        """Return the file and line, variable, or option of a host, or ""."""
        for setting in self.settings:
            if urlsplit(setting.value).netloc == host:
                return setting.place
        if self.is_torch_index_requested and urlsplit(self.torch_index).netloc == host:
            is_variable = os.environ.get("GPUINSTALL_TORCH_INDEX")
            return "GPUINSTALL_TORCH_INDEX" if is_variable else "--torch-index"
        return ""

    def has_files_at(self, location: Location) -> bool:
        """Return whether a path is in a local index or find-links folder."""
        places = map(Location.parse, self.places)
        return location.is_local and any(map(location.is_from, places))

    @property
    def has_further_indexes(self) -> bool:
        """Whether packages other than PyTorch's have additional sources."""
        return any((self.package_indexes, self.extra_indexes, self.find_links))

    def find_indexes(self, package: str) -> tuple[str, ...]:
        """Return the indexes of a package, highest precedence first."""
        if package in self.package_indexes:
            return (self.package_indexes[package],)
        return (*self.extra_indexes, *filter(None, [self.default_index]))

    def uv_settings(self) -> dict[str, Any]:
        """Return uv settings for all sources except the default index."""
        indexes: list[dict[str, Any]] = [
            {"url": address, **self.find_options(address)}
            for address in self.extra_indexes
        ]
        merged = list[str]()
        for setting in self.list_settings(Effect.FIND_LINKS):
            is_index = setting.key.startswith("index (")
            if is_index or setting.value in self.family_links:
                indexes.append({"url": setting.value, "format": "flat"})
            else:
                merged.append(setting.value)
        links = {"find-links": merged} if merged else {}
        return {"index": indexes, **self.uv.resolver_keys, **links}

    def find_options(self, index: str) -> Mapping[str, Any]:
        """Return further keys of uv's entry for an index."""
        found = (one.options for one in self.settings if one.value == index)
        return next(filter(None, found), {})

    def filter_by_markers(self, values: Mapping[str, str]) -> Sources:
        """Return the sources whose markers apply in an environment."""
        settings = tuple(one for one in self.settings if one.applies_in(values))
        return replace(self, settings=settings)

    def add_settings(
        self,
        settings: Iterable[Setting],
        folder: Path | None = None,
        *,
        is_configuration: bool = False,
    ) -> Sources:
        """Add settings of files, variables, and the command line.

        Args:
            settings: The settings.
            folder: The folder to which their paths are relative. None: the working
                folder.
            is_configuration: Whether they are in configuration files, of which the
                first one has the highest precedence. Otherwise, they precede the
                configuration.

        Raises:
            UsageError: A setting is refused or malformed.
        """
        place = folder or Path.cwd()
        listed = tuple(settings)
        rows = [one for one in listed if isinstance(one, UvSetting)]
        located = [
            one.locate(place) if one.source.location.is_local else one
            for one in listed
            if isinstance(one, SourceSetting)
        ]
        policy = _check_owners(self.policy, (*rows, *located), place)
        sources = replace(self, policy=policy, uv=self.uv.add(rows, policy))
        for written in dict.fromkeys(_find_effects(self, located)):
            _check_form(written)
            setting = written
            if not (is_configuration or written.is_own):
                setting = _check_location(sources, written, place)
            sources = _add_setting(sources, setting, overrides=not is_configuration)
        return sources

    def check_build(self, package: str, name: str) -> None:
        """Raise UsageError if a package on an untrusted index would be built.

        Args:
            package: The package, with its version.
            name: The name of the package.
        """
        for index in self.find_indexes(name)[:1]:
            is_own = name in self.policy.requested
            origin = SourceOrigin.USER if is_own else SourceOrigin.FOLDER
            source = parse_source(index, kind=SourceKind.SDIST, origin=origin)
            self.policy.check([Entry(source, f"{shorten(package)} from {index}")])


def apply_no_index(known: Sources) -> Sources:
    """Return the sources without indexes if ``no-index`` is set.

    An index of uv, or of an option, precedes pip's setting.
    """
    indexes = known.list_settings(Effect.INDEX, Effect.EXTRA_INDEX)
    is_replaced = known.is_torch_index_requested or any(
        not one.is_of_pip for one in indexes
    )
    kept = tuple(
        one
        for one in known.uv.settings
        if not (one.key == "no-index" and one.is_of_pip and is_replaced)
    )
    sources = replace(known, uv=replace(known.uv, settings=kept))
    if not any(one.key == "no-index" for one in kept):
        return sources
    return replace(
        sources,
        torch_index=_NO_INDEX,
        is_torch_index_requested=True,
        default_index=_NO_INDEX,
        unused_indexes=(known.torch_index, *filter(None, [known.default_index])),
    )


def find_unknown_index(
    sources: Sources, read_default: Callable[[], str | None]
) -> UsageError | None:
    """Return an error if another tool's file has an unknown index.

    Packages on that index would be installed from the default index.

    Args:
        sources: The sources.
        read_default: Returns the default index of the tools, which is allowed even
            if the user has configured a mirror.
    """
    demanded = sources.list_settings(Effect.KNOWN_INDEX)
    if not demanded:
        return None
    places = filter(None, (*sources.places, read_default()))
    known = set(map(Location.parse, places))
    unknown = [one for one in demanded if one.source.location not in known]
    if not unknown:
        return None
    hint = make_export_commands(dict.fromkeys(one.value for one in unknown))
    return _setting_error(unknown[0], hint=hint)


def check_reported(sources: Sources, requirement: Requirement) -> None:
    """Check that a URL was reported to the user before its use."""
    url = requirement.url
    if url and parse_source(url).location not in sources.locations:
        raise UsageError(
            "source-setting",
            f"the URL of {requirement.name} was not reported in advance: {redact(url)}",
            hint=make_command(
                "install", requirement.text, note="requests it by its URL"
            ),
        )


def _check_owners(policy: Policy, settings: Iterable[Setting], folder: Path) -> Policy:
    """Distrust the folder if a setting's file belongs to another user."""
    from gpuinstall.sources.configuration import check_owners

    paths = []
    for setting in settings:
        if not setting.is_own:
            paths.append(folder / setting.file)
            if isinstance(setting, SourceSetting) and setting.key == BY_ADDRESS:
                paths += filter(None, [setting.path])
    return check_owners(policy, paths, folder)


def _check_form(setting: SourceSetting) -> None:
    """Raise UsageError for a malformed value."""
    pattern, instead = FORMS.get(setting.effect, ("(?s:.*)", ""))
    if not re.fullmatch(pattern, setting.value):
        raise _setting_error(setting, instead)


def _find_effects(
    sources: Sources, settings: Sequence[SourceSetting]
) -> Iterator[SourceSetting]:
    """Yield settings, with the effect of indexes that are known otherwise.

    These are parts of the torch index, and indexes of the folder that the user
    configured.
    """
    own = {
        one.source.location
        for one in (*settings, *sources.settings)
        if one.is_own and one.effect in INDEXES
    }
    torch = Location.parse(sources.torch_index)
    for one in settings:
        effect = one.declared_effect
        if one.effect in INDEXES:
            base, backend = split_torch_index(one.value)
            if backend and Location.parse(base) == torch:
                effect = Effect.TORCH
            elif not one.is_own and one.source.location in own:
                effect = Effect.NAME
        yield replace(one, declared_effect=effect)


def _check_location(
    sources: Sources, setting: SourceSetting, folder: Path
) -> SourceSetting:
    """Check a setting's path, and mark a setting of the user.

    Raises:
        UsageError: The setting has a path of another user, or a second default
            index.
    """
    effect = setting.effect
    if effect is Effect.INDEX:
        for other in sources.folder_sources:
            is_alike = other.key == setting.key
            if is_alike and other.value != _plain_url(setting.value):
                raise _setting_error(
                    setting, f"use one default index; another one is {other.value}"
                )
    if effect in {Effect.LOCATED, Effect.FIND_LINKS}:
        path = setting.path
        is_inside = path and path.is_relative_to(real_path(folder))
        if effect is Effect.LOCATED and is_inside:
            # A trusted project was already checked, unlike the files in an archive.
            is_own = sources.policy.trusts_folder and not isfile(path or "")
            return replace(setting, is_own=is_own)
        # A missing folder does not matter if ``sync --wheels`` has the files.
        if path and (exists(path) or not is_inside):
            file = folder / setting.file
            check_outside(path, file if exists(file) else folder, setting.place)
    return setting


def _add_setting(
    sources: Sources, setting: SourceSetting, *, overrides: bool
) -> Sources:
    """Add a setting that was already checked, and store its login.

    Args:
        sources: The sources.
        setting: The setting.
        overrides: Whether a default index replaces one that no option selects.
    """
    plain = remove_logins if setting.effect is Effect.EXTENSIONS else _plain_url
    address = plain(setting.value)
    default_index = sources.default_index
    given = any(one.is_option for one in sources.list_settings(Effect.INDEX))
    is_replaced = overrides and not given
    if setting.effect is Effect.INDEX and (is_replaced or not default_index):
        default_index = address
    credentials = sources.credentials
    if setting.effect.is_reported or setting.is_own:
        credentials = credentials.add(setting.value)
    settings = (*sources.settings, replace(setting, value=address))
    return replace(
        sources,
        settings=settings,
        default_index=default_index,
        credentials=credentials,
    )


def make_entry(setting: SourceSetting) -> Entry:
    """Convert a setting to an entry for the checks in ``gate``."""
    is_address = setting.key == BY_ADDRESS
    shown = shorten(redact(setting.value)) if is_address else setting.key
    origin = SourceOrigin.USER if setting.is_own else SourceOrigin.FOLDER
    return Entry(replace(setting.source, origin=origin), f"{setting.file}: {shown}")


def read_sources(
    torch_index: str | None,
    folder: Path,
    *,
    configured: str | None = None,
    sourcing: Sourcing = DEFAULT_SOURCING,
) -> Sources:
    """Read the package sources that apply in a folder.

    Args:
        torch_index: The user's torch index.
        folder: The working folder.
        configured: The project's torch index, used if the user has none.
        sourcing: The user's options for indexes.

    Raises:
        UsageError: A URL or a configuration file is malformed.
    """
    from gpuinstall.sources.configuration import (
        find_pip_files,
        read_local_variables,
        read_pip_files,
        read_pip_settings,
        read_policy,
        read_uv_configuration,
    )
    from gpuinstall.sources.requirements_file import expand_variables

    index = torch_index or configured
    read = list[Setting]()
    if configured and not torch_index:
        file = folder / "pyproject.toml"
        read.append(create_setting(Effect.TORCH_INDEX, "torch-index", configured, file))
    pip = read_pip_files(find_pip_files())
    settings = read_uv_configuration(folder, sourcing), read_pip_settings(pip, folder)
    for one in chain.from_iterable(settings):
        is_source = one.is_own and isinstance(one, SourceSetting)
        value = expand_variables(one.value) if is_source else one.value
        # A setting has the effect of its expanded URL, which may be PyTorch's.
        read.append(replace(one, value=value))
    certificates = [
        os.environ.get("SSL_CERT_FILE"),
        os.environ.get("REQUESTS_CA_BUNDLE"),
    ]
    certificates += [one.value for one in read if one.is_own and one.key == "cert"]
    sources = Sources(
        torch_index=validate_torch_index(index),
        is_torch_index_requested=bool(index),
        credentials=Credentials(
            parse_login(index or OFFICIAL),
            next(filter(None, certificates), None),
            read_local_variables(),
        ),
        policy=read_policy(folder),
        pip=pip,
    )
    return sources.add_settings(read, folder, is_configuration=True)


def validate_torch_index(requested: str | None) -> str:
    """Return the URL of the requested torch index, or of the official one.

    Raises:
        UsageError: The requested index is not a URL.
    """
    if not requested:
        return OFFICIAL
    is_url = re.match(r"(?!.*\$\{)https?://[^/]", requested)
    if not is_url or find_url_fault(requested):
        note = "the URL above <backend>/<package>/"
        hint = (
            make_change("--torch-index", "https://index.example/whl", note=note),
            "Set UV_FIND_LINKS instead if it is a folder of wheels",
        )
        raise UsageError(
            "torch-index", f"the torch index {requested!r} is not a URL", hint=hint
        )
    return remove_logins(requested.rstrip("/"))


def links_url(place: str) -> str:
    """Return the find-links URL for a lock, marked with a fragment."""
    address = place if is_url(place) else Path(place).as_uri()
    return address + _LINKS


def make_export_commands(addresses: Iterable[str], note: str = "") -> tuple[Hint, ...]:
    """Return the commands that configure indexes and find-links.

    Args:
        addresses: The URLs in a lock or in another tool's file.
        note: A note on the last command.
    """
    values: dict[str, str] = {}
    for written in addresses:
        address = written.removesuffix(_LINKS)
        is_index = address == written and is_url(address)
        # uv separates indexes by spaces, and find-links by commas.
        name, sign = ("UV_INDEX", " ") if is_index else ("UV_FIND_LINKS", ",")
        values[name] = f"{values[name]}{sign}{address}" if name in values else address
    return tuple(
        Advice("export", (f"{name}={text}",), note=note)
        for name, text in values.items()
    )


def _setting_error(
    setting: SourceSetting,
    instead: str = "",
    hint: tuple[Hint, ...] = (),
) -> UsageError:
    package = f" for {setting.package}" if setting.package else ""
    value = f" = {remove_logins(setting.value)}" if setting.value else ""
    return UsageError(
        "source-setting",
        f"{setting.place}: {setting.key}{package}{value} cannot be applied",
        why="this setting selects package sources or files; ignoring it could install different files",
        hint=hint or f"Instead, {instead}",
    )


def _plain_url(address: str) -> str:
    """Return a URL without its login and trailing slash."""
    plain = remove_logins(address)
    stripped = plain.rstrip("/")
    return stripped if "/" in stripped else plain
