"""The links of pages and what they may point to: of Markdown as a plain git host shows it, and of HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def broken(
    pages: Iterable[Path], read: Callable[[str], tuple[list[str], set[str]]]
) -> list[tuple[str, str]]:
    """Name each link to nothing, with its page; ``read`` finds the links and the anchors of a page's text."""
    texts = {page: read(page.read_text(encoding="utf-8")) for page in pages}
    return [
        (page.name, link)
        for page, (links, _) in texts.items()
        for link in links
        if not _there(page, link, texts)
    ]


def _there(page: Path, link: str, texts: dict[Path, tuple[list[str], set[str]]]) -> bool:
    if re.match(r"[a-z]+:|//", link):
        return True
    name, _, anchor = unquote(link).partition("#")
    place = (page.parent / name.partition("?")[0]).resolve() if name else page
    return place.exists() and (not anchor or place not in texts or anchor in texts[place][1])


def markdown(text: str) -> tuple[list[str], set[str]]:
    """Find the links of a Markdown text, and its headings' anchors as GitHub makes them."""
    prose = _FENCE.sub("", text)
    anchors: dict[str, int] = {}
    for heading in _HEADING.findall(prose):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(
            " ", "-"
        )
        anchors[slug] = anchors.get(slug, -1) + 1
    numbered = {
        f"{slug}-{number}" if number else slug
        for slug, most in anchors.items()
        for number in range(most + 1)
    }
    return _LINK.findall(_CODE.sub("", prose)), numbered


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        said = {name: value for name, value in attrs if value}
        self.links += [said[name] for name in ("href", "src") if name in said]
        self.ids |= {said[name] for name in ("id", "name") if name in said}


def html(text: str) -> tuple[list[str], set[str]]:
    """Find the links of an HTML text, and its anchors."""
    tags = _Tags()
    tags.feed(text)
    return tags.links, tags.ids
