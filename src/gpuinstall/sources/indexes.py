"""What pip's and uv's own configuration says about package indexes; all of it is pure."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class Indexes:
    """What one configuration says; ``certificates`` is the path of a CA bundle."""

    default: str | None = None
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    certificates: str | None = None


def merged(indexes: Iterable[Indexes]) -> Indexes:
    """Merge configurations, the strongest first: single values of the first that has one, all of the lists."""
    said = tuple(indexes)
    return Indexes(
        default=next((one.default for one in said if one.default), None),
        extra=tuple(dict.fromkeys(url for one in said for url in one.extra)),
        find_links=tuple(dict.fromkeys(link for one in said for link in one.find_links)),
        certificates=next((one.certificates for one in said if one.certificates), None),
    )


def parse_pip_environment(environ: Mapping[str, str], folder: Path) -> Indexes:
    """Read pip's ``PIP_*`` variables."""
    names = (name for name in environ if name.startswith("PIP_"))
    return _of_pip({_option(name.removeprefix("PIP_")): environ[name] for name in names}, folder)


def parse_pip_file(text: str, folder: Path) -> Indexes:
    """Read a ``pip.conf``: its sections global, download and install; raise ValueError where it is malformed."""
    import configparser

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(str(error).replace("\n", " ")) from error
    options: dict[str, str] = {}
    for section in ("global", "download", "install"):
        if parser.has_section(section):
            options |= {_option(name): value for name, value in parser.items(section)}
    return _of_pip(options, folder)


def parse_uv_environment(environ: Mapping[str, str], folder: Path) -> Indexes:
    """Read uv's ``UV_*`` variables."""
    extra = f"{environ.get('UV_INDEX', '')} {environ.get('UV_EXTRA_INDEX_URL', '')}".split()
    links = (link.strip() for link in environ.get("UV_FIND_LINKS", "").split(","))
    return Indexes(
        default=_unnamed(environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or "") or None,
        extra=tuple(_unnamed(url) for url in extra),
        find_links=tuple(_located(link, folder) for link in links if link),
    )


def parse_uv_table(table: Mapping[str, Any], folder: Path) -> Indexes:
    """Read a ``uv.toml`` or ``[tool.uv]``, in which an explicit index is nobody's default and no extra.

    Raise KeyError, TypeError or AttributeError where it has another shape.
    """
    settings = {**table, **table.get("pip", {})}
    listed = [index for index in table.get("index", []) if not index.get("explicit")]
    defaults = [index["url"] for index in listed if index.get("default")]
    return Indexes(
        default=next(iter(defaults), settings.get("index-url")),
        extra=(*(index["url"] for index in listed if not index.get("default")), *_texts(settings, "extra-index-url")),
        find_links=tuple(_located(link, folder) for link in _texts(settings, "find-links")),
    )


def _of_pip(options: Mapping[str, str], folder: Path) -> Indexes:
    return Indexes(
        default=options.get("index-url") or None,
        extra=tuple(options.get("extra-index-url", "").split()),
        find_links=tuple(_located(link, folder) for link in options.get("find-links", "").split()),
        certificates=options.get("cert") or None,
    )


def _texts(settings: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = settings.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{key} is not a list of strings")
    return tuple(values)


def _option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _unnamed(index: str) -> str:
    name, equals, url = index.partition("=")
    return url if equals and "/" not in name else index


def _located(link: str, folder: Path) -> str:
    return link if "://" in link else os.path.normpath(folder / Path(link).expanduser())
