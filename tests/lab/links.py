"""The links of pages and what they may point to: of Markdown as a plain git host shows it, and of HTML."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

_FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TARGET = re.compile(r"\]\([^)]*\)")
_OTHER_SITE = re.compile(r"[a-z]+:|//")


class Page(NamedTuple):
    """What a page has of links."""

    links: list[str]
    """Where it points, in its order."""
    anchors: set[str]
    """What may be pointed to in it."""


def broken(pages: Iterable[Path], read: Callable[[str], Page]) -> list[tuple[str, str]]:
    """Return each link to nothing, with the name of its page.

    Args:
        pages: The files to look through; anchors are known in these alone.
        read: Reads a page's text, as ``markdown`` and ``html`` do.
    """
    known = {path: read(path.read_text("utf-8")) for path in pages}
    faults = []
    for path, page in known.items():
        dead = [link for link in page.links if not _leads_somewhere(link, path, known)]
        faults += [(path.name, link) for link in dead]
    return faults


def _leads_somewhere(link: str, path: Path, known: Mapping[Path, Page]) -> bool:
    if _OTHER_SITE.match(link):
        return True
    address, _, anchor = unquote(link).partition("#")
    file = address.partition("?")[0]
    target = (path.parent / file).resolve() if address else path
    if not target.exists():
        return False
    if not anchor or target not in known:
        return True
    return anchor in known[target].anchors


def markdown(text: str) -> Page:
    """Return the links of a Markdown text, and its headings' anchors as GitHub makes them."""
    prose = _FENCE.sub("", text)
    anchors = set()
    occurrences = Counter[str]()
    for heading in _HEADING.findall(prose):
        title = _TARGET.sub("", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        # The second heading of a name has "-1" at its end.
        number = occurrences[slug]
        anchors.add(f"{slug}-{number}" if number else slug)
        occurrences[slug] += 1
    return Page(_LINK.findall(_CODE.sub("", prose)), anchors)


def html(text: str) -> Page:
    """Return the links of an HTML text, and its anchors."""
    tags = _Tags()
    tags.feed(text)
    return tags.page


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.page = Page([], set())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]):  # noqa: ARG002
        for name, value in attrs:
            if not value:
                continue
            match name:
                case "href" | "src":
                    self.page.links.append(value)
                case "id" | "name":
                    self.page.anchors.add(value)
