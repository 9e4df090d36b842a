"""Run uv once: convert resolver input to a project, and parse uv's lock.

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
from gpuinstall.catalog import Build, Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.resolve.knowledge import Fact, Knowledge, UvResolution
from gpuinstall.lock.resolve.package_index import PackageIndex
from gpuinstall.lock.resolve.resolver_input import ResolverInput, is_library_of_torch
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

BUILD = "gpuinstall-build"
NOWHERE = "gpuinstall-code"
PIN = "gpuinstall-pin-"
PINNED = 100_000
"""The version of ``gpuinstall-pin-NAME`` that requires the pin."""

_BUILD = Requirement(BUILD)

VirtualPackages = dict[str, dict[int, list[str]]]
"""The requirements of each version of each virtual package."""


def resolve_once(
    resolver_input: ResolverInput,
    known: Knowledge,
    index: PackageIndex,
    previous: UvResolution | None,
) -> UvResolution | Conflict | Knowledge:
    """Run uv once on a resolver input.

    Args:
        resolver_input: The resolver input.
        known: The facts found so far.
        index: The pages of the sources.
        previous: The previous resolution. Labels of builds that are incompatible with
            it are not preferred.

    Returns:
        The resolution or the conflict. If uv failed to build a release that it may have
        selected only because of known facts or of one build of torch, the new facts.

    Raises:
        InstallationError: uv failed for a reason other than the request.
    """
    try:
        lock = _run_uv(resolver_input, known, index, previous)
    except InstallationError as error:
        is_steered = not known.is_empty or bool(resolver_input.bounds)
        if error.code != BUILD_FAILED or not (is_steered or len(index.builds()) > 1):
            raise
        package = find_failed_package(error)
        if package in {"", *known.unbuildable}:
            return Conflict(error)
        return Knowledge(unbuildable={package: error})
    if isinstance(lock, Conflict):
        return lock
    return _parse_resolution(lock, index)


def _run_uv(
    resolver_input: ResolverInput,
    known: Knowledge,
    index: PackageIndex,
    previous: UvResolution | None,
) -> UvLock | Conflict:
    """Run uv, and read the pages that its resolution needs."""
    while True:
        project = _create_project(resolver_input, known, index, previous)
        lock, log = resolve_project(project, index.session)
        index.log |= log
        if not isinstance(lock, UnreadPackages):
            return lock
        index.read(lock.names)


def collect_pages(
    resolver_input: ResolverInput,
    known: Knowledge,
    index: PackageIndex,
    chosen: Build | None = None,
) -> Pages:
    """Return the files of packages that are not from the default index.

    Args:
        resolver_input: The resolver input, with the files of requested extensions.
        known: The facts found so far, with the files of other extensions.
        index: The pages of the sources.
        chosen: The selected build, whose source has priority; None: any build.
    """
    family = index.read_pages_for_build(chosen) if chosen else index.read_pages()
    return {**index.pages_of_sources(), **family, **resolver_input.files, **known.files}


def _parse_resolution(lock: UvLock, index: PackageIndex) -> UvResolution:
    """Return uv's resolution without the virtual packages."""
    packages = []
    dropped = set()
    torch = ""
    for package in lock.packages:
        name = package.name
        if name == BUILD:
            torch = _rank_torch_versions(index)[int(str(package.version))]
        elif name.startswith(PIN):
            if str(package.version) != str(PINNED):
                dropped.add(name.removeprefix(PIN))
        else:
            packages.append(package)
    return UvResolution(
        packages,
        lock.missing_extras,
        index.builds()[torch],
        torch,
        frozenset(dropped),
    )


def _rank_torch_versions(index: PackageIndex) -> list[str]:
    """Return the torch versions of gpuinstall-build 0, 1, and so on.

    uv tries the best build first.
    """
    builds = list(index.builds())
    return builds if index.session.sources.uv.prefers_lowest else builds[::-1]


def _create_project(
    resolver_input: ResolverInput,
    known: Knowledge,
    index: PackageIndex,
    previous: UvResolution | None = None,
) -> ResolverProject:
    session = index.session
    virtual = _list_virtual_packages(resolver_input, known, index)
    # A release that does not run must not be replaced by a source build, whose
    # code was not inspected.
    inspected = {
        fact.package
        for fact in known.facts.values()
        if fact.wheel and (fact.excludes or fact.requires)
    }
    return ResolverProject(
        requirements=_order_requirements(resolver_input, known, index),
        python=resolver_input.python,
        release=resolver_input.markers["python_full_version"],
        target=resolver_input.target,
        pages={
            **collect_pages(resolver_input, known, index),
            **{
                name: tuple(create_placeholder_wheel(name, one) for one in versions)
                for name, versions in virtual.items()
            },
        },
        constraints=tuple(_list_constraints(resolver_input, index)),
        preferred=_find_preferred_versions(resolver_input, known, index, previous),
        metadata=(
            *resolver_input.alternative.metadata,
            *_create_metadata_rows(virtual, resolver_input, known, index),
        ),
        folder=session.folder,
        wheels_only=_find_unbuilt_packages(resolver_input, index)
        | known.unbuildable.keys()
        | inspected,
        sources=session.sources,
        unread=index.find_unread_packages()
        - resolver_input.files.keys()
        - known.files.keys(),
    )


def _find_unbuilt_packages(
    resolver_input: ResolverInput, index: PackageIndex
) -> frozenset[str]:
    """Return the packages that are never built."""
    extensions = load_extensions().empty_pages
    session = index.session
    uv = session.sources.uv
    by_request = uv.only_binary - {":all:"}
    if by_request < uv.only_binary:
        # For uv, no-binary would take precedence.
        by_request |= uv.no_binary
    return index.names().union(
        index.find_unread_packages(),
        extensions,
        resolver_input.files,
        resolver_input.alternative.wheels_only,
        by_request,
    )


def _order_requirements(
    resolver_input: ResolverInput, known: Knowledge, index: PackageIndex
) -> tuple[Requirement, ...]:
    """Return the requirements in the order in which uv decides them."""
    pins = {
        pin.text: Requirement.of(f"{PIN}{pin.name}")
        for pin in resolver_input.alternative.optional_pins
    }
    requirements = [pins.get(one.text, one) for one in resolver_input.requirements]
    # Convert pinned constraints to requirements.
    requirements += [pin for pin in pins.values() if pin not in requirements]
    requirements += known.requirements
    if index.session.sources.uv.prefers_lowest:
        # uv selects the lowest versions of other packages, but the best torch build.
        return (_BUILD, *requirements)
    requirements.append(_BUILD)
    # The libraries of torch are last, because torch pins them.
    requirements.sort(key=lambda one: is_library_of_torch(one.name))
    names = {BUILD, *index.names()}
    place = [one.name in names for one in requirements].index(True)
    requirements[place:place] = map(Requirement.of, known.decided_first)
    return tuple(requirements)


def _list_constraints(
    resolver_input: ResolverInput, index: PackageIndex
) -> Iterator[Constraint]:
    optional = {pin.text for pin in resolver_input.alternative.optional_pins}
    for constraint in resolver_input.constraints:
        if constraint.text not in optional:
            yield constraint
    if "torch" not in index.read_pages():
        # The default index also lists versions that do not run.
        torches = resolver_input.torches
        others = {build.torch for build in resolver_input.catalog.builds} - torches
        excluded = [f"!={torch}" for torch in sorted(others)]
        limits = [f">={min(torches)}", f"<={max(torches)}", *excluded]
        yield Constraint.of("torch", ",".join(limits))


def _find_preferred_versions(
    resolver_input: ResolverInput,
    known: Knowledge,
    index: PackageIndex,
    previous: UvResolution | None,
) -> dict[str, list[str]]:
    """Return the versions to keep, and the best labels of other releases.

    uv would replace the label of a build that a fact about the previous resolution
    rejects with the highest label.
    """
    kept = resolver_input.alternative.preferences
    preferred = {name: [version] for name, version in kept.items()}
    versions = previous.versions if previous else {}
    running = {
        version: build
        for version, build in index.builds().items()
        if not known.rejects(versions, version)
    }
    selected = previous.torch.partition("+")[2] if previous else ""
    labels = index.find_preferred_labels(running, selected)
    # A label from another machine's lock cannot be kept.
    preferred |= {
        name: versions
        for name, versions in labels.items()
        if kept.get(name) not in versions
    }
    ranked = _rank_torch_versions(index)
    torch = kept.get("torch", "")
    if torch in ranked and preferred["torch"] == [torch]:
        preferred[BUILD] = [str(ranked.index(torch))]
    return preferred


def _list_virtual_packages(
    resolver_input: ResolverInput, known: Knowledge, index: PackageIndex
) -> VirtualPackages:
    virtual: VirtualPackages = {NOWHERE: {}, BUILD: {}}
    for number, version in enumerate(_rank_torch_versions(index)):
        torch = index.builds()[version].torch
        further = [
            one.text for release, one in known.torch_constraints if release == torch
        ]
        virtual[BUILD][number] = [f"torch==={version}", *further]
    return virtual | _list_optional_pins(resolver_input, known, index)


def _list_optional_pins(
    resolver_input: ResolverInput, known: Knowledge, index: PackageIndex
) -> VirtualPackages:
    optional = defaultdict[str, list[Requirement]](list)
    for pin in resolver_input.alternative.optional_pins:
        optional[pin.name].append(pin)
    excluded = {fact.package for fact in known.facts.values() if fact.excludes}
    virtual: VirtualPackages = {}
    for name, pins in optional.items():
        first = pins[0]
        # uv uses the first row of a version, so the row has all pins of the package.
        choices = [[one.text for one in pins]]
        # Facts may exclude many releases, which are searched in increasing steps.
        if name not in excluded:
            from gpuinstall.plan.relax import find_mentioned_minors, sort_by_distance

            nearest = sort_by_distance(
                {wheel.version for wheel in index.find_wheels(name)},
                find_mentioned_minors(pins),
            )
            # The latest patch release of each minor release is first.
            patches = {version.release[:2]: version for version in reversed(nearest)}
            chosen = [one for one in nearest if one in patches.values()]
            choices += [[first.with_specifier(f"=={one}").text] for one in chosen]
        choices.append([first.with_specifier("").text])
        virtual[f"{PIN}{name}"] = {
            PINNED - place: texts for place, texts in enumerate(choices)
        }
    return virtual


def _create_metadata_rows(
    virtual: VirtualPackages,
    resolver_input: ResolverInput,
    known: Knowledge,
    index: PackageIndex,
) -> Iterator[dict[str, Any]]:
    """Yield METADATA of virtual packages, and of locked or known releases."""
    ranked = _rank_torch_versions(index)
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
            yield from _extend_metadata(fact, fact.wheel, added, index)
    pages = index.read_pages()
    for name, locked in resolver_input.alternative.preferences.items():
        if name not in resolver_input.catalog.family or (name, locked) in known.facts:
            continue
        for wheel in pages.get(name, ()):
            # uv does not cache METADATA of private pages.
            if wheel.sha256 and str(wheel.version) == locked:
                yield from _extend_metadata(Fact(name, locked), wheel, [], index)


def _extend_metadata(
    fact: Fact, wheel: Wheel, added: Sequence[str], index: PackageIndex
) -> Iterator[dict[str, Any]]:
    """Yield the METADATA of a release with added requirements.

    The user's own ``dependency-metadata`` replaces METADATA. If METADATA is unreadable,
    uv's log has the dependencies of a release that uv tried.
    """
    for row in index.session.sources.uv.metadata:
        if row["name"] == fact.package and row.get("version") == fact.version:
            yield {**row, "requires-dist": [*row.get("requires-dist", ()), *added]}
            return
    try:
        metadata = index.reader.metadata(wheel)
    except InstallationError:
        if added:
            tried = index.log.find_dependencies(fact.package, fact.version)
            requires = (*map(str, tried), *added)
            yield create_metadata_row(fact.package, fact.version, requires)
        return
    texts = map(str, metadata.get_all("Requires-Dist", ()))
    declared = filter(None, map(parse_lenient_requirement, texts))
    row = create_metadata_row(fact.package, fact.version, [*declared, *added])
    row["provides-extra"] = list(map(str, metadata.get_all("Provides-Extra", ())))
    python = metadata.get("Requires-Python")
    yield {**row, "requires-python": str(python)} if python else row
