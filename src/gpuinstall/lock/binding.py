"""PyTorch's packages, each bound to its source before anything is resolved.

Where torch has a source of its own, none of them is asked for at the default index, whoever demands it: what no source
lists has an empty page. Only what somebody asked for by its name may come from the default index, where no source of
the family lists it, and as a wheel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gpuinstall.backend import CPU
from gpuinstall.catalog.listing import index_names, own_names
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.pages import Wheel
    from gpuinstall.session import Session

STRANGERS = 64
"""How many names that nobody knows are looked up on the torch index to see whether they are its own."""


@dataclass(frozen=True)
class Binding:
    """The names that are bound to the sources of some backends; where there is no backend, to the default index.

    ``listed`` are those that the torch index lists, ``asked`` the names that somebody asked for.
    """

    backends: frozenset[str]
    names: frozenset[str]
    listed: frozenset[str]
    asked: frozenset[str]

    def pages(self, wheels_of: Callable[[str], tuple[Wheel, ...]], session: Session) -> dict[str, tuple[Wheel, ...]]:
        """The wheels that each may come from; what may come from the default index is not among them."""
        if not self.backends:
            return {}
        there = self.names if session.sources.find_links or not self.listed else self.listed | self.asked
        tried = sorted(there & self.names | {"torch"})
        found = dict(zip(tried, side_by_side(wheels_of, tried), strict=True))
        open_ = self.asked - self.listed - {"torch"}
        return {name: found.get(name, ()) for name in sorted(self.names) if found.get(name) or name not in open_}


def bind(requirements: Iterable[str], backends: Iterable[str], catalog: Catalog, session: Session) -> Binding:
    """Bind the family, and whatever else the torch index has itself for these backends."""
    asked, tags = {parse_requirement(text).name for text in requirements}, frozenset(backends)
    look = partial(_listed, catalog=catalog, session=session)
    listed = frozenset[str]().union(*side_by_side(look, sorted(tags)))
    return Binding(tags, catalog.family | listed, listed, frozenset(asked))


def first_names(requirements: Iterable[str], backend: str, family: Collection[str]) -> list[str]:
    """The members of the family that a resolution meets: those asked for, and what torch demands on Linux."""
    asked = {parse_requirement(text).name for text in requirements} | ({"triton"} if backend != CPU.tag else set())
    return sorted(asked & set(family))


def _listed(backend: str, catalog: Catalog, session: Session) -> frozenset[str]:
    """What the torch index lists for a backend of the family, and what else it has itself."""
    named = index_names(session.sources, session.client, backend)
    strangers = [name for name in sorted(named - catalog.family) if not _is_copied(name, catalog)][:STRANGERS]
    own = own_names(session.sources, session.client, backend, strangers) if strangers else frozenset[str]()
    return named & catalog.family | own


def _is_copied(name: str, catalog: Catalog) -> bool:
    return any(name == known or (known.endswith("*") and name.startswith(known[:-1])) for known in catalog.copied)
