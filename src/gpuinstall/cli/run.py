"""``gpuinstall run``: a command in the environment, after the check that it still fits this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from errno import ENOENT
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.errors import InstallationError, LockError, UsageError
from gpuinstall.files import check_cache, is_of_this_user, make_private_folder, restore_umask
from gpuinstall.in_use import claim, hold, share
from gpuinstall.project import Project, Settings, open_project
from gpuinstall.receipt import activated, receipt_of
from gpuinstall.reporter import SilentReporter
from gpuinstall.request import Request
from gpuinstall.shell import quoted
from gpuinstall.sourcing import Sourcing

if TYPE_CHECKING:
    from typing import NoReturn

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.install.scripts import Script
    from gpuinstall.receipt import Receipt


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, required=True, metavar="CMD [ARG]...")
@options.venv
@click.option(
    "--any",
    "several",
    is_flag=True,
    help="Choose among the environments .venv-cu126, … as sync does.",
)
@click.option(
    "--proof/--no-proof", default=True, help="With --any: run kernels once on each machine."
)
@click.option(
    "--install",
    "missing",
    is_flag=True,
    help="With --any: install the environment if it is missing.",
)
@click.option(
    "--replace",
    "replacing",
    is_flag=True,
    help="With --install: also replace what gpuinstall did not make.",
)
@options.wheels
@click.option(
    "--allow-cpu",
    is_flag=True,
    envvar="GPUINSTALL_ALLOW_CPU",
    help="With --any: without a GPU, use the CPU.",
)
@click.option(
    "--with",
    "extra",
    multiple=True,
    metavar="REQ",
    help="More requirements, for this command alone.",
)
@options.sourcing
@framed("run")
def command(
    terminal: Terminal,
    words: tuple[str, ...],
    *,
    extra: tuple[str, ...],
    venv: str,
    several: bool,
    proof: bool,
    missing: bool,
    replacing: bool,
    allow_cpu: bool,
    sourcing: Sourcing,
) -> Outcome:
    """Run a command in the environment, without activating it."""
    receipt = receipt_of(sys.argv[2:]) if sys.argv[1:2] == ["run"] else None
    if receipt and receipt.command != [*words]:  # other options than the receipt's
        receipt = None
    command_words = [*words]
    if words[0].endswith(".py") and Path(words[0]).is_file():
        from gpuinstall.install.scripts import read_script

        # To Python, a word that begins with a dash would be an option.
        file = f"./{words[0]}" if words[0].startswith("-") else words[0]
        command_words = ["python", file, *words[1:]]
        if not several and (script := read_script(Path(file), extra)):
            paths, evidence = _environment_of(script, extra, terminal, sourcing)
            _become(command_words, paths, receipt, evidence)
    if extra and not several:
        paths, evidence = _environment_with(extra, Path(venv).absolute().parent, terminal, sourcing)
        _become(command_words, paths, None, evidence)
    chosen = Settings(Request((), sourcing=sourcing), only=True, anew=True, venv=Path(venv))
    folder = Path(venv).absolute().parent if several else Path.cwd()
    with open_project(folder, chosen, terminal) as project:
        if several:
            from gpuinstall.install.start import environment_to_start

            paths, evidence = environment_to_start(
                project, proof=proof, installing=missing, replacing=replacing, allow_cpu=allow_cpu
            )
        else:
            from gpuinstall.cli.hook import refresh
            from gpuinstall.environments.records import say_stranger

            paths, evidence = project.paths, _check_fitness(project)
            say_stranger(paths.venv, terminal)
            hooks = refresh(project) if evidence else None
            evidence = [] if hooks is None else [*evidence, *hooks, str(Path(words[0]).absolute())]
    _become(command_words, paths, receipt, evidence)


def _environment_of(
    script: Script, extra: tuple[str, ...], terminal: Terminal, sourcing: Sourcing
) -> tuple[EnvironmentPaths, list[str]]:
    """The proven environment of a script's request, where it fits this machine, and what says that it does."""
    request = Request(
        script.requirements, script.python, constraints=script.constraints, sourcing=sourcing
    )
    while True:
        paths = _held(script)
        settings = Settings(request, only=True, venv=paths.venv, source_settings=script.settings)
        with open_project(paths.folder, settings, terminal) as project:
            try:
                return paths, _check_fitness(project) + script.evidence
            except (UsageError, LockError) as error:
                if _may_replace(paths, error):
                    from gpuinstall.lock.folder_request import FolderRequest

                    written = FolderRequest(
                        script.requirements,
                        files={str(script.file.absolute()): script.requirements},
                    )
                    project.admit_addresses(written, extra, terminal)
                    try:
                        _install(project)
                    except LockError as error:
                        if error.code == "lock-malformed":
                            error.hint = script.restoring
                        raise
                    return paths, []
        script = script.next()


def _environment_with(
    extra: tuple[str, ...], folder: Path, terminal: Terminal, sourcing: Sourcing
) -> tuple[EnvironmentPaths, list[str]]:
    """Return the proven environment of a folder's request with more requirements."""
    from gpuinstall.install.scripts import Script

    with open_project(folder, Settings(Request((), sourcing=sourcing))) as project:
        declared = project.declaration.whole
    request = (*declared.requirements, *declared.constraints)
    script = Script.of_folder(folder, extra, request)
    while True:
        paths = _held(script)
        settings = Settings(Request(extra, sourcing=sourcing), venv=paths.venv)
        with open_project(folder, settings, terminal) as project:
            try:
                return paths, _check_fitness(project)
            except (UsageError, LockError) as error:
                if _may_replace(paths, error):
                    _install(project)
                    return paths, []
        script = script.next()


def _may_replace(paths: EnvironmentPaths, error: UsageError | LockError) -> bool:
    """Whether an environment in the cache that does not fit may be made anew: no other program runs in it.

    Another shell may have chosen another GPU, or another machine has the same home.
    """
    return isinstance(error, UsageError) or claim(str(paths.folder))


def _held(script: Script) -> EnvironmentPaths:
    """Return where an environment in the cache lies, held until the command ends, with its locks."""
    folder = script.paths.folder
    make_private_folder(folder)
    while not hold(str(folder)):  # another run has just removed it, as it was unused for long
        make_private_folder(folder)
    # Its name can be foreseen: somebody else may have made an environment there, to be run.
    check_cache(folder, SilentReporter())
    if not is_of_this_user(folder):
        message = f"{folder} belongs to another user, who could change what is run from it"
        raise InstallationError(
            "others-cache", message, hint="export XDG_CACHE_HOME=DIR   # a folder of your own"
        )
    script.bring_locks()
    return script.paths


def _install(project: Project) -> None:
    from gpuinstall.install.install import install
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.install.scripts import remove_unused_scripts

    try:
        install(project, InstallOptions(keep=False))
    except UsageError as error:
        error.hint = _way_round(error, project.paths) or error.hint
        raise
    share(str(project.paths.folder))
    remove_unused_scripts(project.reporter)


def _way_round(error: UsageError, paths: EnvironmentPaths) -> str | None:
    """Return what helps if something of the user's lies in the cache; None for any other error.

    No option of ``run`` replaces it: it is not where the user keeps such things.
    """
    venv = quoted(paths.venv)
    if error.code == "not-ours":
        return f"mv {venv} {quoted(f'{paths.venv}.other')}   # then the same again"
    if error.code == "users-packages" and error.data:
        versions = [text.replace(" ", "==") for text in error.data["packages"]]
        options = " ".join(f"--with {quoted(version)}" for version in versions)
        return (
            f"the same with {options}   # in another environment\n"
            f"gpuinstall env remove --venv {venv} --yes   # without them; then the same again"
        )
    return None


def _check_fitness(project: Project) -> list[str]:
    """Raise UsageError where there is no environment of ours, LockError where it is for another machine.

    Return the files that say that it fits; none for a stranger's, or where there are GPUs that it was never tried on,
    both of which are said each time.
    """
    from gpuinstall.install.inspection import inspect_environment
    from gpuinstall.learned.store import known_catalog
    from gpuinstall.lock.fit import Fit, fit

    venv, existing = project.paths.venv, inspect_environment(project.paths, project.machine)
    marker = existing.marker
    if marker is None or not existing.has_python:
        raise UsageError(
            "environment-missing", f"there is no environment at {venv}", hint="gpuinstall install"
        )
    existing.check_unchanged()
    machine, request = project.machine, Request(backend=marker.backend, python=marker.python)
    if existing.lock and machine.gpus:
        verdict = fit(existing.lock, machine, request, known_catalog())
        if not isinstance(verdict, Fit):
            message = f"{venv} does not fit this machine: {verdict.reason.message}"
            raise LockError("lock-does-not-fit", message, hint="gpuinstall sync")
    if machine.gpus and marker.verdict.get("status") == "unproven":
        project.reporter.warn("this environment is not proven on a GPU yet; run gpuinstall sync")
        return []
    given = project.settings.venv or venv  # which may be a link, and lead elsewhere tomorrow
    return (
        [str((given / "pyvenv.cfg").absolute()), *existing.evidence] if existing.made_here else []
    )


def _become(
    words: list[str], paths: EnvironmentPaths, receipt: Receipt | None, evidence: list[str]
) -> NoReturn:
    """Become the command, whose check is kept; on Windows, start it and end as it does."""
    if receipt and evidence:
        receipt.keep(str(paths.venv), evidence, is_script=words != receipt.command)
    variables = activated(str(paths.venv))
    restore_umask()
    try:
        if (
            os.name == "nt"
        ):  # which would look beside our own Python and in the working folder first
            places = variables["PATH"]
            folder = places.partition(os.pathsep)[0] if Path(words[0]).name == words[0] else ""
            program = shutil.which(str(Path(folder, words[0]))) or shutil.which(
                words[0], path=places
            )
            raise click.exceptions.Exit(
                subprocess.call([program or words[0], *words[1:]], env=variables)
            )
        os.execvpe(words[0], words, variables)  # noqa: S606
    except OSError as error:
        hint = "gpuinstall install NAME   # the package that provides it"
        reason = (
            "no such program in the environment or on PATH"
            if error.errno == ENOENT
            else error.strerror
        )
        raise UsageError(
            "command-missing", f"{words[0]} cannot be run: {reason}", hint=hint
        ) from None
