"""Which packages are bound to the source of PyTorch's builds, and the wheels that each may come from.

If torch has a source of its own, none of the family is asked for at the default index, whoever requires it: what no
source lists has an empty page. Only what was requested by its name may come from the default index, if no source of
the family lists it.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.threads import side_by_side
from gpuinstall.catalog.listing import index_names, own_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from packaging.tags import Tag

    from gpuinstall.catalog import Catalog, Wheel
    from gpuinstall.sources.session import Session

STRANGERS = 64
"""How many names that the catalogue does not know are looked up on the torch index, which may have its own of them."""


class Binding(NamedTuple):
    """The names that are bound to the sources of some backends."""

    backends: frozenset[str]
    """Their tags; without one, everything comes from the default index."""

    names: frozenset[str]
    listed: frozenset[str]
    """The names that the torch index lists."""

    requested: frozenset[str]

    def pages(
        self,
        wheels_of: Callable[[str], tuple[Wheel, ...]],
        session: Session,
    ) -> dict[str, tuple[Wheel, ...]]:
        """Return the wheels that each name may come from, without the names that the default index may serve."""
        if not self.backends:
            return {}
        may_have_wheels = self.names
        if self.listed and not session.sources.find_links:
            may_have_wheels &= self.listed | self.requested
        tried = sorted(may_have_wheels | {"torch"})
        answers = side_by_side(wheels_of, tried)
        wheels = dict(zip(tried, answers, strict=True))
        from_default_index = self.requested - self.listed - {"torch"}
        pages: dict[str, tuple[Wheel, ...]] = {}
        for name in sorted(self.names):
            listed = wheels.get(name, ())
            if listed or name not in from_default_index:
                pages[name] = listed
        return pages


def bind(
    requirements: Iterable[str],
    backends: Iterable[str],
    catalog: Catalog,
    session: Session,
) -> Binding:
    """Bind the family, and whatever else the torch index has itself for these backends."""
    tags = frozenset(backends)
    names_of = partial(_names_of, catalog=catalog, session=session)
    listed = frozenset[str]()
    for names in side_by_side(names_of, sorted(tags)):
        listed |= names
    return Binding(
        backends=tags,
        names=catalog.family | listed,
        listed=listed,
        requested=requirement_names(requirements),
    )


def _names_of(
    backend: str,
    catalog: Catalog,
    session: Session,
) -> frozenset[str]:
    """Return the names of the family, and of packages of its own, that the torch index lists for a backend."""
    names = index_names(session.sources, session.client, backend)
    listed = names & catalog.family
    others = sorted(names - catalog.family)
    strangers = [name for name in others if not _is_copied(name, catalog)]
    if strangers:
        strangers = strangers[:STRANGERS]
        listed |= own_names(session.sources, session.client, backend, strangers)
    return listed


def _is_copied(name: str, catalog: Catalog) -> bool:
    """Whether the torch index has copies of the default index's files of a package."""
    patterns = catalog.copied
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def fitting(
    wheels: Sequence[Wheel],
    backend: str,
    tags: Sequence[Tag],
) -> tuple[Wheel, ...]:
    """Return of each version the wheel of ``backend`` that fits best; earlier sources come first."""
    position = {tag: number for number, tag in enumerate(tags)}
    best: dict[str, tuple[int, Wheel]] = {}
    for wheel in wheels:
        if wheel.backend not in {backend, None}:
            continue
        ranks = [position[tag] for tag in wheel.tags if tag in position]
        if not ranks:
            continue
        version = str(wheel.version)
        first = min(ranks)
        rank, _ = best.get(version, (len(tags), wheel))
        if first < rank:
            best[version] = (first, wheel)
    return tuple(wheel for _, wheel in best.values())
