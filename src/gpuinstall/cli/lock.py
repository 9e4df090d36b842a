"""``gpuinstall lock``: write the locks that a team commits, say whether they are fresh, compare two of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, error_entry, framed
from gpuinstall.errors import LockError, NoBuildError, UsageError
from gpuinstall.project import Project, Settings, lock_requests, open_project
from gpuinstall.request import Request
from gpuinstall.shell import joined
from gpuinstall.sourcing import Sourcing

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.lock.check import CheckedLock, DeclaredUse
    from gpuinstall.lock.write import LockOptions, TargetDifference, Written
    from gpuinstall.machine import Machine
    from gpuinstall.session import Session


OLD_SPELLINGS = {
    f"--{name}": name for name in ("audit", "check", "cover", "diff", "download", "merge")
}
"""Options that have become subcommands, and go on working: what follows them is the subcommand's."""


class LockCommands(click.Group):
    """``lock`` writes locks; its first word may be a subcommand, which has options of its own."""

    allow_interspersed_args = (
        True  # click's groups end their options at the first word, which here is a package
    )

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse a line of ``lock``, or of the subcommand that it begins with.

        Raise UsageError for a subcommand in another place, which is never taken for a package; ``--`` stands before a
        package of that name.
        """
        if line := subcommand_line(args, self.commands):
            name, rest = line
            return self.commands[name].make_context(
                f"{info_name} {name}", rest, parent=parent, **extra
            )
        context = super().make_context(info_name, list(args), parent, **extra)
        first = next(iter(context.params.get("requirements") or ()), "")
        if first in self.commands and "--" not in args and not context.resilient_parsing:
            raise self._misplaced(first, args)
        return context

    def _misplaced(self, name: str, args: Sequence[str]) -> UsageError:
        rest = list(args)
        rest.remove(name)
        words = [name, *rest]
        try:
            self.commands[name].make_context(name, list(rest))
        except click.ClickException:
            words = [name, "--help"]
        hint = f"gpuinstall lock {joined(words)}\ngpuinstall lock {joined([*rest, '--', name])}   # a package of that name"
        return UsageError(
            "command-or-package", f"{name} is a subcommand of lock: it comes first", hint=hint
        )

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the words of the usage line: a subcommand is not required."""
        return click.Command.collect_usage_pieces(self, ctx)


def subcommand_line(args: Sequence[str], names: Container[str]) -> tuple[str, list[str]] | None:
    """Return the subcommand that a line of ``lock`` begins with, or has as an option, and the rest of the line."""
    if args and args[0] in names:
        return args[0], list(args[1:])
    for position, word in enumerate(takewhile(lambda word: word != "--", args)):
        option, equals, value = word.partition("=")
        if option in OLD_SPELLINGS:
            return OLD_SPELLINGS[option], [
                *([value] if equals else []),
                *args[:position],
                *args[position + 1 :],
            ]
    return None


_TARGETS = click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="T",
    shell_complete=options.target_names,
    help="Lock for cu126, cu130-windows-x86_64, …",
)
_MACHINES = click.option(
    "--machine",
    "machines",
    multiple=True,
    metavar="FILE",
    help="Lock for recorded machines (probe --json).",
)
_SCRIPT = click.option(
    "--script",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Lock the inline metadata of a script.",
)
_PER_TARGET = click.option(
    "--per-target", type=click.Choice(["newest"]), help="Let each target have its own newest torch."
)
_PRUNE = click.option(
    "--prune", is_flag=True, help="Remove locks that are for none of the targets."
)


@click.group(
    "lock",
    cls=LockCommands,
    invoke_without_command=True,
    help="Write pylock.<target>.toml for each target: those in the folder, or this machine's.",
)
@options.request_options
@options.only
@_TARGETS
@_MACHINES
@options.machine_words
@_PER_TARGET
@options.upgrade
@options.upgrade_package
@_PRUNE
@_SCRIPT
@framed("lock")
def command(
    terminal: Terminal,
    request: options.RequestOptions,
    described: options.MachineOptions,
    *,
    only: bool,
    targets: tuple[str, ...],
    machines: tuple[str, ...],
    per_target: str | None,
    upgrade: bool,
    packages: tuple[str, ...],
    prune: bool,
    script: Path | None,
) -> Outcome:
    """Lock."""
    from gpuinstall.lock.write import LockOptions
    from gpuinstall.plan.requirement import normalised

    run = _lock_run(terminal, request, script, only=only)
    selected = _machines(machines, described, terminal)
    with open_project(run.folder, run.settings, terminal) as project:
        declared = project.read_folder_request()
        requests = lock_requests(project, project.request_for(declared.listed), targets, selected)
        moving = tuple(map(normalised, packages))
        newest = per_target == "newest"
        return _write(
            LockOptions(run.folder, requests, declared, upgrade, moving, newest, prune),
            project.session,
        )


@command.command("check", help="Check that the locks are up to date; exit 6 if not.")
@options.request_options
@options.only
@_TARGETS
@_MACHINES
@options.machine_words
@_SCRIPT
@framed("lock")
def check_command(
    terminal: Terminal,
    request: options.RequestOptions,
    described: options.MachineOptions,
    *,
    only: bool,
    targets: tuple[str, ...],
    machines: tuple[str, ...],
    script: Path | None,
) -> Outcome:
    """Compare the locks with the request, with the sources and with each other."""
    from gpuinstall.lock.check import DeclaredUse
    from gpuinstall.lock.strangers import with_locked_builds

    run = _lock_run(terminal, request, script, only=only)
    selected = _machines(machines, described, terminal)
    with open_project(run.folder, run.settings, terminal) as project:
        declared = project.read_folder_request()
        wanted, session = project.request_for(declared.listed), project.session
        named = targets or (() if selected else project.config.targets)
        every = not targets and bool(named)
        use = DeclaredUse(tuple(named), tuple(selected), every, run.request.has_requirements)
        catalog = with_locked_builds(project.catalog, run.folder, session)
        return _check(
            run.folder,
            wanted,
            catalog,
            use,
            None if run.settings.request.sourcing.offline else session,
        )


@command.command(
    "cover", help='Write the fewest locks that cover a range: --gpu "RTX 30" --driver ">=470".'
)
@options.request_options
@options.only
@options.machine_words
@click.option("--all-supported", is_flag=True, help="Cover all known GPUs, with every driver.")
@_PER_TARGET
@options.upgrade
@options.upgrade_package
@_PRUNE
@framed("lock")
def cover_command(
    terminal: Terminal,
    request: options.RequestOptions,
    described: options.MachineOptions,
    *,
    only: bool,
    all_supported: bool,
    per_target: str | None,
    upgrade: bool,
    packages: tuple[str, ...],
    prune: bool,
) -> Outcome:
    """Write the fewest locks for a range of GPUs and drivers."""
    from gpuinstall.lock.write import LockOptions
    from gpuinstall.plan.requirement import normalised

    if bool(described.gpu) == all_supported:
        message = "lock cover requires either --gpu or --all-supported"
        raise UsageError(
            "range-missing", message, hint="gpuinstall lock cover --gpu NAME --driver VERSION"
        )
    run = _lock_run(terminal, request, None, only=only)
    with open_project(run.folder, run.settings, terminal) as project:
        declared = project.read_folder_request()
        moving = tuple(map(normalised, packages))
        newest = per_target == "newest"
        return _cover(
            described,
            LockOptions(run.folder, (), declared, upgrade, moving, newest, prune),
            project,
        )


@command.command("diff", help="Compare two locks.")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@framed("lock")
def diff_command(_terminal: Terminal, old: Path, new: Path) -> Outcome:
    """Compare two locks."""
    from gpuinstall.lock.lock import compare_locks, read_lock

    changes = compare_locks(read_lock(old), read_lock(new))

    def show(screen: Terminal) -> None:
        for change in changes:
            screen.line(str(change))
        if not changes:
            screen.line("the two locks are identical")

    return Outcome({"changes": [change._asdict() for change in changes]}, show)


@command.command("merge", help="For git's merge driver: combine the requests of two locks in OURS.")
@click.argument("ours", type=click.Path(path_type=Path))
@click.argument("theirs", type=click.Path(path_type=Path))
@framed("lock")
def merge_command(_terminal: Terminal, ours: Path, theirs: Path) -> Outcome:
    """Combine the requests of two locks."""
    from gpuinstall.files import write_atomically
    from gpuinstall.lock.lock import both_asked, read_lock

    lock = both_asked(read_lock(ours), read_lock(theirs))
    write_atomically(ours, lock.text)
    text = f"{' '.join(lock.inputs)}; run gpuinstall lock to resolve them"
    return Outcome({"inputs": list(lock.inputs)}, lambda screen: screen.field("Merged", text))


@command.command("download", help="Download every file of the locks into DIR.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@options.fetching
@framed("lock")
def download_command(terminal: Terminal, folder: Path, *, sourcing: Sourcing) -> Outcome:
    """Download the files of the locks."""
    from gpuinstall.lock.fetch import download
    from gpuinstall.lock.fit import read_locks

    with open_project(Path.cwd(), Settings(Request((), sourcing=sourcing)), terminal) as project:
        names = download(read_locks(Path.cwd()), folder, project.session)
    data = {"folder": str(folder), "files": names}
    return Outcome(
        data, lambda screen: screen.field("Files", f"{len(names)} in {folder}, all hashes verified")
    )


@command.command("audit", help="List known vulnerabilities in the locks; exit 6 if there are any.")
@options.offline
@framed("lock")
def audit_command(terminal: Terminal, *, offline: bool) -> Outcome:
    """Look for known vulnerabilities."""
    from gpuinstall.lock.audit import advisories
    from gpuinstall.lock.fit import read_locks

    locks = read_locks(Path.cwd())
    request = Request((), sourcing=Sourcing(offline=offline))
    with open_project(Path.cwd(), Settings(request), terminal) as project:
        rows = [row for lock in locks for row in advisories(lock, project.session)]
    lines = []
    for row in rows:
        package = row["dependency"]
        found = f"{row['display_id']}: {row['summary']}"
        lines.append(f"{row['lock']}: {package['name']} {package['version']}, {found}")

    def show(screen: Terminal) -> None:
        for line in lines:
            screen.field("Audit", line)
        if not lines:
            screen.field(
                "Audit", f"{len(locks)} lock{'s' * (len(locks) > 1)}, no known vulnerabilities"
            )

    data = {"vulnerabilities": rows}
    if not rows:
        return Outcome(data, show)
    errors = tuple(
        error_entry(LockError("vulnerable", line, hint="gpuinstall lock --upgrade"))
        for line in lines
    )
    return Outcome(data, show, status="error", exit_code=LockError.exit_code, errors=errors)


class _LockRun(NamedTuple):
    """Where locks lie, and what is requested: a script's own, or the folder's."""

    folder: Path
    request: options.RequestOptions
    settings: Settings


def _lock_run(
    terminal: Terminal,
    request: options.RequestOptions,
    script: Path | None,
    *,
    only: bool,
) -> _LockRun:
    folder = Path.cwd()
    if script:
        from gpuinstall.install.scripts import Script, read_script

        alone = read_script(script, request.requirements) or Script(
            script, request.requirements, None
        )
        folder, only = alone.locks, True
        folder.mkdir(exist_ok=True)
        request = request._replace(
            requirements=alone.requirements, python=request.python or alone.python
        )
    settings = options.read_settings(request, options.MachineOptions(), terminal)
    settings = replace(settings, only=only)
    if script:
        bounded = replace(settings.request, constraints=alone.constraints)
        settings = replace(settings, request=bounded, source_settings=alone.settings)
    return _LockRun(folder, request, settings)


def _machines(
    files: Sequence[str], described: options.MachineOptions, terminal: Terminal
) -> list[Machine]:
    """Read the machines that are named, by files and in words."""
    machines = [options.read_machine_file(name, terminal) for name in files]
    if any(described):
        machines.append(options.read_selected_machine(described, terminal))
    return machines


def _write(options: LockOptions, session: Session) -> Outcome:
    from gpuinstall.lock.write import differences, unnamed_locks, write_locks

    made = write_locks(options, session)
    apart = differences(made, options.requests[0].catalog.family)
    unnamed = unnamed_locks(options.folder, {written.lock.target for written in made})
    for path in unnamed:
        if options.prune:
            path.unlink()
        else:
            session.reporter.warn(
                f"{path.name} is for none of the targets; gpuinstall lock --prune removes it"
            )
    data = {
        "locks": [written.to_dict() for written in made],
        "differences": [difference._asdict() for difference in apart],
        "removed": [str(path) for path in unnamed] if options.prune else [],
    }
    return Outcome(data, lambda screen: _show_written(screen, made, apart))


def _cover(described: options.MachineOptions, wanted: LockOptions, project: Project) -> Outcome:
    """Write the fewest locks for a range, and say what each adds to those before it."""
    from gpuinstall.fleet.classes import classes_in, spanned
    from gpuinstall.fleet.fleet_plan import plan_fleet
    from gpuinstall.fleet.locks import lock_request
    from gpuinstall.install.space import sizes
    from gpuinstall.lock.lock import read_lock
    from gpuinstall.units import readable

    request, catalog = project.request_for(wanted.asked.listed), project.catalog
    classes = classes_in(described.gpu, described.driver, described.arch or "x86_64", catalog)
    plan = plan_fleet(classes, request, catalog, newest=wanted.newest)
    if not plan.groups:
        raise NoBuildError(
            "no-build", "no build of torch runs on any GPU of this range", hint="gpuinstall table"
        )
    requests = tuple(lock_request(group, plan, request, catalog) for group in plan.groups)
    if twice := [
        tag for tag, count in Counter(wish.label for wish in requests).items() if count > 1
    ]:
        message = f"this range requires two versions of torch for {twice[0]}; a folder holds one lock for each"
        raise NoBuildError(
            "targets-disagree", message, hint="Leave out --per-target newest, or name fewer GPUs"
        )
    apart = len({group.build.torch for group in plan.groups}) > 1
    written = _write(wanted._replace(requests=requests, newest=apart), project.session)
    rows: list[dict[str, Any]] = []
    held = set[str | None]()
    for group, entry in zip(plan.groups, written.data["locks"], strict=True):
        lock = read_lock(Path(entry["path"]))
        size = sizes(lock.files, {}, (), project.session)
        new = sum(count for file, count in size.items() if file.sha256 not in held)
        held |= {file.sha256 for file in size}
        serves = spanned(classes[position] for position in group.classes)
        rows.append(
            {"target": lock.target, "serves": serves, "bytes": sum(size.values()), "added": new}
        )
    without = spanned(classes[position] for position in plan.uncovered)

    def show(screen: Terminal) -> None:
        written.show(screen)
        for row in rows:
            bytes_ = (
                f"{readable(row['bytes'])}, {readable(row['added'])} of it not in the locks above"
            )
            screen.field("Serves", f"{row['target']}: {row['serves']} ({bytes_})")
        if without:
            screen.field("Uncovered", f"no build runs on {without}")

    return written._replace(data={**written.data, "cover": rows, "unserved": without}, show=show)


def _check(
    folder: Path, request: Request, catalog: Catalog, declared: DeclaredUse, session: Session | None
) -> Outcome:
    from gpuinstall.lock.check import check_locks

    checked = check_locks(folder, request, catalog, declared, session)
    stale = [row for row in checked if row.reasons]
    errors = []
    for row in stale:
        message = f"{row.lock.name} is stale: {'; '.join(reason.message for reason in row.reasons)}"
        errors.append(error_entry(LockError("lock-stale", message, hint=row.command)))
    return Outcome(
        {"locks": [row.to_dict() for row in checked]},
        lambda screen: _show_checked(screen, checked),
        status="error" if stale else "success",
        exit_code=LockError.exit_code if stale else 0,
        errors=tuple(errors),
    )


def _show_written(
    terminal: Terminal, made: Sequence[Written], apart: Sequence[TargetDifference]
) -> None:
    private: dict[str, list[str]] = {}
    for written in made:
        lock, name = written.lock, written.path.name
        terminal.field(
            "Lock",
            f"{name}: {len(lock.pylock.packages)} packages, {lock.pinned_by} ({written.status})",
        )
        for source in written.private:
            private.setdefault(source, []).append(name)
    for source, names in private.items():
        terminal.warn(f"{', '.join(names)}: can be installed only where {source} is reachable")
    for row in apart:
        terminal.field("Apart", f"{row.package} {row.version} for {row.target}: {row.why}")


def _show_checked(terminal: Terminal, checked: Sequence[CheckedLock]) -> None:
    for row in checked:
        terminal.field("Lock", f"{row.lock.name} is {'stale' if row.reasons else 'fresh'}")
        for reason in row.reasons:
            terminal.prose(f"{'':11} {reason.message}", 12)
    for command in dict.fromkeys(row.command for row in checked if row.reasons):
        terminal.line(f"  do    {command}")
