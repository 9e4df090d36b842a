"""Whether a lock is fresh, and if not, why: first without a network, then against what the sources hold today."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError, NoBuildError
from gpuinstall.lock.agreement import agree
from gpuinstall.lock.aims import Aim, stand_in
from gpuinstall.lock.fit import Misfit, fit
from gpuinstall.lock.making import plain
from gpuinstall.lock.target import Target
from gpuinstall.plan.values import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.means import Means
    from gpuinstall.machine import Machine
    from gpuinstall.request import Request


def stale_here(
    lock: Lock, request: Request, catalog: Catalog, machines: Iterable[Machine] = (), *, exact: bool
) -> tuple[Reason, ...]:
    """Say without a network why a lock is stale: other inputs, or a build that its machines do not run."""
    reasons = []
    if exact and lock.inputs and plain(lock.inputs) != plain(request.requirements):
        reasons.append(Reason("inputs-changed", f"it was made for {' '.join(lock.inputs)}"))
    target = Target.parse(lock.target)
    judged = [fit(lock, stand_in(target), replace(request, backend=target.backend), catalog)]
    judged += [fit(lock, machine, request, catalog) for machine in machines if _of(machine, target)]
    reasons += [each.reason for each in judged if isinstance(each, Misfit)]
    return tuple(dict.fromkeys(reasons))


def stale_there(lock: Lock, request: Request, catalog: Catalog, means: Means) -> tuple[Reason, ...]:
    """Resolve a lock's own versions again: a package that was withdrawn, or a file that was exchanged, shows."""
    target = Target.parse(lock.target)
    asked = tuple(f"{name}=={version.partition('+')[0]}" for name, version in lock.versions.items())
    aim = Aim(
        stand_in(target), replace(request, requirements=asked, backend=target.backend, python=lock.python), catalog
    )
    try:
        draft = agree([aim], means)[0].draft
    except (NoBuildError, InstallationError) as error:
        if error.code in {"network", "unreachable"}:
            raise
        return (Reason("withdrawn", error.why or error.message),)
    listed = {file.package: draft.hashes.known.get(file.url) for file in draft.files}
    return tuple(
        Reason("hash-differs", f"{name} {lock.versions[name]} is another file today")
        for name, sha256 in sorted(listed.items())
        if sha256 and sha256 not in lock.hashes(name)
    )


def _of(machine: Machine, target: Target) -> bool:
    return (machine.os, machine.arch) == (target.os, target.arch)
