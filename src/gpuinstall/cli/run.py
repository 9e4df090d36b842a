"""``gpuinstall run``: a command in the environment, after the check that it still fits this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from errno import ENOENT
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.base.backend import CPU, known_backend
from gpuinstall.base.errors import InstallationError, LockError, MachineError, UsageError
from gpuinstall.base.files import check_cache, is_of_this_user, make_private_folder, restore_umask
from gpuinstall.base.in_use import claim, hold, share
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.request import Request
from gpuinstall.base.shell import quoted
from gpuinstall.base.sourcing import Sourcing
from gpuinstall.cli.options import SOURCING, CommandOptions
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.environments.receipt import activated, receipt_of
from gpuinstall.project import Project, Settings, open_project

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from gpuinstall.base.environment_paths import EnvironmentPaths
    from gpuinstall.base.machine import Machine
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.environments.cuda_compat.libraries import CompatLibraries
    from gpuinstall.environments.receipt import Receipt
    from gpuinstall.install.scripts import Script

    FitnessCheck = Callable[[Project], list[str]]


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, required=True, metavar="CMD [ARG]...")
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
@click.option("--require-gpu", is_flag=True, help="End with 8 if no GPU can be used.")
@click.option(
    "--with",
    "extra",
    multiple=True,
    metavar="REQ",
    help="More requirements, for this command alone.",
)
@framed("run", "venv", "wheels", *SOURCING)
def command(
    terminal: Terminal,
    options: CommandOptions,
    words: tuple[str, ...],
    *,
    extra: tuple[str, ...],
    several: bool,
    proof: bool,
    missing: bool,
    replacing: bool,
    require_gpu: bool,
) -> Outcome:
    """Run a command in the environment, without activating it."""
    sourcing = options.sourcing
    check = partial(_check_fitness, require_gpu=require_gpu)
    command_words = list(words)
    receipt = None
    if sys.argv[1:2] == ["run"]:
        receipt = receipt_of(sys.argv[2:])
        if receipt and receipt.command != command_words:  # other options than the receipt's
            receipt = None
    if words[0].endswith(".py") and Path(words[0]).is_file():
        from gpuinstall.install.scripts import read_script

        # To Python, a word that begins with a dash would be an option.
        file = f"./{words[0]}" if words[0].startswith("-") else words[0]
        command_words = ["python", file, *words[1:]]
        script = None if several else read_script(Path(file), extra)
        if script:
            paths, evidence = _script_environment(script, extra, terminal, sourcing, check)
            _become(command_words, paths, receipt, evidence)
    folder = (options.venv or Path()).absolute().parent
    if extra and not several:
        paths, evidence = _environment_with(extra, folder, terminal, sourcing, check)
        _become(command_words, paths, None, evidence)
    with options.open(
        terminal, folder=folder if several else None, only=True, anew=True, starts=True
    ) as project:
        if several:
            if require_gpu:
                _check_gpu(project.machine)
            from gpuinstall.install.start import environment_to_start

            paths, evidence = environment_to_start(
                project,
                proof=proof,
                installing=missing,
                replacing=replacing,
            )
        else:
            paths = project.paths
            evidence = _checked_environment(project, words[0], check)
        libraries = project.compat_libraries
    _become(command_words, paths, receipt, evidence, libraries)


def _checked_environment(project: Project, program: str, check: FitnessCheck) -> list[str]:
    """Check the environment of a folder; return the files by which the next start knows that it still fits."""
    from gpuinstall.environments.records import say_stranger

    evidence = check(project)
    say_stranger(project.paths.venv, project.reporter)
    if not evidence:
        return []
    return [*evidence, str(Path(program).absolute())]


def _environment_with(
    extra: tuple[str, ...],
    folder: Path,
    terminal: Terminal,
    sourcing: Sourcing,
    check: FitnessCheck,
) -> tuple[EnvironmentPaths, list[str]]:
    """Return the proven environment of a folder's request with more requirements, and the files that say so."""
    from gpuinstall.install.scripts import Script

    with open_project(folder, Settings(Request((), sourcing=sourcing))) as project:
        declared = project.declaration.whole
    request = (*declared.requirements, *declared.constraints)
    script = Script.of_folder(folder, extra, request)
    settings = Settings(Request(extra, sourcing=sourcing))
    return _cached_environment(script, settings, extra, terminal, check)


def _script_environment(
    script: Script,
    extra: tuple[str, ...],
    terminal: Terminal,
    sourcing: Sourcing,
    check: FitnessCheck,
) -> tuple[EnvironmentPaths, list[str]]:
    """Return the proven environment of a script's request, and the files that say so."""
    request = Request(
        script.requirements,
        script.python,
        constraints=script.constraints,
        sourcing=sourcing,
    )
    settings = Settings(request, only=True, source_settings=script.settings)
    return _cached_environment(script, settings, extra, terminal, check)


def _cached_environment(
    script: Script,
    settings: Settings,
    extra: tuple[str, ...],
    terminal: Terminal,
    check: FitnessCheck,
) -> tuple[EnvironmentPaths, list[str]]:
    """Return an environment in the cache that fits this machine, and the files that say so; install it if need be."""
    of_folder = script.file.is_dir()
    while True:
        paths = _hold(script)
        folder = script.file if of_folder else paths.folder
        with open_project(folder, replace(settings, venv=paths.venv), terminal) as project:
            try:
                return paths, check(project) + script.evidence
            except (UsageError, LockError) as error:
                if _may_replace(paths, error):
                    if not of_folder:
                        _admit_script(project, script, extra)
                    _install(project, lock_hint=script.restoring)
                    return paths, []
        script = script.next()


def _admit_script(project: Project, script: Script, extra: tuple[str, ...]) -> None:
    """Announce the addresses that a script requires, which may come from a stranger."""
    from gpuinstall.lock.folder_request import FolderRequest

    files = {str(script.file.absolute()): script.requirements}
    declared = FolderRequest(script.requirements, files=files)
    project.admit_addresses(declared, extra, project.reporter)


def _hold(script: Script) -> EnvironmentPaths:
    """Return where an environment in the cache lies, held until the command ends, with its locks."""
    folder = script.paths.folder
    make_private_folder(folder)
    while not hold(str(folder)):
        # Another run has just removed it, as it was unused for long.
        make_private_folder(folder)
    # Its name can be foreseen: somebody else may have made an environment there, to be run.
    check_cache(folder, SilentReporter())
    if not is_of_this_user(folder):
        raise InstallationError(
            "others-cache",
            f"{folder} belongs to another user, who could change what is run from it",
            hint="export XDG_CACHE_HOME=DIR   # a folder of your own",
        )
    script.bring_locks()
    return script.paths


def _may_replace(paths: EnvironmentPaths, error: UsageError | LockError) -> bool:
    """Whether an environment in the cache that does not fit may be made anew: no other program runs in it.

    Another shell may have chosen another GPU, or another machine has the same home.
    """
    return isinstance(error, UsageError) or claim(str(paths.folder))


def _install(project: Project, *, lock_hint: str) -> None:
    """Install in the cache; ``lock_hint`` makes a malformed lock again, if there is such a command."""
    from gpuinstall.install.install import install
    from gpuinstall.install.options import InstallOptions

    try:
        install(project, InstallOptions())
    except UsageError as error:
        error.hint = _way_round(error, project.paths) or error.hint
        raise
    except LockError as error:
        if lock_hint and error.code == "lock-malformed":
            error.hint = lock_hint
        raise
    share(str(project.paths.folder))


def _way_round(error: UsageError, paths: EnvironmentPaths) -> str | None:
    """Return what helps if something of the user's lies in the cache; None for any other error.

    No option of ``run`` replaces it: it is not where the user keeps such things.
    """
    venv = quoted(paths.venv)
    if error.code == "not-ours":
        return f"mv {venv} {quoted(f'{paths.venv}.other')}   # then run it again"
    if error.code == "users-packages" and error.data:
        versions = [package.replace(" ", "==") for package in error.data["packages"]]
        options = " ".join(f"--with {quoted(version)}" for version in versions)
        return (
            f"Run it again with {options}: in another environment\n"
            f"gpuinstall env remove --venv {venv} --yes   # without them; then run it again"
        )
    return None


def _check_gpu(machine: Machine) -> None:
    """Raise MachineError if no GPU can be used."""
    cause = _why_no_gpu(machine)
    if cause:
        message = f"no GPU can be used here: {cause}"
        raise MachineError("no-gpu", message, hint="gpuinstall doctor")


def _why_no_gpu(machine: Machine) -> str:
    """Return why no GPU can be used; "" if one can."""
    for problem in machine.blocking:
        return problem.message
    return "" if machine.gpus else "none was found"


def _check_fitness(project: Project, *, require_gpu: bool) -> list[str]:
    """Check that an environment is ours and fits this machine, with a GPU that can be used if one is required.

    Returns:
        The files that say so; none for a stranger's environment, or one that was never tried on GPUs that are
        here: both are reported each time.

    Raises:
        UsageError: if there is no environment of ours.
        LockError: if it is for another machine.
        MachineError: if no GPU can be used, and one is required.
    """
    from gpuinstall.install.inspection import inspect_environment
    from gpuinstall.lock.fit import Fit, fit
    from gpuinstall.wheels.learned.store import known_catalog

    venv, machine = project.paths.venv, project.machine
    if require_gpu:
        _check_gpu(machine)
    existing = inspect_environment(project.paths, machine)
    marker = existing.marker
    if marker is None or not existing.has_python:
        raise UsageError(
            "environment-missing",
            f"there is no environment at {venv}",
            hint="gpuinstall install",
        )
    existing.check_unchanged()
    if existing.lock and machine.gpus:
        request = Request(backend=marker.backend, python=marker.python)
        verdict = fit(existing.lock, machine, request, known_catalog())
        if not isinstance(verdict, Fit):
            raise LockError(
                "lock-does-not-fit",
                f"{venv} does not fit this machine: {verdict.reason.message}",
                hint="gpuinstall sync",
            )
    if existing.lock and not machine.gpus and known_backend(marker.backend) != CPU:
        torch = existing.lock.versions["torch"]
        cause = _why_no_gpu(machine)
        project.reporter.warn(f"torch {torch} runs on the CPU: no GPU can be used here, {cause}")
        return []
    if machine.gpus and marker.verdict.get("status") == "unproven":
        project.reporter.warn("this environment is not proven on a GPU yet; run gpuinstall sync")
        return []
    if not existing.made_here:
        return []
    # As it was given: it may be a link, and lead elsewhere tomorrow.
    configuration = (project.settings.venv or venv) / "pyvenv.cfg"
    return [str(configuration.absolute()), *existing.evidence]


def _become(
    words: list[str],
    paths: EnvironmentPaths,
    receipt: Receipt | None,
    evidence: list[str],
    libraries: CompatLibraries | None = None,
) -> NoReturn:
    """Become the command, whose check is kept; on Windows, start it and end as it does."""
    folder = libraries.path if libraries else ""
    if receipt and evidence:
        receipt.keep(
            str(paths.venv),
            evidence,
            is_script=words != receipt.command,
            libraries=folder,
        )
    variables = activated(str(paths.venv), folder)
    restore_umask()
    try:
        if os.name != "nt":
            os.execvpe(words[0], words, variables)  # noqa: S606
        program = _windows_program(words[0], variables["PATH"])
        status = subprocess.call([program, *words[1:]], env=variables)
    except OSError as error:
        reason = error.strerror
        if error.errno == ENOENT:
            reason = "no such program in the environment or on PATH"
        raise UsageError(
            "command-missing",
            f"{words[0]} cannot be run: {reason}",
            hint="gpuinstall install NAME   # the package that provides it",
        ) from None
    raise click.exceptions.Exit(status)


def _windows_program(word: str, path: str) -> str:
    """Return the path of a program; Windows would look beside our own Python and in the working folder first."""
    folder = path.partition(os.pathsep)[0] if Path(word).name == word else ""
    return shutil.which(str(Path(folder, word))) or shutil.which(word, path=path) or word
