"""Ask uv: convert a question to a project, run uv, and parse its lock.

Three kinds of virtual packages express what METADATA cannot:

- ``gpuinstall-build`` has a version for each build of torch, the highest for the best
  build. Each version requires the torch of its build.
- ``gpuinstall-code`` has no version. A release that must not be selected requires this
  package.
- ``gpuinstall-pin-NAME`` has a version for the pin of NAME, lower ones for the nearest
  releases, and the lowest for any release.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.requirement import (
    Constraint,
    Requirement,
    parse_lenient_requirement,
)
from gpuinstall.base.values import Value
from gpuinstall.catalog import Build, Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.resolve.facts import Answer, Fact, Facts
from gpuinstall.lock.resolve.lane import Lane
from gpuinstall.lock.resolve.question import Question, is_library_of_torch
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.errors import BUILD_FAILED, find_failed_package
from gpuinstall.lock.uv.project import (
    Pages,
    ResolverProject,
    UnreadPackages,
    UvLock,
    create_metadata_row,
    create_placeholder_wheel,
    resolve_project,
)
from gpuinstall.sources.uv_settings import METADATA_ROWS

BUILD = "gpuinstall-build"
NOWHERE = "gpuinstall-code"
PIN = "gpuinstall-pin-"
PINNED = 100_000
"""The version of ``gpuinstall-pin-NAME`` that requires the pin."""

_BUILD = Requirement(BUILD)

VirtualPackages = dict[str, dict[int, list[str]]]
"""The requirements of each version of each virtual package."""


def ask(
    question: Question, known: Facts, lane: Lane, previous: Answer | None
) -> tuple[Answer | Conflict | Facts, Facts]:
    """Ask uv once for versions that satisfy a question and the known facts.

    Args:
        question: The question of the lane, maybe with lower bounds.
        known: The facts found so far.
        lane: The pages of the sources.
        previous: The previous answer. Labels of builds that are incompatible with it
            are not preferred.

    Returns:
        The answer or the conflict, and the known facts with the dependencies that uv
        logged. If uv failed to build a release that it may have selected only because
        of known facts or of one build of torch, new facts replace the answer.

    Raises:
        InstallationError: uv failed for a reason other than the request.
    """
    while True:
        project = _Project(question, known, lane, previous).create()
        try:
            lock, log = resolve_project(project, lane.session)
        except InstallationError as error:
            return _explain_failed_build(error, question, known, lane), known
        known |= Facts(log=log)
        if isinstance(lock, Conflict):
            return lock, known
        if not isinstance(lock, UnreadPackages):
            return _parse_answer(lock, lane), known
        lane.pages.read(lock.names)


def _explain_failed_build(
    error: InstallationError, question: Question, known: Facts, lane: Lane
) -> Conflict | Facts:
    """Return the fact that a release cannot be built, or the conflict.

    Raises:
        InstallationError: No fact or build led to this release, or nothing was built.
    """
    is_steered = not known.is_empty or bool(question.bounds)
    if error.code != BUILD_FAILED or not (is_steered or len(lane.builds) > 1):
        raise error
    package = find_failed_package(error)
    if package in {"", *known.unbuildable}:
        return Conflict(error)
    return Facts(unbuildable={package: error})


def collect_pages(known: Facts, lane: Lane, chosen: Build | None = None) -> Pages:
    """Return the files of packages that are not from the default index.

    Args:
        known: The facts found so far, with the files of some extensions.
        lane: The pages of the sources.
        chosen: The selected build, whose source has priority; None: any build.
    """
    pages = lane.pages
    family = pages.read_pages_for_build(chosen) if chosen else pages.read_pages()
    return {**pages.pages_of_sources(), **family, **lane.question.files, **known.files}


def _parse_answer(lock: UvLock, lane: Lane) -> Answer:
    """Return uv's answer without the virtual packages."""
    packages = []
    dropped = set()
    torch = ""
    for package in lock.packages:
        name = package.name
        if name == BUILD:
            torch = _rank_torch_versions(lane)[int(str(package.version))]
        elif name.startswith(PIN):
            if str(package.version) != str(PINNED):
                dropped.add(name.removeprefix(PIN))
        else:
            packages.append(package)
    build = lane.builds[torch]
    return Answer(packages, lock.missing_extras, build, torch, frozenset(dropped))


def _rank_torch_versions(lane: Lane) -> list[str]:
    """Return the torch versions of gpuinstall-build 0, 1, and so on.

    uv tries the best build first.
    """
    builds = [*lane.builds]
    return builds if lane.session.sources.uv.prefers_lowest else builds[::-1]


class _Project(Value):
    """A question and the known facts, as a project for uv."""

    question: Question
    known: Facts
    lane: Lane
    previous: Answer | None

    def create(self) -> ResolverProject:
        question, known, lane = self.question, self.known, self.lane
        virtual = self._list_virtual_packages()
        placeholders = {
            name: tuple(create_placeholder_wheel(name, one) for one in versions)
            for name, versions in virtual.items()
        }
        return ResolverProject(
            requirements=self._order_requirements(),
            python=question.python,
            release=question.markers["python_full_version"],
            target=question.target,
            pages={**collect_pages(known, lane), **placeholders},
            constraints=tuple(self._list_constraints()),
            preferred=self._find_preferred_versions(),
            metadata=(
                *question.metadata,
                *self._create_metadata_rows(virtual),
            ),
            folder=lane.session.folder,
            wheels_only=self._find_unbuilt_packages().union(placeholders),
            sources=lane.session.sources,
            unread=lane.pages.find_unread_packages() - known.files.keys(),
        )

    def _find_unbuilt_packages(self) -> frozenset[str]:
        """Return the packages that are never built."""
        uv, pages = self.lane.session.sources.uv, self.lane.pages
        by_request = uv.only_binary - {":all:"}
        if by_request < uv.only_binary:
            # For uv, no-binary would take precedence.
            by_request |= uv.no_binary
        # A release that does not run must not be replaced by a source build, whose
        # code was not inspected.
        inspected = {
            fact.package
            for fact in self.known.facts.values()
            if fact.wheel and (fact.excludes or fact.requires)
        }
        return pages.names().union(
            pages.find_unread_packages(),
            load_extensions().empty_pages,
            self.question.files,
            self.question.wheels_only,
            by_request,
            self.known.unbuildable,
            inspected,
        )

    def _order_requirements(self) -> tuple[Requirement, ...]:
        """Return the requirements in the order in which uv decides them."""
        pins = {
            pin.text: Requirement.of(f"{PIN}{pin.name}")
            for pin in self.question.optional_pins
        }
        requirements = [pins.get(one.text, one) for one in self.question.requirements]
        # Convert pinned constraints to requirements.
        requirements += [pin for pin in pins.values() if pin not in requirements]
        requirements += self.known.requirements
        if self.lane.session.sources.uv.prefers_lowest:
            # uv selects the lowest versions of other packages, but the best torch build.
            return (_BUILD, *requirements)
        requirements.append(_BUILD)
        # The libraries of torch are last, because torch pins them.
        requirements.sort(key=lambda one: is_library_of_torch(one.name))
        names = {BUILD, *self.lane.pages.names()}
        place = [one.name in names for one in requirements].index(True)
        requirements[place:place] = map(Requirement.of, self.known.decided_first)
        return tuple(requirements)

    def _list_constraints(self) -> Iterator[Constraint]:
        question = self.question
        optional = {pin.text for pin in question.optional_pins}
        for constraint in question.constraints:
            if constraint.text not in optional:
                yield constraint
        if "torch" not in self.lane.pages.read_pages():
            # The default index also lists versions that do not run.
            torches = question.torches
            others = {build.torch for build in question.catalog.builds} - torches
            excluded = [f"!={torch}" for torch in sorted(others)]
            limits = [f">={min(torches)}", f"<={max(torches)}", *excluded]
            yield Constraint.of("torch", ",".join(limits))

    def _find_preferred_versions(self) -> dict[str, list[str]]:
        """Return the versions to keep, and the best labels of other releases.

        uv would replace the label of a build that a fact about the previous answer
        rejects with the highest label.
        """
        kept = self.question.preferences
        preferred = {name: [version] for name, version in kept.items()}
        versions = self.previous.versions if self.previous else {}
        running = {
            version: build
            for version, build in self.lane.builds.items()
            if not self.known.rejects(versions, version)
        }
        selected = self.previous.torch.partition("+")[2] if self.previous else ""
        labels = self.lane.pages.find_preferred_labels(running, selected)
        # A label from another machine's lock cannot be kept.
        preferred |= {
            name: versions
            for name, versions in labels.items()
            if kept.get(name) not in versions
        }
        ranked = _rank_torch_versions(self.lane)
        torch = kept.get("torch", "")
        if torch in ranked and preferred["torch"] == [torch]:
            preferred[BUILD] = [str(ranked.index(torch))]
        return preferred

    def _list_virtual_packages(self) -> VirtualPackages:
        builds: dict[int, list[str]] = {}
        for number, version in enumerate(_rank_torch_versions(self.lane)):
            torch = self.lane.builds[version].torch
            further = [
                one.text
                for release, one in self.known.torch_constraints
                if release == torch
            ]
            builds[number] = [f"torch==={version}", *further]
        return {NOWHERE: {}, BUILD: builds, **self._list_optional_pins()}

    def _list_optional_pins(self) -> VirtualPackages:
        optional = defaultdict[str, list[Requirement]](list)
        for pin in self.question.optional_pins:
            optional[pin.name].append(pin)
        return {
            f"{PIN}{name}": self._list_pins(pins) for name, pins in optional.items()
        }

    def _list_pins(self, pins: Sequence[Requirement]) -> dict[int, list[str]]:
        """Return a package's pins, its nearest releases, and any release."""
        first = pins[0]
        # uv uses the first row of a version, so the row has all pins of the package.
        choices = [[one.text for one in pins]]
        # Facts may exclude many releases, which are searched in increasing steps.
        if not self.known.find_excluded_versions(first.name):
            from gpuinstall.plan.relax import find_mentioned_minors, sort_by_distance

            wheels = self.lane.find_wheels(first.name)
            minors = find_mentioned_minors(pins)
            nearest = sort_by_distance({wheel.version for wheel in wheels}, minors)
            # The latest patch release of each minor release is first.
            patches = {version.release[:2]: version for version in reversed(nearest)}
            chosen = [one for one in nearest if one in patches.values()]
            choices += [[first.with_specifier(f"=={one}").text] for one in chosen]
        choices.append([first.with_specifier("").text])
        return {PINNED - place: texts for place, texts in enumerate(choices)}

    def _create_metadata_rows(
        self, virtual: VirtualPackages
    ) -> Iterator[dict[str, Any]]:
        """Yield METADATA of virtual packages, and of locked or known ones."""
        question, known = self.question, self.known
        ranked = _rank_torch_versions(self.lane)
        for name, versions in virtual.items():
            for number, texts in versions.items():
                yield create_metadata_row(name, str(number), texts)
        for fact in known.facts.values():
            if fact.excludes:
                yield create_metadata_row(fact.package, fact.version, [NOWHERE])
            elif fact.wheel:
                rejected = [
                    f"!={number}"
                    for number, version in enumerate(ranked)
                    if fact.rejects(version)
                ]
                added = [*fact.requires, f"{BUILD}{','.join(rejected)}"]
                yield from self._extend_metadata(fact, fact.wheel, added)
        pages = self.lane.pages.read_pages()
        for name, locked in question.preferences.items():
            if name not in question.catalog.family or (name, locked) in known.facts:
                continue
            for wheel in pages.get(name, ()):
                # uv does not cache METADATA of private pages.
                if wheel.sha256 and str(wheel.version) == locked:
                    yield from self._extend_metadata(Fact(name, locked), wheel, [])

    def _extend_metadata(
        self, fact: Fact, wheel: Wheel, added: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield the METADATA of a release with added requirements.

        The user's own ``dependency-metadata`` replaces METADATA. If METADATA is
        unreadable, uv's log has the dependencies of a release that uv tried.
        """
        own = self.lane.session.sources.uv.resolver_keys.get(METADATA_ROWS, ())
        for row in own:
            if row["name"] == fact.package and row.get("version") == fact.version:
                yield {**row, "requires-dist": [*row.get("requires-dist", ()), *added]}
                return
        try:
            metadata = self.lane.reader.metadata(wheel)
        except InstallationError:
            if added:
                tried = self.known.log.find_dependencies(fact.package, fact.version)
                requires = (*map(str, tried), *added)
                yield create_metadata_row(fact.package, fact.version, requires)
            return
        texts = map(str, metadata.get_all("Requires-Dist", ()))
        declared = filter(None, map(parse_lenient_requirement, texts))
        row = create_metadata_row(fact.package, fact.version, [*declared, *added])
        row["provides-extra"] = list(map(str, metadata.get_all("Provides-Extra", ())))
        python = metadata.get("Requires-Python")
        yield {**row, "requires-python": str(python)} if python else row
