"""``gpuinstall lock``: write the locks that a team commits, and check whether they are fresh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from os.path import isdir
from pathlib import Path
from typing import Any

import click

from gpuinstall.base.errors import LockError, NoBuildError, UsageError
from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Machine
from gpuinstall.base.node_records import recorded_machines
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import number_of
from gpuinstall.base.values import replace
from gpuinstall.cli.options import (
    MACHINE_WORDS,
    REQUEST,
    CommandOptions,
    read_machine_file,
)
from gpuinstall.cli.outcome import Outcome, Row, framed
from gpuinstall.install.hold import only_run_that_locks
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.project import Project
from gpuinstall.project.request import read_request
from gpuinstall.project.targets import lock_requests


class LockCommands(click.Group):
    """``lock`` writes locks; its first word may be a subcommand, which has options of its own."""

    # click's groups end their options at the first word, which here is a package.
    allow_interspersed_args = True

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse a line of ``lock``, or of the subcommand that it begins with.

        Args:
            info_name: The words before the line, as the usage shows them.
            args: The words of the line.
            parent: The context of the whole program.
            extra: Further settings of click's.

        Raises:
            UsageError: for a subcommand in another place, which is never taken for a package; ``--`` stands before a
                package of that name.
        """
        if args and args[0] in self.commands:
            name, *rest = args
            return self.commands[name].make_context(
                f"{info_name} {name}", rest, parent, **extra
            )
        context = super().make_context(info_name, list(args), parent, **extra)
        requirements = context.params.get("requirements") or [""]
        first = requirements[0]
        if first in self.commands and "--" not in args:
            raise UsageError(
                "command-or-package",
                f"{first} is a subcommand of lock: it comes first",
                hint=f"gpuinstall lock {first} --help\n"
                f"gpuinstall lock -- {first}   # a package of that name",
            )
        return context


def _read_machines(options: CommandOptions) -> list[Machine]:
    """Return the machines that are selected, by files and in words."""
    machines: list[Machine] = []
    for name in options.machines:
        folder = Path(name)
        if isdir(folder):
            machines += recorded_machines(folder, options.terminal)
        else:
            machines.append(read_machine_file(name))
    described = options.other_machine()
    return [*machines, described] if described else machines


_RANGE = (*REQUEST, "only", *MACHINE_WORDS)
_UPDATE = ("upgrade", "upgrade_packages")


@framed(
    "lock",
    "Write pylock.<target>.toml for each target: those in the folder, or this machine's.",
    *_RANGE,
    "targets",
    "machines",
    *_UPDATE,
    cls=LockCommands,
    invoke_without_command=True,
    subcommand_metavar="",
)
def command(options: CommandOptions) -> Outcome:
    """Lock."""
    with (
        options.open(only_looks=True) as project,
        only_run_that_locks(project.paths, options.terminal),
    ):
        machines = _read_machines(options)
        requests = lock_requests(
            project, read_request(project), options.targets, machines
        )
        return Outcome(*_write(options, requests, project))


def _write(
    options: CommandOptions,
    requests: Sequence[LockRequest],
    project: Project,
) -> tuple[dict[str, Any], list[Row]]:
    """Write the locks; return what became of them as data and as rows.

    Args:
        options: What may move.
        requests: What to lock, one for each lock.
        project: The folder that they are written into.
    """
    from gpuinstall.base.requirement import parse_requirement
    from gpuinstall.lock.file.lock import split_packages, versions_in_words
    from gpuinstall.lock.file.write import others_beside, write_locks

    moving = list(map(parse_requirement, options.upgrade_packages))
    for one in moving:
        if one.text != one.name:
            raise UsageError(
                "version-with-name",
                f"--upgrade-package takes the name alone of {one.text}",
                hint=f"gpuinstall lock --upgrade-package {one.name} {quoted(one.text)}",
            )
    locks = write_locks(
        project.folder,
        requests,
        project.session,
        upgrade=options.upgrade,
        moving=[one.name for one in moving],
    )
    made = [written.lock for written in locks]
    targets = project.contents.config.targets
    for text in others_beside(made, project.folder, targets):
        options.terminal.warn(text)
    rows: list[Row] = []
    for written in locks:
        packages = number_of(len(written.lock.pylock.packages), "package")
        text = f"{packages}, {written.lock.pinned_by} ({written.status})"
        rows.append(("Lock", f"{written.path.name}: {text}"))
    apart = split_packages(made)
    rows += [("Apart", f"{name} {versions_in_words(apart[name])}") for name in apart]
    data = {"locks": [written.to_dict() for written in locks], "differences": apart}
    return data, rows


@framed(
    "check",
    "Check that the locks are up to date; exit 6 if not.",
    *REQUEST,
    "only",
    "targets",
    group=command,
)
def check_command(options: CommandOptions) -> Outcome:
    """Compare the locks with the request and with each other, and ask for their files."""
    from gpuinstall.lock.file.check import check_locks
    from gpuinstall.lock.request.lock_sources import with_locked_builds

    with options.open(only_looks=True) as project:
        session = project.session
        checked = check_locks(
            project.folder,
            read_request(project),
            with_locked_builds(project.catalog, project.folder, lambda: session),
            options.targets or project.contents.config.targets,
            None if options.offline else session,
            gate=project.lock_gate,
            has_others=bool(options.targets),
        )
    rows: list[Row] = []
    errors = []
    for row in checked:
        name = row.lock.name
        reasons = [reason.message for reason in row.reasons]
        rows.append(("Lock", f"{name} is {'stale' if reasons else 'fresh'}"))
        rows += [("", reason) for reason in reasons]
        if reasons:
            message = f"{name} is stale: {'; '.join(reasons)}"
            errors.append(Finding("lock-stale", message, fixes=(row.command,)))
    rows += [("Do", str(line)) for line in dict.fromkeys(one.fix for one in errors)]
    return Outcome(
        {"locks": [row.to_dict() for row in checked]},
        rows,
        exit_code=LockError.exit_code if errors else 0,
        errors=tuple(errors),
    )


@framed(
    "cover",
    'Write the fewest locks that cover a range: --gpu "RTX 30" --driver ">=470".',
    *_RANGE,
    *_UPDATE,
    group=command,
)
def cover_command(options: CommandOptions) -> Outcome:
    """Write the fewest locks for a range of GPUs and drivers, and tell what each adds to those before it."""
    from gpuinstall.lock.cover import cover_range, machines_in, spanned

    if not options.gpu_names:
        raise UsageError(
            "range-missing",
            "lock cover requires --gpu",
            hint="gpuinstall lock cover --gpu 'RTX 30' --driver '>=470'   # for example",
        )
    with (
        options.open(only_looks=True) as project,
        only_run_that_locks(project.paths, options.terminal),
    ):
        catalog = project.catalog
        # The builds of a cover may be of several torches.
        request = replace(read_request(project), newest_per_target=True)
        arch = options.arch or "x86_64"
        machines = machines_in(options.gpu_names, options.driver, arch, catalog)
        cover = cover_range(machines, request, catalog)
        if not cover.requests:
            raise NoBuildError(
                "no-build",
                "no build of torch runs on any GPU of this range",
                hint=f"gpuinstall plan --gpu {quoted(machines[0].gpus[0].label)}   # shows which driver runs it",
            )
        labels = Counter(request.label for request in cover.requests)
        label, count = labels.most_common(1)[0]
        if count > 1:
            raise NoBuildError(
                "targets-disagree",
                f"this range requires two versions of torch for {label}; a folder holds one lock for each",
                hint="Name fewer GPUs, or a narrower --driver",
            )
        data, rows = _write(options, cover.requests, project)
    ranges = []
    for written, one in zip(data["locks"], cover.requests, strict=True):
        serves = spanned(one.serves)
        ranges.append({"target": written["target"], "serves": serves})
        rows.append(("Serves", f"{written['target']}: {serves}"))
    uncovered = spanned(cover.unserved)
    if uncovered:
        rows.append(("Uncovered", f"no build runs on {uncovered}"))
    return Outcome({**data, "cover": ranges, "unserved": uncovered}, rows)


@framed(
    "download",
    "Download every file of the locks into DIR.",
    "folder",
    "torch_index",
    "offline",
    group=command,
)
def download_command(options: CommandOptions) -> Outcome:
    """Download the files of the locks."""
    from gpuinstall.lock.file.fetch import download
    from gpuinstall.lock.file.fit import read_locks
    from gpuinstall.lock.request.lock_sources import check_hosts

    folder = options.folder
    with options.open(only_looks=True) as project:
        locks = read_locks(Path.cwd())
        for lock in locks:
            project.lock_gate.check(lock)
            if not options.offline:
                check_hosts(lock, lock.files, project.session)
        names = download(locks, folder, project.session)
    text = f"{len(names)} in {folder}, all hashes verified"
    return Outcome({"folder": str(folder), "files": names}, [("Files", text)])
