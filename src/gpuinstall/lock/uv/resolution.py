"""Check the files and sources of a resolution before any download."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any

from packaging.pylock import Package, PackageWheel

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.finding import Reason
from gpuinstall.base.location import links_url, parse_source
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.requirement import COMMAND_LINE, Requirement
from gpuinstall.base.text import redact, shorten
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import Wheel
from gpuinstall.catalog.listing import read_listing
from gpuinstall.lock.file.lock import (
    LockedFile,
    Packages,
    find_file_url,
    list_locked_files,
    list_versions,
    placeholder_hash,
)
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.request.lock_sources import find_unknown_hosts
from gpuinstall.lock.uv.fetch import Hashes, fetch_missing, find_known_hashes
from gpuinstall.lock.uv.project import Pages
from gpuinstall.plan import Plan
from gpuinstall.plan.values import INSTALL_REASONS, NEWEST_BUT, Choice
from gpuinstall.sources import Sources
from gpuinstall.sources.addresses import Addresses
from gpuinstall.sources.gate import Entry
from gpuinstall.sources.provenance import Effect
from gpuinstall.sources.web import Client, find_index

_URL_HASH = r"[#&]sha256=([0-9a-f]{64})\b"


class Resolution(Value):
    """The resolution of a lock request, including the plan."""

    request: LockRequest
    plan: Plan
    target: Target
    packages: Packages
    """The packages of uv's lock."""

    hashes: Hashes
    prebuilt: Mapping[str, tuple[Wheel, ...]]
    """The wheels of each extension."""

    apart: frozenset[str] = frozenset()
    """The packages whose versions differ between targets."""

    relaxed: Mapping[str, Requirement] = {}
    """The requirements that ``--relax`` replaced, by package."""

    @property
    def choice(self) -> Choice:
        """The selected torch build."""
        return self.plan.choice

    @property
    def remarks(self) -> tuple[str, ...]:
        """The reasons to report, such as why torch is not the latest."""
        return tuple(
            reason.message
            for reason in self.plan.reasons
            if reason.code in INSTALL_REASONS or reason.code.startswith(NEWEST_BUT)
        )

    @property
    def unhashed_wheels(self) -> list[LockedFile]:
        """Wheels without a hash on their index, to hash while installing."""
        with_wheels = {one.name for one in self.packages if one.wheels}
        return [file for file in self.hashes.missing if file.package in with_wheels]

    @property
    def versions(self) -> dict[str, str]:
        """The version of each resolved package."""
        return {name: one for name, one in self.all_versions.items() if one}

    @property
    def all_versions(self) -> dict[str, str]:
        """The version of each resolved package; empty for a local folder."""
        return list_versions(self.packages)

    def with_warnings(
        self, warnings: Iterable[Reason], reasons: Iterable[Reason] = ()
    ) -> Resolution:
        """Add warnings and reasons to the plan."""
        plan = self.plan
        warnings = (*plan.warnings, *warnings)
        reasons = (*plan.reasons, *reasons)
        plan = replace(plan, warnings=warnings, reasons=reasons)
        return replace(self, plan=plan)


def check_sources(
    packages: Packages,
    pages: Pages,
    family: Collection[str],
    sources: Sources,
    reporter: Reporter,
) -> Packages:
    """Check the sources of all files, and use the files of the pages.

    Args:
        packages: The packages of uv's lock, without the virtual packages.
        pages: The files of packages that have their own page.
        family: The packages that only PyTorch's sources may provide.
        sources: The sources.
        reporter: Reports URLs in METADATA.

    Raises:
        InstallationError: A file is from a source that is not configured for its package.
        UsageError: A project file requires another source of a package.
    """
    check_required_urls(find_index_packages(packages), sources.addresses)
    report_metadata_urls(packages, sources, reporter)
    check_family_wheels(packages, family)
    packages = use_page_files(packages, pages)
    check_provenance(list_locked_files(packages), pages)
    return packages


def find_index_packages(packages: Packages) -> dict[str, list[str]]:
    """Return the packages from indexes, with the URLs of their wheels."""
    return {
        package.name: [wheel.url or "" for wheel in package.wheels or ()]
        for package in packages
        if not package.is_direct
    }


def check_required_urls(
    served: Mapping[str, Collection[str]],
    addresses: Addresses,
) -> None:
    """Raise UsageError if a package with a required URL is from an index.

    Args:
        served: The packages from indexes, with the URLs of their files.
        addresses: The sources with the required URLs.
    """
    for setting in addresses.list_settings(Effect.ADDRESS):
        name = setting.package
        if name in served and setting.value not in served[name]:
            raise UsageError(
                "source-setting",
                f"{name} would be installed from an index, but {setting.place} specifies a URL or folder for it",
                why="the index may have a different package with that name",
                hint=f"Request {name} by its URL",
            )


def report_metadata_urls(
    packages: Packages, sources: Sources, reporter: Reporter
) -> None:
    """Report the URLs that are only in another package's METADATA.

    Raises:
        UsageError: The user trusts no folder and does not list the URL.
    """
    for package in packages:
        place = package.archive or package.vcs
        address = (place and place.url) or ""
        if not address:
            continue
        name = package.name
        source = parse_source(address)
        if source.location in sources.addresses.locations:
            continue
        entry = Entry(source, f"{name} from {shorten(redact(address))}")
        sources.policy.check([entry])
        role = f"the source of {name} in the metadata of a package that requires it"
        reporter.notice("Index", f"{address}: {role}")


def use_page_files(packages: Packages, pages: Pages) -> Packages:
    """Replace wheels with the wheels for the selected build.

    For each version, the page for uv has only the wheel for the best build.

    Args:
        packages: The packages of uv's lock.
        pages: The files for the selected build of packages with their own page.
    """
    files = chain.from_iterable(pages.values())
    wheels = [file for file in files if isinstance(file, Wheel)]
    own = {(wheel.package, str(wheel.version)): wheel for wheel in wheels}
    from_pages = []
    for package in packages:
        wheel = own.get((package.name, str(package.version)))
        kept = package
        if wheel and wheel.url not in map(find_file_url, package.wheels or ()):
            sha256 = wheel.sha256 or placeholder_hash(wheel.url)
            file = PackageWheel(url=wheel.url, hashes={"sha256": sha256})
            kept = dataclasses.replace(package, wheels=[file])
        from_pages.append(kept)
    return from_pages


def check_provenance(files: Iterable[LockedFile], pages: Pages) -> None:
    """Raise InstallationError for a file that is not on its package's page.

    A package without a page is from the default index. Its files must not be on
    another package's page.

    Args:
        files: The files of a resolution.
        pages: The files of packages that have their own page.
    """
    owners = defaultdict[str, set[str]](set)
    for package, wheels in pages.items():
        for wheel in wheels:
            owners[wheel.url].add(package)
    for file in files:
        if owners[file.url] != {file.package} & pages.keys():
            address = file.url.partition("?")[0]
            message = f"{file.package} would be installed from {address}"
            why = "the source of PyTorch packages does not list it"
            raise InstallationError("wrong-source", message, why=why)


def check_indexes(
    packages: Packages,
    pages: Collection[str],
    backend: str,
    *,
    sources: Sources,
    client: Client,
) -> None:
    """Raise InstallationError for a file that no configured index lists.

    uv applies the sources in downloaded source trees, and does not report the index
    of a package.

    Args:
        packages: The packages in uv's lock.
        pages: The packages that have their own page.
        backend: The tag of torch's backend.
        sources: The sources, with the default index.
        client: The HTTP client.
    """
    if not any(one.is_direct for one in packages):
        return
    served = find_index_packages(packages).keys() - set(pages)
    files = [file for file in list_locked_files(packages) if file.package in served]
    unknown = find_unknown_hosts(files, backend, sources, client)
    for host, strange in unknown.items():
        # If the index is unreachable, uv used the cached page.
        if client.unreachable(sources.addresses.default_index or ""):
            return
        raise InstallationError(
            "wrong-source",
            f"{', '.join(strange)} would be installed from {host}",
            why="the pyproject.toml of a source tree selects that host, which no configured index uses",
            hint="If you trust that index, set UV_INDEX to its URL",
        )


def check_family_wheels(packages: Packages, family: Collection[str]) -> None:
    """Raise InstallationError for a PyTorch package without a wheel."""
    for package in packages:
        name = package.name
        if name in family and not package.wheels:
            raise InstallationError(
                "wrong-source",
                f"{name} has no usable wheel on its index",
                why="a requirement specifies a URL for it, or no wheel is compatible",
                hint=f"Request {name} by name or version",
            )


def record_own_indexes(
    packages: Packages,
    others: Collection[str],
    *,
    sources: Sources,
    client: Client,
) -> Packages:
    """Record the indexes that only the user's configuration has, by package.

    Otherwise, if another user updates the lock, a package of that name on the default
    index would be selected. uv does not report the index of a package.

    Args:
        packages: The packages of uv's lock.
        others: The packages that have their own page.
        sources: The package sources.
        client: The HTTP client.
    """
    # Skip the check without such indexes, because it sends a request per package.
    if not sources.addresses.own_indexes:
        return packages
    extra = sources.with_default_index(None).addresses

    def find_first_index(package: str) -> str | None:
        index = find_index(client, package, extra.find_indexes(package))
        return index or links.get(package)

    names = [name for name in find_index_packages(packages) if name not in others]
    listed = read_listing(sources, client, (), names).wheels
    # The first index that lists a package has priority. uv merges find-links with it.
    versions = {str(package.name): package.version for package in packages}
    links = {
        wheel.package: links_url(wheel.source)
        for wheel in reversed(listed)
        if isinstance(wheel.source, str) and wheel.version == versions[wheel.package]
    }
    first_indexes = map_concurrently(find_first_index, names)
    indexes = dict(zip(names, first_indexes, strict=True))
    return [
        dataclasses.replace(package, index=index)
        if (index := indexes.get(package.name)) in sources.addresses.own_indexes
        else package
        for package in packages
    ]


def find_requested_hashes(
    requirements: Iterable[Requirement],
    packages: Packages,
    addresses: Addresses,
) -> dict[str, frozenset[str]]:
    """Return the allowed SHA-256 hashes of packages with a required hash.

    Args:
        requirements: The requirements, whose URLs may contain a hash.
        packages: The packages of uv's lock.
        addresses: The sources with the hashes of ``--hash`` options and of other
            tools' locks, which apply only to the locked version.
    """
    requested = dict[str, frozenset[str]]()
    for package in packages:
        name = package.name
        hashes = addresses.hashes.get(name)
        if hashes is None and not (package.vcs or package.directory):
            hashes = addresses.hashes.get(f"{name}=={package.version}")
        if hashes:
            requested[name] = hashes
    for requirement in requirements:
        sha256 = re.search(_URL_HASH, requirement.url or "")
        if sha256:
            known = requested.get(requirement.name, frozenset())
            requested[requirement.name] = known | {sha256[1]}
    return requested


def check_required_hashes(
    requirements: Iterable[Requirement], sources: Sources
) -> None:
    """Raise UsageError if ``require-hashes`` rejects a requirement, as in uv.

    uv applies the setting to requirements files and typed requirements.
    """
    if not sources.uv.passed.get("require-hashes"):
        return
    for one in requirements:
        if not (one.origin.line or one.origin == COMMAND_LINE):
            continue
        is_hashed = one.pinned and one.name in sources.addresses.hashes
        if not (is_hashed or re.search(_URL_HASH, one.url or "")):
            place = sources.uv.name_setting("require-hashes")
            raise UsageError(
                "source-setting",
                f"{one} ({one.origin}) has no pinned version with a hash",
                why=f"{place} requires both",
                hint=f"Write {one.name}==VERSION with a hash into a requirements file",
            )


def keep_requested_files(
    packages: Packages,
    requested: Mapping[str, frozenset[str]],
    addresses: Addresses,
    client: Client,
    reporter: Reporter,
) -> Packages:
    """Keep files with an allowed hash, and download files without a hash.

    uv does not check hashes during a resolution, not even a hash in a URL.

    Args:
        packages: The packages of uv's lock.
        requested: The allowed hashes by package.
        addresses: The settings with the hashes, for messages.
        client: The HTTP client.
        reporter: Reports the downloads.

    Raises:
        UsageError: No file of a package has an allowed hash.
    """
    files = [file for file in list_locked_files(packages) if file.package in requested]
    hashes = find_known_hashes(files, client)
    known = {**hashes.known, **fetch_missing(hashes.missing, client, reporter)}
    return [
        _filter_hashes(package, requested[package.name], known, addresses)
        if package.name in requested
        else package
        for package in packages
    ]


def _filter_hashes(
    package: Package,
    allowed: Collection[str],
    known: Mapping[str, str],
    addresses: Addresses,
) -> Package:
    """Return a package with only the files that have an allowed hash.

    Raises:
        UsageError: No file has an allowed hash.
    """

    def keep(file: Any) -> Any:
        sha256 = file and known.get(find_file_url(file), file.hashes["sha256"])
        if sha256 not in allowed:
            return None
        return dataclasses.replace(file, hashes={"sha256": sha256})

    wheels = [*filter(None, map(keep, package.wheels or ()))]
    sdist, archive = keep(package.sdist), keep(package.archive)
    if wheels or sdist or archive:
        return dataclasses.replace(
            package, wheels=wheels or None, sdist=sdist, archive=archive
        )
    name = package.name
    names = {name, f"{name}=={package.version}"}
    places = [
        one.place
        for one in addresses.list_settings(Effect.HASH)
        if one.package in names
    ]
    place = places[-1] if places else "its URL"
    raise UsageError(
        "hash-not-chosen",
        f"{place}: no file of {name} {package.version} for this machine has the required hash",
        hint="Remove that hash",
    )
