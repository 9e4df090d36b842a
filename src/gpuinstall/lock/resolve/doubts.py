"""Warn about excluded releases and about packages that may not run."""

from __future__ import annotations

from collections.abc import Iterator

from gpuinstall.base.finding import Reason
from gpuinstall.base.text import join_names
from gpuinstall.lock.resolve.explain import (
    explain_older,
    find_newer_facts,
    format_requirers,
    is_warning,
)
from gpuinstall.lock.resolve.found import TORCH_ADDED, Found, is_torch_added
from gpuinstall.lock.resolve.question import is_library_of_torch
from gpuinstall.wheels.compatibility import SHARED_FILES, TEST_IT, Compatibility
from gpuinstall.wheels.learned.row import WheelRow
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import is_for_cuda
from gpuinstall.wheels.package import remove_cuda_label

MAY_NOT_RUN = "part-without-code"
"""The code of a warning that excludes no release."""
NOT_INSPECTED = "not-inspected"

_OLD_DRIVER = "driver-too-old"
_WITHOUT_GPU = "no-gpu"
_WITHOUT_LIBRARY = "library-missing"


def find_doubts(found: Found) -> list[Reason]:
    """Return warnings about excluded releases and doubtful packages."""
    conflicts = load_members().find_conflicts(found.answer.versions)
    reasons = [
        *_explain_exclusions(found),
        *filter(is_warning, explain_older(found)),
        *_explain_added_torch(found),
        *_find_missing_extras(found),
        *(Reason("packages-clash", message) for message in conflicts),
        *_find_doubtful_packages(found),
    ]
    return [*dict.fromkeys(reasons)]


def _explain_exclusions(found: Found) -> Iterator[Reason]:
    newer = find_newer_facts(found)
    requested = found.question.requested
    for package, fact in newer.items():
        version = found.find_version(package)
        if not version and newer.keys() & {
            *found.known.log.find_requirers(package, requested)
        }:
            # Only a release that has its own warning requires it.
            continue
        instead = "other versions of the packages that require it are selected"
        if version:
            unread = found.known.format_unread_releases(package, version)
            instead = f"{package} {version} is selected{unread}"
        yield Reason("older-for-code", f"{fact.why}; {instead}")
    for fact in found.facts_here:
        if fact.requires:
            libraries = " and ".join(fact.requires)
            added = f"added {libraries}, which contains the library"
            yield Reason("library-added", f"{fact.why}; {added}")


def _explain_added_torch(found: Found) -> Iterator[Reason]:
    """Yield a note if torch is added to a project with a lock without it."""
    if found.question.lock_request.request.preferred and is_torch_added(
        found.question, found.known.log, found.answer.versions.items()
    ):
        yield Reason(
            TORCH_ADDED,
            "torch is added, although no package of the project requires it; "
            "uv sync installs the project without it",
        )


def _find_missing_extras(found: Found) -> Iterator[Reason]:
    """Yield requested extras that a package lacks."""
    for package, version, extra in sorted(found.answer.missing_extras):
        if package in found.question.requested:
            name = f"{package} {version}".strip()
            yield Reason("no-such-extra", f"{name} has no extra {extra}")


def _find_doubtful_packages(found: Found) -> Iterator[Reason]:
    """Yield warnings about packages that may not run on the machine."""
    doubts = {name: _find_doubt(one, found) for name, one in found.inspected.items()}
    for package, result in found.inspected.items():
        row, doubt = result.row, doubts[package]
        requirers = found.find_requirers(package)
        if doubt and doubt.code == NOT_INSPECTED:
            if _decides(package, found):
                yield Reason(NOT_INSPECTED, _format_uninspected(row, found))
        elif doubt and not any(
            _is_implied(doubt, doubts.get(one)) for one in requirers
        ):
            remedy = _describe_remedy(result, doubt, found)
            name = f"{package} {found.answer.versions[package]}"
            if requirers:
                name = f"{name} ({format_requirers(requirers)})"
            yield Reason(MAY_NOT_RUN, f"{name} {doubt.message}{remedy}")
        if found.question.has_no_gpu:
            continue
        if row.opens and package in load_members().must_open:
            yield Reason(
                "opens-libraries",
                f"{package} loads {row.opens[0]} by name: import torch first, "
                "or add the library's folder to LD_LIBRARY_PATH",
            )


def _find_doubt(result: Compatibility, found: Found) -> Reason | None:
    """Return why a package may not run on the machine, if known."""
    row, rejection, warning = result.verdicts[found.answer.torch]
    # Packages with the same files have their own warning.
    is_sharing = rejection and rejection.code == SHARED_FILES
    reason = warning if is_sharing else rejection or warning
    if reason and reason.code != NOT_INSPECTED:
        return reason
    useless = _explain_useless_cuda(row, found)
    if useless:
        return Reason(_WITHOUT_GPU, useless)
    lacking = found.lacking.get(row.package)
    if lacking:
        names = join_names(lacking)
        return Reason(
            _WITHOUT_LIBRARY,
            f"may not run: it is linked to {names}, which no package in this lock provides",
        )
    is_unread = reason or row.package in found.unread
    return Reason(NOT_INSPECTED, "") if is_unread else None


def list_uninspected(found: Found) -> Iterator[str]:
    """Yield details about dependencies that were not inspected."""
    for package, result in found.inspected.items():
        doubt = _find_doubt(result, found)
        is_unread = doubt and doubt.code == NOT_INSPECTED
        if is_unread and not _decides(package, found):
            yield _format_uninspected(result.row, found)


def _decides(package: str, found: Found) -> bool:
    """Return whether a package is requested, or replaces a release.

    The vendor documents the CUDA of some packages.
    """
    if package in found.question.requested:
        return True
    is_documented = package in load_members().stated
    return not is_documented and bool(found.known.find_excluded_versions(package))


def _format_uninspected(row: WheelRow, found: Found) -> str:
    how = "inspected only in part" if row.depth else "not inspected"
    gpus = [f"{gpu.label} ({gpu.code_name})" for _, gpu in found.question.gpus]
    return (
        f"{row.package} {row.version} may lack code for {join_names(gpus)}: it was {how}, "
        f"because the inspection limit was reached{TEST_IT}"
    )


def _is_implied(doubt: Reason, other: Reason | None) -> bool:
    """Return whether a doubt is the same as one about a requirer."""
    is_same = other is not None and other.code == doubt.code
    return is_same and doubt.code in {_OLD_DRIVER, _WITHOUT_GPU}


def _describe_remedy(result: Compatibility, reason: Reason, found: Found) -> str:
    """Return how a package with a warning can be used, if known."""
    row, members, builds = result.row, load_members(), found.builds
    is_misfit = reason.code not in {_WITHOUT_GPU, _WITHOUT_LIBRARY}
    if members.works_on_cpu.fullmatch(row.package):
        usable = [one for one in builds if result.runs_with([one])]
        remedy = "; it works on the CPU"
        if is_misfit and usable:
            backend = builds[usable[0]].backend
            remedy += f", and on the GPU with --backend {backend}"
        return remedy
    if members.is_optional(row.package, row.witness or ""):
        return "; it works without this library"
    return "; update the driver" if reason.code == _OLD_DRIVER else ""


def _explain_useless_cuda(row: WheelRow, found: Found) -> str:
    """Return why a package for CUDA needs another target.

    Packages that are only required are reported for their own libraries.
    """
    if not found.question.has_no_gpu:
        return ""
    why = [f"is linked to {name}" for name in row.needs if is_for_cuda(name)]
    is_named = remove_cuda_label(row.package) != row.package
    is_named |= row.package.startswith("cuda-")
    is_for_gpus = row.toolkit or row.has_runtime or row.unread
    # The wheel of cpm-kernels 1.0.11 has GPU code but no library.
    if (is_named and is_for_gpus) or (row.unread and not row.system):
        why.append("is for CUDA")
    if row.package in found.question.requested:
        version = found.answer.versions[row.package]
        required = found.known.log.find_dependencies(row.package, version)
        names = sorted({one.name for one in required})
        why += [f"requires {name}" for name in names if is_library_of_torch(name)]
    if not why:
        return ""
    return f"{why[0]}, and the target {found.question.target} has no GPU"
