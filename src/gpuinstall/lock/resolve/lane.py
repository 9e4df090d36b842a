"""A lane: one lock file to write, with its pages and wheels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpuinstall.base.requirement import Requirement, requirement_names
from gpuinstall.base.values import replace
from gpuinstall.catalog.listing import find_family_links
from gpuinstall.lock.request.project import RemoteArchives, find_nested_requirements
from gpuinstall.lock.resolve.pages import TorchPages
from gpuinstall.lock.resolve.question import Question
from gpuinstall.lock.resolve.releases import Releases
from gpuinstall.lock.uv.fetch import read_remote_archive
from gpuinstall.lock.uv.resolution import check_required_urls
from gpuinstall.sources.session import Session
from gpuinstall.sources.sources import check_reported
from gpuinstall.wheels.inspector import Inspector
from gpuinstall.wheels.learned.reader import make_reader

if TYPE_CHECKING:
    from gpuinstall.catalog import Wheel
    from gpuinstall.wheels.compatibility import Compatibility


class Lane:
    """A question for one target. Each of its pages and wheels is read once."""

    def __init__(self, question: Question, session: Session) -> None:
        addresses = session.sources.addresses.filter_by_markers(question.markers)
        sources = replace(session.sources, addresses=addresses)
        links = find_family_links(sources, session.client, question.catalog.family)
        addresses = replace(addresses, family_links=links)
        self.question = question
        self.session = replace(session, sources=replace(sources, addresses=addresses))
        self.pages = TorchPages(question, self.session)
        self.reader = make_reader(self.session)
        self.releases = Releases(self.pages, self.session, self.reader)
        self.builds = self.pages.builds()
        """The builds by their torch version for uv, best first."""
        self.inspector = Inspector(self.builds, question.gpus, question.markers)
        self.inspected: dict[Wheel, Compatibility] = {}

    def find_nested_requirements(self) -> tuple[Requirement, ...]:
        """Return the paths that requested projects require, and check URLs.

        uv expands variables in METADATA, so METADATA of all URLs is checked.

        Raises:
            UsageError: An index would serve a package for which a setting has a URL.
        """
        one, sources = self.question, self.session.sources
        read = partial(read_remote_archive, session=self.session)
        find = partial(
            find_nested_requirements,
            folder=self.session.folder,
            no_sources=sources.uv.no_sources,
            remote=RemoteArchives(read, one.markers),
        )
        requested = [*filter(one.is_applicable, one.requirements)]
        limits = [*filter(one.is_applicable, (*one.constraints, *sources.uv.overrides))]
        for requirement in (*requested, *limits):
            check_reported(sources.addresses, requirement)
        # Limits add no requirements.
        _ = [*find(limits)]
        nested = tuple(dict.fromkeys(find(requested)))
        by_name = {one.name for one in requested if not one.url}
        by_name -= requirement_names(nested)
        check_required_urls(dict.fromkeys(by_name, ()), sources.addresses)
        return nested

    def find_allowed_builds(self, wheel: Wheel) -> frozenset[str]:
        """Return the builds of torch that the METADATA of a wheel allows."""
        requirements = self.releases.read_metadata_requirements(wheel)
        return self.inspector.allowed_builds(requirements)
