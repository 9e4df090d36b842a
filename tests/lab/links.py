"""Links and anchors of Markdown (on a plain Git host) and HTML pages."""

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
    """The links and anchors of a page."""

    links: list[str]
    """Link targets, in order."""
    anchors: set[str]
    """Anchors of the page."""


def find_broken_links(
    pages: Iterable[Path], read: Callable[[str], Page]
) -> list[tuple[str, str]]:
    """Return each broken link, with the name of its page.

    Args:
        pages: The files to check; only their anchors are known.
        read: Reads a page's text, such as ``markdown`` and ``html``.
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
    """Return the links and GitHub heading anchors of a Markdown text."""
    prose = _FENCE.sub("", text)
    anchors = set()
    occurrences = Counter[str]()
    for heading in _HEADING.findall(prose):
        title = _TARGET.sub("", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        # GitHub appends "-1" to the second heading of a name.
        number = occurrences[slug]
        anchors.add(f"{slug}-{number}" if number else slug)
        occurrences[slug] += 1
    return Page(_LINK.findall(_CODE.sub("", prose)), anchors)


def html(text: str) -> Page:
    """Return the links and anchors of an HTML text."""
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
