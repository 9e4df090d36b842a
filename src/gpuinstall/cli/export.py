"""``gpuinstall export``: a lock in the formats that other tools read."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.files import read_document, write_in_place
from gpuinstall.base.shell import quoted
from gpuinstall.base.sourcing import Sourcing
from gpuinstall.catalog import load_catalog
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.export.formats import FORMATS, ExportFormat
from gpuinstall.export.pins import local_folders
from gpuinstall.export.tools import MACHINE_TOOLS, words_for
from gpuinstall.sources.web import Client, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.export.needs import MachineNeeds
    from gpuinstall.lock.lock import Lock
    from gpuinstall.project import Project

_NEW = click.Path(path_type=Path, dir_okay=False)
_LOCK = click.option(
    "--lock",
    "path",
    type=options.PATH,
    metavar="FILE",
    help="The lock to export, where there are several.",
)
_OUTPUT = click.option(
    "-o",
    "--output",
    type=_NEW,
    callback=lambda _context, _option, path: None if path == Path("-") else path,
    metavar="FILE",
    help="Write to this file instead of stdout (-).",
)


@click.group("export", help="Write the lock in other tools' formats.")
def command() -> None:
    """Export."""


def _add(format_: ExportFormat) -> None:
    @command.command(format_.name, help=format_.help)
    @_LOCK
    @_OUTPUT
    @framed("export")
    def export(terminal: Terminal, path: Path | None, output: Path | None) -> Outcome:
        from gpuinstall.catalog.extensions import load_extensions

        other_sources = load_catalog().family.union(load_extensions().rows)
        if path is None and format_.name == "pixi" and len(_find_locks()) > 1:
            from gpuinstall.export.pixi_workspace import pixi_workspace
            from gpuinstall.lock.lock import read_lock

            locks = list(map(read_lock, _find_locks()))
            return _outcome("pixi", pixi_workspace(locks, other_sources, load_catalog()), output)
        lock = _read_lock(path)
        folders = local_folders(lock)
        for name, words in folders.items():
            terminal.warn(
                f"{name} is left out, as no hash pins a folder: pip install --no-deps {words}"
            )
        unserved = [name for name in lock.unserved if name not in folders]
        if unserved:
            names = f"{', '.join(unserved)} in {lock.name}"
            terminal.warn(f"{names} is in a local folder: the export works on this machine only")
        return _outcome(format_.name, format_.write(lock, other_sources), output)


for written in FORMATS:
    _add(written)


@command.command("dockerfile", help="Write a Dockerfile that installs the lock.")
@_LOCK
@_OUTPUT
@click.option(
    "--any",
    "several",
    is_flag=True,
    help="Of all locks here, one image that chooses among them at start.",
)
@click.option(
    "--at-start",
    is_flag=True,
    help="With --any: install into a volume at the first start on a host.",
)
@click.option(
    "--wheels", is_flag=True, help="With --at-start: from wheels in the image, without a network."
)
@click.option(
    "--with",
    "extras",
    type=click.Choice(["jupyter", "ssh"]),
    multiple=True,
    help="Serve it (ssh: with --any).",
)
@click.option("--verify", "proof", is_flag=True, help="Run kernels each time a container starts.")
@click.option(
    "--pin",
    "pinned",
    multiple=True,
    metavar="IMAGE@sha256:…",
    help="Pin a base image by its digest.",
)
@framed("export")
def _dockerfile(
    terminal: Terminal,
    path: Path | None,
    output: Path | None,
    extras: tuple[str, ...],
    pinned: tuple[str, ...],
    *,
    several: bool,
    at_start: bool,
    wheels: bool,
    proof: bool,
) -> Outcome:
    from gpuinstall.export import dockerfile as docker

    if several:
        from gpuinstall.lock.lock import read_lock

        locks = map(read_lock, [path] if path else _find_locks())
        image = docker.AnyImage.of(locks, at_start=at_start, wheels=wheels)
        if image.left_out:
            names = ", ".join(lock.name for lock in image.left_out)
            terminal.warn(f"left out, for another platform: {names}")
        return _outcome("dockerfile", image.dockerfile(extras, pinned), output)
    if at_start or wheels or "ssh" in extras:
        raise UsageError(
            "any-missing",
            "--at-start, --wheels and --with ssh require --any",
            hint="Run it again with --any",
        )
    lock = _read_lock(path)
    text = docker.dockerfile(lock, jupyter="jupyter" in extras, proof=proof, pinned=pinned)
    return _outcome("dockerfile", text, output)


@command.command("uv", help="Add a dependency group for each backend to pyproject.toml.")
@click.option(
    "--lock",
    "paths",
    type=options.PATH,
    multiple=True,
    metavar="FILE",
    help="Only this lock (repeatable).",
)
@options.torch_source
@click.option("--remove", is_flag=True, help="Remove what an earlier export wrote.")
@framed("export")
def _uv(
    terminal: Terminal,
    paths: tuple[Path, ...],
    sourcing: Sourcing,
    *,
    remove: bool,
) -> Outcome:
    from gpuinstall.export.uv_project import REPLACED, groups, patched, unpatched
    from gpuinstall.lock.lock import read_lock

    file = Path("pyproject.toml")
    before = _read_project(file)
    if remove:
        after = unpatched(before)
        text = "gpuinstall's lines removed"
    else:
        lock_groups = groups(map(read_lock, paths or _find_locks()), load_catalog().family)
        with options.open_folder(sourcing, terminal) as project:
            after = patched(before, lock_groups, project.sources.torch_index)
        commands = [f"uv sync --group {group.name}" for group in lock_groups]
        text = f"choose with: {' | '.join(commands)}"
    if after != before:
        write_in_place(file, after)
    if REPLACED in after:
        terminal.warn(f"{file} had other values: the old lines are kept above as comments")
    return Outcome(_document("uv", after, file), lambda screen: screen.field(str(file), text))


@command.command("needs", help="Write which machines the locks run on, for people or a tool.")
@click.option(
    "--lock",
    "paths",
    type=options.PATH,
    multiple=True,
    metavar="FILE",
    help="Only this lock (repeatable).",
)
@click.option(
    "--for",
    "tool_name",
    type=click.Choice(list(MACHINE_TOOLS)),
    help="In the words of this tool: a machine for any of the locks.",
)
@click.option(
    "--feature",
    "pairs",
    multiple=True,
    metavar="NAME=GPU",
    help="With --for slurm: what the GPUs of a feature are, as in a100=8.0.",
)
@_OUTPUT
@options.offline
@framed("export")
def _needs(
    terminal: Terminal,
    paths: tuple[Path, ...],
    tool_name: str | None,
    pairs: tuple[str, ...],
    output: Path | None,
    *,
    offline: bool,
) -> Outcome:
    from gpuinstall.export.needs import machine_needs
    from gpuinstall.export.needs_text import describe
    from gpuinstall.lock.lock import read_lock

    features = _parse_features(pairs)
    locks = [read_lock(path) for path in paths or _find_locks()]
    for lock in locks:
        if lock.cuda_compat:
            terminal.warn(
                f"{lock.name} brings cuda-compat: data-centre GPUs run it with older drivers too"
            )
    with options.open_folder(Sourcing(offline=offline), terminal) as project:
        if tool_name is None:
            sizes = _sizes(locks, project)
            needs = []
            for lock in locks:
                needs += machine_needs([lock], project.catalog, sizes)
            text = describe(needs)
        else:
            needs = [_needs_for_gpus(machine_needs(locks, project.catalog))]
            text = words_for(tool_name, needs[0], features)
    outcome = _outcome(tool_name or "needs", text, output)
    outcome.data["needs"] = [one.to_dict() for one in needs]
    return outcome


def _parse_features(pairs: Iterable[str]) -> dict[str, str]:
    """Return a site's own names of GPUs with what they execute, of ``a100=8.0`` or ``big="RTX 4090"``.

    Raises:
        UsageError: if a pair is malformed, or no GPU has the name.
    """
    from gpuinstall.catalog.gpu_names import find_gpu

    features = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if not (name and text):
            message = f"{pair!r} is not a feature with what its GPUs execute"
            raise UsageError(
                "feature-malformed", message, hint="Run it again with --feature a100=8.0"
            )
        if re.fullmatch(r"\d+\.\d", text):
            features[name] = text
        else:
            gpu = find_gpu(text)
            features[name] = str(gpu.capability or gpu.architecture)
    return features


def _needs_for_gpus(needs: list[MachineNeeds]) -> MachineNeeds:
    """Return the needs of the locks for Linux and GPUs, which are to be of one maker and for one processor."""
    for_gpus = [one for one in needs if one.maker and one.os == "linux"] or needs
    if len(for_gpus) > 1:
        groups = [f"{one.maker} on {one.arch} ({', '.join(one.locks)})" for one in for_gpus]
        raise UsageError(
            "several-machines",
            f"the locks are for different machines: {'; '.join(groups)}",
            hint=f"Run it again with --lock {quoted(for_gpus[0].locks[0])}",
        )
    return for_gpus[0]


def _sizes(locks: list[Lock], project: Project) -> dict[str, int | None]:
    """Return the bytes of the locks' files by address: the locks' own, else as the servers say."""
    from gpuinstall.base.threads import side_by_side
    from gpuinstall.export.needs import sizes_in

    sizes = sizes_in(locks)
    if project.sourcing.offline:
        return sizes
    missing = [url for url, size in sizes.items() if size is None]
    answers = side_by_side(partial(_size, project.session.client), missing)
    return {**sizes, **dict(zip(missing, answers, strict=True))}


def _size(client: Client, url: str) -> int | None:
    try:
        return client.head(url).size
    except UnreachableError:
        return None


def _read_lock(path: Path | None) -> Lock:
    """Return the lock that is selected, or the only one of this folder."""
    from gpuinstall.lock.lock import read_lock

    if path is None:
        locks = _find_locks()
        path = locks[0]
        if len(locks) > 1:
            names = ", ".join(map(str, locks))
            raise UsageError(
                "several-locks",
                f"several locks: {names}",
                hint=f"Run it again with --lock {quoted(path)}",
            )
    return read_lock(path)


def _find_locks() -> list[Path]:
    from gpuinstall.lock.declaration import locks_in

    locks = locks_in(Path())
    if not locks:
        raise LockError("lock-missing", "no lock in this folder", hint="gpuinstall lock")
    return locks


def _read_project(path: Path) -> str:
    try:
        return read_document(path, path.parent)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise UsageError(
            "pyproject-unreadable",
            f"{path} cannot be read: {reason}",
            hint="uv init --bare",
        ) from None


def _outcome(format_: str, text: str, output: Path | None) -> Outcome:
    document = _document(format_, text, output)
    if output is None:
        return Outcome(document, lambda screen: screen.block(text))
    write_in_place(output, text)
    return Outcome(document, lambda screen: screen.field("Written", str(output)))


def _document(format_: str, text: str, path: Path | None) -> dict[str, Any]:
    return {
        "format": format_,
        "path": None if path is None else str(path),
        "text": text,
    }
