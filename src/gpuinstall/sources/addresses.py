"""Indexes, find-links, and direct references: who serves a package."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from gpuinstall.base.advice import Advice, Hint
from gpuinstall.base.location import (
    LINKS_FRAGMENT,
    Location,
    SourceKind,
    links_url,
)
from gpuinstall.base.requirement import is_url
from gpuinstall.base.values import Value, replace
from gpuinstall.sources.provenance import Effect, SourceSetting

OFFICIAL = "https://download.pytorch.org/whl"


class Addresses(Value):
    """Sources of packages, without logins.

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

    mirror: str = ""
    """The mirror of Astral's index of extensions, if any."""

    settings: tuple[SourceSetting, ...] = ()
    """The user's sources, highest precedence first, then the folder's."""

    family_links: frozenset[str] = frozenset()
    """The find-links with torch-family packages, which uv must not merge."""

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
    def own_indexes(self) -> dict[str, SourceSetting]:
        """Extra indexes and find-links that only the user configured.

        The keys are URLs as recorded in a lock.
        """
        effects = Effect.EXTRA_INDEX, Effect.FIND_LINKS, Effect.NAME
        indexes = self.list_settings(*effects)
        of_folder = {index.value for index in indexes if not index.is_own}
        return {
            links_url(one.value) if one.effect is Effect.FIND_LINKS else one.value: one
            for one in indexes
            if one.value not in of_folder
        }

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
    def places(self) -> tuple[str, ...]:
        """The URLs and paths of all configured indexes and find-links."""
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
            place = (
                source.kind is SourceKind.REPOSITORY,
                source.location,
                source.reference,
                source.subdirectory,
            )
            if setting.is_own:
                own.add(place)
            else:
                chosen.setdefault((effect, place), setting)
        return tuple(
            setting for (_, place), setting in chosen.items() if place not in own
        )

    def find_place(self, host: str) -> str:
        """Return the file and line, variable, or option of a host, or ""."""
        for setting in self.settings:
            if urlsplit(setting.value).netloc == host:
                return setting.place
        if self.is_torch_index_requested and urlsplit(self.torch_index).netloc == host:
            is_variable = os.environ.get("GPUINSTALL_TORCH_INDEX")
            return "GPUINSTALL_TORCH_INDEX" if is_variable else "--torch-index"
        return ""

    @cached_property
    def index_locations(self) -> frozenset[Location]:
        """The locations of all configured indexes and find-links."""
        return frozenset(map(Location.parse, self.places))

    def has_files_at(self, location: Location) -> bool:
        """Return whether a path is in a local index or find-links folder."""
        return location.is_local and any(map(location.is_from, self.index_locations))

    def find_own_links(self, file: Location) -> list[str]:
        """Return the user's find-links that may list a file of torch's family.

        An extra index never serves the family.

        Args:
            file: The location of the file.

        Returns:
            Keys of ``own_indexes``. Empty for a file of the torch index.
        """
        if file.is_below(Location.parse(self.torch_index)):
            return []
        return [
            address
            for address, one in self.own_indexes.items()
            if address != one.value and file.is_from(one.source.location)
        ]

    @property
    def has_further_indexes(self) -> bool:
        """Whether packages other than PyTorch's have additional sources."""
        return any((self.package_indexes, self.extra_indexes, self.find_links))

    def find_indexes(self, package: str) -> tuple[str, ...]:
        """Return the indexes of a package, highest precedence first."""
        if package in self.package_indexes:
            return (self.package_indexes[package],)
        return (*self.extra_indexes, *filter(None, [self.default_index]))

    @property
    def uv_rows(self) -> dict[str, Any]:
        """uv's settings for all sources except the default index."""
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
        return {"index": indexes, "find-links": merged}

    def find_options(self, index: str) -> Mapping[str, Any]:
        """Return further keys of uv's entry for an index."""
        found = (one.options for one in self.settings if one.value == index)
        return next(filter(None, found), {})

    def filter_by_markers(self, values: Mapping[str, str]) -> Addresses:
        """Return the addresses whose markers apply in an environment."""
        settings = tuple(one for one in self.settings if one.applies_in(values))
        return replace(self, settings=settings)

    def add(self, setting: SourceSetting, *, overrides: bool) -> Addresses:
        """Add a setting that was already checked.

        Args:
            setting: The setting.
            overrides: Whether a default index replaces one that no option selects.
        """
        default_index = self.default_index
        given = any(one.is_option for one in self.list_settings(Effect.INDEX))
        is_replaced = overrides and not given
        if setting.effect is Effect.INDEX and (is_replaced or not default_index):
            default_index = setting.value
        settings = (*self.settings, replace(setting, login=""))
        return replace(self, settings=settings, default_index=default_index)


def make_export_commands(addresses: Iterable[str], note: str = "") -> tuple[Hint, ...]:
    """Return the commands that configure indexes and find-links.

    Args:
        addresses: The URLs in a lock or in another tool's file.
        note: A note on the last command.
    """
    values: dict[str, str] = {}
    for written in addresses:
        address = written.removesuffix(LINKS_FRAGMENT)
        is_index = address == written and is_url(address)
        # uv separates indexes by spaces, and find-links by commas.
        name, sign = ("UV_INDEX", " ") if is_index else ("UV_FIND_LINKS", ",")
        values[name] = f"{values[name]}{sign}{address}" if name in values else address
    return tuple(
        Advice("export", (f"{name}={text}",), note=note)
        for name, text in values.items()
    )
