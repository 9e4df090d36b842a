"""Which packages are bound to the sources of PyTorch's family, and the wheels that they may come from.

Where torch has a source of its own, none of the family is asked for at the default index, whoever demands it: what no
source lists has an empty page. Only what somebody asked for by its name may come from the default index, where no
source of the family lists it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinstall.catalog.listing import index_names, own_names
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from packaging.tags import Tag

    from gpuinstall.catalog import Catalog, Wheel
    from gpuinstall.session import Session

STRANGERS = 64
"""How many names that nobody knows are looked up on the torch index to see whether they are its own."""


@dataclass(frozen=True)
class Binding:
    """The names that are bound to the sources of some backends; where there is no backend, to the default index.

    ``listed`` are those that the torch index lists, ``requested`` the names that somebody asked for.
    """

    backends: frozenset[str]
    names: frozenset[str]
    listed: frozenset[str]
    requested: frozenset[str]

    def pages(self, wheels_of: Callable[[str], tuple[Wheel, ...]], session: Session) -> dict[str, tuple[Wheel, ...]]:
        """The wheels that each may come from; what may come from the default index is not among them."""
        if not self.backends:
            return {}
        there = self.names if session.sources.find_links or not self.listed else self.listed | self.requested
        tried = sorted(there & self.names | {"torch"})
        pages = dict(zip(tried, side_by_side(wheels_of, tried), strict=True))
        unlisted = self.requested - self.listed - {"torch"}
        return {name: pages.get(name, ()) for name in sorted(self.names) if pages.get(name) or name not in unlisted}


def bind(requirements: Iterable[str], backends: Iterable[str], catalog: Catalog, session: Session) -> Binding:
    """Bind the family, and whatever else the torch index has itself for these backends."""
    requested, tags = {parse_requirement(text).name for text in requirements}, frozenset(backends)

    def is_copied(name: str) -> bool:
        return any(name == row or (row.endswith("*") and name.startswith(row[:-1])) for row in catalog.copied)

    def names_of(backend: str) -> frozenset[str]:
        named = index_names(session.sources, session.client, backend)
        strangers = [name for name in sorted(named - catalog.family) if not is_copied(name)][:STRANGERS]
        own = own_names(session.sources, session.client, backend, strangers) if strangers else frozenset[str]()
        return named & catalog.family | own

    listed = frozenset[str]().union(*side_by_side(names_of, sorted(tags)))
    return Binding(tags, catalog.family | listed, listed, frozenset(requested))


def fitting(wheels: Sequence[Wheel], backend: str, tags: Sequence[Tag]) -> tuple[Wheel, ...]:
    """Of each version the wheel of ``backend`` that fits best; earlier sources come first."""
    rank = {tag: position for position, tag in enumerate(tags)}
    best: dict[str, tuple[int, Wheel]] = {}
    for wheel in wheels:
        ranks = [rank[tag] for tag in wheel.tags if tag in rank]
        if not ranks or wheel.backend not in {backend, None}:
            continue
        key = str(wheel.version)
        if key not in best or min(ranks) < best[key][0]:
            best[key] = min(ranks), wheel
    return tuple(wheel for _, wheel in best.values())
