"""How an environment changes, ours or one of others: prepare, verify, commit; or abort, and it is as it was.

::

             ours (OwnPlace)                       of others (ForeignPlace)
    prepare  another one is built beside it        what changes is copied by links, and the new packages come
    verify   kernels run, unless the last proof covers all that they would show
    commit   the two change places in one stroke   the record says that the new files are proven
    abort    what was built is removed             the copy is put back
    back     the two change places again           the same, once what is there is copied: a change as any other

What was before is kept for ``roll_back`` until the next change. A run that is killed on the way leaves a record, by
which the next one finishes the change or aborts it: ``swap`` and ``undo`` tell how.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from gpuinstall.base import uv
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.text import number_of
from gpuinstall.base.values import dataclass
from gpuinstall.environments.environment import (
    Marker,
    fingerprint,
    installed_packages,
    read_marker,
)
from gpuinstall.environments.guard import renew_uv_guard
from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.records import remember, was_at
from gpuinstall.install.inspection import stamp_file
from gpuinstall.install.options import Action
from gpuinstall.install.proof import Installation, check_written_files, verify
from gpuinstall.install.swap import (
    WAIT_S,
    environment_lock,
    file_lock,
    finish_swap,
    swap_in,
)
from gpuinstall.install.undo import (
    begin_change,
    find_change,
    find_undo,
    finish_undo,
    undo_folder,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpuinstall.base.machine import Machine
    from gpuinstall.install.inspection import ForeignEnvironment
    from gpuinstall.install.priced_lock import PricedLock
    from gpuinstall.lock.fit import Fit
    from gpuinstall.project import Project

InstallPlace: TypeAlias = "OwnPlace | ForeignPlace"


def transact(
    place: InstallPlace,
    action: Action,
    priced: PricedLock,
    here: Machine | None,
) -> Installation:
    """Bring the packages of a lock into an environment, and prove them; on any failure it is as it was before.

    Args:
        place: The environment; its run holds it.
        action: What there is to do.
        priced: The lock, what comes and goes, and what has to be fetched.
        here: This machine; None if no kernel can run on it.

    Raises:
        InstallationError: the packages could not be brought.
        KernelFailedError: a kernel failed.
    """
    try:
        match action:
            case Action.NOTHING:
                return place.present(priced.fit)
            case Action.VERIFY:
                installation = place.present(priced.fit)
            case Action.BUILD:
                installation = place.prepare(priced)
        installation = verify(installation, here, place.project)
        place.commit(installation, here)
    except BaseException:
        # What cannot be put right now is left to the next run.
        with defer_interrupts(), suppress(InstallationError, OSError):
            place.abort()
        raise
    return installation


@dataclass(frozen=True)
class OwnPlace:
    """An environment of ours, which another one replaces."""

    project: Project

    def held(self) -> AbstractContextManager[bool]:
        """Hold it for one run; yield whether another run had it before."""
        return environment_lock(self.project.paths, self.project.reporter)

    def present(self, fit: Fit) -> Installation:
        """Return it as it is."""
        venv = self.project.paths.venv
        return Installation(fit, venv, interpreter(venv))

    def prepare(self, priced: PricedLock) -> Installation:
        """Build another one beside it."""
        from gpuinstall.install.stage import build  # which takes long to load

        return build(priced, self.project)

    def commit(self, installation: Installation, here: Machine | None) -> None:
        """Keep the proof, and put what was built in its place."""
        paths = self.project.paths
        venv, stamp = installation.venv, installation.stamp
        marker = self._marker(installation)
        # An environment whose marker is not remembered passes for a stranger's: that comes first.
        remember(paths.venv, marker.id)
        marker.write(venv)
        if here and stamp:
            stamp.write(stamp_file(marker.id, here))
        if venv == paths.venv:
            return
        swap_in(paths, venv, self.project.reporter)

    def _marker(self, installation: Installation) -> Marker:
        lock = installation.fit.lock
        choice = installation.fit.choice
        return Marker(
            id=str(uuid.uuid4()),
            lock=lock.name,
            lock_sha256=lock.sha256,
            python=choice.python,
            torch=lock.versions["torch"],
            backend=choice.build.backend.tag,
            machine=fingerprint(self.project.machine),
            verdict=installation.verdict,
            copied_from=installation.copied_from,
            packages=installed_packages(installation.venv, lock.names),
            is_for_cpu=lock.record.asked == "cpu",
        )

    def abort(self) -> None:
        """Remove what was built; what has taken its place already stays."""
        finish_swap(self.project.paths, self.project.reporter)

    def roll_back(self, *, replace: bool) -> None:
        """Exchange it, and its lock, for the previous one, whoever made that.

        Args:
            replace: Whether what is in its place now may be an environment that others made.

        Raises:
            UsageError: there is none, or this user has replaced neither it nor what is in its place.
        """
        with self.held():
            self._exchange(replace=replace)

    def _exchange(self, *, replace: bool) -> None:
        paths = self.project.paths
        venv = paths.venv
        if not paths.has_previous:
            raise UsageError("no-previous", f"no previous environment of {venv}")
        if not was_at(venv, paths.previous):
            raise UsageError(
                "not-made-here",
                f"the previous environment of {venv} was not replaced by you on this machine",
                why="it may have come with the folder, and would run unproven",
                hint="gpuinstall sync   # makes one from the lock",
            )
        is_strange = (
            read_marker(venv) is None
            and os.path.lexists(venv)
            and not was_at(venv, venv)
        )
        if is_strange and not replace:
            # It would become the previous one, which the next change deletes.
            raise UsageError(
                "not-ours",
                f"{venv} was not made by gpuinstall, which leaves it where it is",
                hint="Run it again with --replace",
            )
        swap_in(paths, paths.previous, self.project.reporter)


@dataclass(frozen=True)
class ForeignPlace:
    """An environment of others, in which files are replaced."""

    environment: ForeignEnvironment
    project: Project

    def held(self) -> AbstractContextManager[bool]:
        """Hold it for one run; yield whether another run had it before."""
        file = undo_folder(self.environment).with_suffix(".lock")
        return file_lock(file, self.environment.prefix, self.project.reporter, WAIT_S)

    def present(self, fit: Fit) -> Installation:
        """Return it as it is."""
        return Installation(
            fit, self.environment.prefix, self.environment.python, is_ours=False
        )

    def prepare(self, priced: PricedLock) -> Installation:
        """Have the wheels fetched and unpacked, copy what they replace, and install them."""
        from gpuinstall.lock.fetch import Transfer, cache_words, run_uv

        environment, session, fit = self.environment, self.project.session, priced.fit
        private_lock = session.scratch / "pylock.private.toml"
        unpacked = session.scratch / "unpacked"
        names = {change.package for change in priced.changes}
        transfer = Transfer(
            fit.lock,
            fit.choice,
            private_lock,
            session.folder,
            missing=priced.bill.missing,
            heads=priced.heads,
            only=names,
        )
        words = cache_words(fit.lock, fit.choice, session)
        transfer.run(
            uv.unpack(environment.python, private_lock, unpacked, words), session
        )
        start = monotonic()
        begin_change(environment, self.project.reporter, names, unpacked)
        words = cache_words(None, fit.choice, session)
        run_uv(
            uv.put_into(environment.python, private_lock, words), session.from_cache()
        )
        installed = number_of(len(names), "package")
        self.project.reporter.detail("Installed", installed, monotonic() - start)
        packages = read_packages(environment.packages_folders)
        for fault in check_written_files(packages, names, environment.root):
            self.project.reporter.warn(fault.message)
        return self.present(fit)

    def commit(self, _installation: Installation, _here: Machine | None) -> None:
        """Keep the copy of what was before for ``roll_back``."""
        change = find_change(self.environment)
        if change:
            change.keep()

    def abort(self) -> None:
        """Put back what the change has replaced."""
        if finish_undo(self.environment):
            self.project.reporter.warn("the environment was restored")

    def roll_back(self, *, replace: bool = False) -> None:
        """Undo the last change, or the one that a killed run has left; once more goes forward again.

        Args:
            replace: Whether what came or moved since may be taken out.

        Raises:
            UsageError: there is none, or something came or moved since.
        """
        environment = self.environment
        with self.held():
            if not finish_undo(environment):
                record = find_undo(environment)
                if record is None:
                    raise UsageError(
                        "no-previous",
                        f"there is no change by gpuinstall to undo in {environment.prefix}, by this user",
                    )
                record.go_back(replaces=replace)
            renew_uv_guard(environment.prefix)
