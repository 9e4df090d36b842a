"""Which packages are bound to the source of PyTorch's builds, and the wheels that each may come from.

If torch has a source of its own, none of the family is asked for at the default index, whoever requires it: what no
source lists has an empty page. Only what was requested by its name may come from the default index, if no source of
the family lists it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.catalog.listing import index_names, own_names
from gpuinstall.plan.requirement import requirement_names
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from packaging.tags import Tag

    from gpuinstall.catalog import Catalog, Wheel
    from gpuinstall.session import Session

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
        self, wheels_of: Callable[[str], tuple[Wheel, ...]], session: Session
    ) -> dict[str, tuple[Wheel, ...]]:
        """Return the wheels that each name may come from, without the names that the default index may serve."""
        if not self.backends:
            return {}
        may_have_wheels = self.names
        if self.listed and not session.sources.find_links:
            may_have_wheels &= self.listed | self.requested
        tried = sorted(may_have_wheels | {"torch"})
        wheels = dict(zip(tried, side_by_side(wheels_of, tried), strict=True))
        from_default_index = self.requested - self.listed - {"torch"}
        pages: dict[str, tuple[Wheel, ...]] = {}
        for name in sorted(self.names):
            if wheels.get(name) or name not in from_default_index:
                pages[name] = wheels.get(name, ())
        return pages


def bind(
    requirements: Iterable[str], backends: Iterable[str], catalog: Catalog, session: Session
) -> Binding:
    """Bind the family, and whatever else the torch index has itself for these backends."""
    tags = frozenset(backends)
    listed = frozenset[str]()
    for names in side_by_side(lambda backend: _names_of(backend, catalog, session), sorted(tags)):
        listed |= names
    return Binding(
        backends=tags,
        names=catalog.family | listed,
        listed=listed,
        requested=requirement_names(requirements),
    )


def _names_of(backend: str, catalog: Catalog, session: Session) -> frozenset[str]:
    """Return the names of the family, and of packages of its own, that the torch index lists for a backend."""
    names = index_names(session.sources, session.client, backend)
    strangers = [name for name in sorted(names - catalog.family) if not _is_copied(name, catalog)][
        :STRANGERS
    ]
    own = (
        own_names(session.sources, session.client, backend, strangers) if strangers else frozenset()
    )
    return names & catalog.family | own


def _is_copied(name: str, catalog: Catalog) -> bool:
    """Whether the torch index has copies of the default index's files of a package."""
    return any(
        name == row or (row.endswith("*") and name.startswith(row[:-1])) for row in catalog.copied
    )


def fitting(wheels: Sequence[Wheel], backend: str, tags: Sequence[Tag]) -> tuple[Wheel, ...]:
    """Return of each version the wheel of ``backend`` that fits best; earlier sources come first."""
    rank = {tag: position for position, tag in enumerate(tags)}
    best: dict[str, tuple[int, Wheel]] = {}
    for wheel in wheels:
        ranks = [rank[tag] for tag in wheel.tags if tag in rank]
        if not ranks or wheel.backend not in {backend, None}:
            continue
        version = str(wheel.version)
        if version not in best or min(ranks) < best[version][0]:
            best[version] = (min(ranks), wheel)
    return tuple(wheel for _, wheel in best.values())
