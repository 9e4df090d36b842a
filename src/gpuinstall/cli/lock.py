"""``gpuinstall lock``: write the locks that a team commits, check whether they are fresh, compare two of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.base.errors import LockError, NoBuildError, UsageError
from gpuinstall.base.node_records import recorded_machines
from gpuinstall.base.shell import joined, quoted
from gpuinstall.base.units import number_of
from gpuinstall.cli.options import MACHINE_WORDS, PATH, REQUEST, CommandOptions, read_machine_file
from gpuinstall.cli.outcome import Outcome, error_entry, framed
from gpuinstall.project import lock_requests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from gpuinstall.base.machine import Machine
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.lock.check import CheckedLock
    from gpuinstall.lock.folder_request import FolderRequest
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.write import LockOptions, TargetDifference, Written
    from gpuinstall.project import Project
    from gpuinstall.sources.session import Session


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

        Raises:
            UsageError: for a subcommand in another place, which is never taken for a package; ``--`` stands before a
                package of that name.
        """
        if args and args[0] in self.commands:
            name, *rest = args
            return self.commands[name].make_context(f"{info_name} {name}", rest, parent, **extra)
        context = super().make_context(info_name, list(args), parent, **extra)
        requirements = context.params.get("requirements") or [""]
        first = requirements[0]
        if first in self.commands and "--" not in args and not context.resilient_parsing:
            raise self._misplaced(first, args)
        return context

    def _misplaced(self, name: str, args: Sequence[str]) -> UsageError:
        rest = list(args)
        rest.remove(name)
        try:
            self.commands[name].make_context(name, list(rest))
            line = joined([name, *rest])
        except click.ClickException:
            line = f"{name} --help"
        package_line = joined([*rest, "--", name])
        return UsageError(
            "command-or-package",
            f"{name} is a subcommand of lock: it comes first",
            hint=f"gpuinstall lock {line}\n"
            f"gpuinstall lock {package_line}   # a package of that name",
        )

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the words of the usage line: a subcommand is not required."""
        return click.Command.collect_usage_pieces(self, ctx)


def _open(options: CommandOptions, terminal: Terminal) -> AbstractContextManager[Project]:
    """Open the folder of the locks with its own request, or with a script's."""
    if options.script is None:
        return options.open(terminal)
    from gpuinstall.install.scripts import Script, read_script

    block = read_script(options.script, options.requirements)
    if block is None:
        block = Script(options.script, options.requirements, None)
    block.locks.mkdir(exist_ok=True)
    options = replace(
        options, requirements=block.requirements, python=options.python or block.python
    )
    request = replace(options.settings.request, constraints=block.constraints)
    return options.open(
        terminal,
        folder=block.locks,
        request=request,
        only=True,
        source_settings=block.settings,
    )


def _read_machines(options: CommandOptions, terminal: Terminal) -> list[Machine]:
    """Return the machines that are selected, by files and in words."""
    machines: list[Machine] = []
    for name in options.machines:
        folder = Path(name)
        if folder.is_dir():
            machines += recorded_machines(folder, terminal)
        else:
            machines.append(read_machine_file(name))
    described = options.other_machine
    if described:
        machines.append(described)
    return machines


def _lock_options(
    options: CommandOptions,
    folder: Path,
    requests: tuple[LockRequest, ...],
    declared: FolderRequest,
) -> LockOptions:
    """Return how to write the locks of a folder."""
    from gpuinstall.base.requirement import normalised
    from gpuinstall.lock.write import LockOptions

    return LockOptions(
        folder,
        requests,
        declared,
        upgrade=options.upgrade,
        moving=tuple(map(normalised, options.packages)),
        prune=options.prune,
    )


_RANGE = (*REQUEST, "only", *MACHINE_WORDS)
_SCOPE = (*_RANGE, "targets", "machines", "script")
_UPDATE = ("upgrade", "packages", "prune")


@click.group(
    "lock",
    cls=LockCommands,
    invoke_without_command=True,
    help="Write pylock.<target>.toml for each target: those in the folder, or this machine's.",
)
@framed("lock", *_SCOPE, *_UPDATE)
def command(terminal: Terminal, options: CommandOptions) -> Outcome:
    """Lock."""
    with _open(options, terminal) as project:
        machines = _read_machines(options, terminal)
        declared = project.read_folder_request()
        request = project.request_for(declared.listed)
        requests = lock_requests(project, request, options.targets, machines)
        selected = _lock_options(options, project.folder, requests, declared)
        selected = selected._replace(newest=project.config.newest_per_target)
        return _write(selected, project.session)


def _write(selected: LockOptions, session: Session) -> Outcome:
    from gpuinstall.lock.write import differences, unnamed_locks, write_locks

    locks = write_locks(selected, session)
    apart = differences(locks, selected.requests[0].catalog.family)
    unnamed = unnamed_locks(selected.folder, {written.lock.target for written in locks})
    removed = []
    for path in unnamed:
        if selected.prune:
            path.unlink()
            removed.append(str(path))
        else:
            session.reporter.warn(
                f"{path.name} is for none of the targets; gpuinstall lock --prune removes it"
            )
    data = {
        "locks": [written.to_dict() for written in locks],
        "differences": [difference._asdict() for difference in apart],
        "removed": removed,
    }
    return Outcome(data, lambda screen: _show_written(screen, locks, apart))


def _show_written(
    terminal: Terminal,
    locks: Sequence[Written],
    apart: Sequence[TargetDifference],
) -> None:
    names_by_source: dict[str, list[str]] = {}
    for written in locks:
        lock, name = written.lock, written.path.name
        packages = number_of(len(lock.pylock.packages), "package")
        terminal.field("Lock", f"{name}: {packages}, {lock.pinned_by} ({written.status})")
        if written.private:
            names_by_source.setdefault(" and ".join(written.private), []).append(name)
    for source, names in names_by_source.items():
        terminal.warn(f"{', '.join(names)}: can be installed only where {source} can be reached")
    for row in apart:
        terminal.field("Apart", f"{row.package} {row.version} for {row.target}: {row.why}")


@command.command("check", help="Check that the locks are up to date; exit 6 if not.")
@framed("lock", *_SCOPE)
def check_command(terminal: Terminal, options: CommandOptions) -> Outcome:
    """Compare the locks with the request, with the sources and with each other."""
    from gpuinstall.lock.check import DeclaredUse, check_locks
    from gpuinstall.lock.strangers import with_locked_builds

    with _open(options, terminal) as project:
        machines = _read_machines(options, terminal)
        request = project.request_for(project.read_folder_request().listed)
        session = project.session
        declared_targets = () if options.targets or machines else project.config.targets
        use = DeclaredUse(
            targets=options.targets or declared_targets,
            machines=tuple(machines),
            is_complete=bool(declared_targets),
            # A script's block names requirements too.
            has_requirements=bool(
                project.settings.request.requirements or options.files or options.groups
            ),
        )
        catalog = with_locked_builds(project.catalog, project.folder, session)
        network = None if options.offline else session
        checked = check_locks(project.folder, request, catalog, use, network)
    errors = []
    for row in checked:
        if row.reasons:
            reasons = "; ".join(reason.message for reason in row.reasons)
            message = f"{row.lock.name} is stale: {reasons}"
            errors.append(error_entry(LockError("lock-stale", message, hint=row.command)))
    return Outcome(
        {"locks": [row.to_dict() for row in checked]},
        lambda screen: _show_checked(screen, checked),
        exit_code=LockError.exit_code if errors else 0,
        errors=tuple(errors),
    )


def _show_checked(terminal: Terminal, checked: Sequence[CheckedLock]) -> None:
    for row in checked:
        terminal.field("Lock", f"{row.lock.name} is {'stale' if row.reasons else 'fresh'}")
        for reason in row.reasons:
            terminal.line(f"{'':11} {reason.message}")
    for command in dict.fromkeys(row.command for row in checked if row.reasons):
        terminal.line(f"  do    {command}")


@command.command(
    "cover", help='Write the fewest locks that cover a range: --gpu "RTX 30" --driver ">=470".'
)
@framed("lock", *_RANGE, "all_supported", *_UPDATE)
def cover_command(terminal: Terminal, options: CommandOptions) -> Outcome:
    """Write the fewest locks for a range of GPUs and drivers, and tell what each adds to those before it."""
    from gpuinstall.lock.ranges import cover_range, machines_in, spanned

    if bool(options.gpu) == options.all_supported:
        raise UsageError(
            "range-missing",
            "lock cover requires either --gpu or --all-supported",
            hint="gpuinstall lock cover --gpu NAME --driver VERSION",
        )
    with _open(options, terminal) as project:
        catalog, declared = project.catalog, project.read_folder_request()
        request = project.request_for(declared.listed)
        arch = options.arch or "x86_64"
        machines = machines_in(options.gpu, options.driver, arch, catalog)
        cover = cover_range(machines, request, catalog)
        if not cover.locks:
            raise NoBuildError(
                "no-build",
                "no build of torch runs on any GPU of this range",
                hint=_hint_of_drivers(options.gpu),
            )
        requests = tuple(lock.request(request, catalog) for lock in cover.locks)
        _check_labels([request.label for request in requests])
        selected = _lock_options(options, project.folder, requests, declared)
        # The builds of a cover may be of several torches.
        written = _write(selected._replace(newest=True), project.session)
        paths = [Path(entry["path"]) for entry in written.data["locks"]]
        ranges = [spanned(lock.machines) for lock in cover.locks]
        rows = _cover_rows(paths, ranges, project.session)
    uncovered = spanned(cover.unserved)

    def show(screen: Terminal) -> None:
        from gpuinstall.base.units import readable

        written.write(screen)
        for row in rows:
            size = f"{readable(row['bytes'])}, {readable(row['added'])} of it"
            text = f"{row['target']}: {row['serves']} ({size} not in the locks above)"
            screen.field("Serves", text)
        if uncovered:
            screen.field("Uncovered", f"no build runs on {uncovered}")

    data = {
        **written.data,
        "cover": rows,
        "unserved": uncovered,
    }
    return written._replace(data=data, show=show)


def _hint_of_drivers(gpus: tuple[str, ...]) -> str | None:
    """Return the command that tells which drivers run what on a GPU."""
    return f"gpuinstall plan --gpu {quoted(gpus[0])}" if gpus else None


def _check_labels(labels: list[str]) -> None:
    """Raise NoBuildError if two locks would have the same file."""
    label, count = Counter(labels).most_common(1)[0]
    if count > 1:
        raise NoBuildError(
            "targets-disagree",
            f"this range requires two versions of torch for {label}; a folder holds one lock for each",
            hint="Name fewer GPUs, or a narrower --driver",
        )


def _cover_rows(paths: list[Path], ranges: list[str], session: Session) -> list[dict[str, Any]]:
    """Return of each lock which range it serves, and the bytes that it adds to those before it."""
    from gpuinstall.install.space import sizes
    from gpuinstall.lock.lock import read_lock

    rows: list[dict[str, Any]] = []
    hashes_above = set[str | None]()
    for path, serves in zip(paths, ranges, strict=True):
        lock = read_lock(path)
        sizes_of_files = sizes(lock.files, {}, (), session)
        total = added = 0
        for file, size in sizes_of_files.items():
            total += size
            if file.sha256 not in hashes_above:
                added += size
        hashes_above.update(file.sha256 for file in sizes_of_files)
        rows.append(
            {
                "target": lock.target,
                "serves": serves,
                "bytes": total,
                "added": added,
            }
        )
    return rows


@command.command("download", help="Download every file of the locks into DIR.")
@click.argument("folder", metavar="DIR", type=PATH)
@framed("lock", "torch_index", "offline")
def download_command(terminal: Terminal, options: CommandOptions, folder: Path) -> Outcome:
    """Download the files of the locks."""
    from gpuinstall.lock.fetch import download
    from gpuinstall.lock.fit import read_locks

    with options.open(terminal) as project:
        names = download(read_locks(Path.cwd()), folder, project.session)
    text = f"{len(names)} in {folder}, all hashes verified"
    data = {"folder": str(folder), "files": names}
    return Outcome(data, [("Files", text)])
