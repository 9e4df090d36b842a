"""``gpuinstall run``: run a command in the managed environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from errno import ENOENT
from os.path import exists, isfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gpuinstall.base.advice import Advice, Hint, make_command
from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    interpreter,
    packages_folders,
    venv_option,
)
from gpuinstall.base.errors import (
    LockError,
    MachineError,
    UsageError,
)
from gpuinstall.base.files import read_document, restore_umask
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import normalize_name
from gpuinstall.base.text import join_names
from gpuinstall.base.versions import CPU, known_backend
from gpuinstall.cli.active import (
    check_environment_trust,
    enter_project_folder,
    recover_environment,
)
from gpuinstall.cli.options import SOURCING_OPTIONS, CommandOptions
from gpuinstall.cli.outcome import Outcome, define_command
from gpuinstall.environments.records import is_recorded, make_missing_error
from gpuinstall.machine.probe import read_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.base.machine import Machine
    from gpuinstall.environments.environment import Marker
    from gpuinstall.install.state import ExistingEnvironment
    from gpuinstall.lock.file.lock import Lock

_SCRIPT_SETTINGS = """\
# [tool.uv.sources]
# torch = {{ index = "pytorch-{tag}" }}
# torchvision = {{ index = "pytorch-{tag}" }}
# torchaudio = {{ index = "pytorch-{tag}" }}
# [[tool.uv.index]]
# name = "pytorch-{tag}"
# url = {url}
# explicit = true
"""
"""Lines of inline metadata (PEP 723) that select a build of torch."""


@define_command(
    "venv",
    "any_lock",
    "proof",
    "install",
    "require_gpu",
    "wheels",
    *SOURCING_OPTIONS,
    uses_project=False,
    # Options after CMD are arguments of CMD.
    context_settings={"allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, required=True, metavar="CMD [ARG]...")
def run_command(options: CommandOptions, words: tuple[str, ...]) -> Outcome:
    """Check the environment, and replace this process with the command."""
    command_words = list(words)
    if words[0].endswith(".py") and isfile(words[0]):
        # Python would parse a file name that starts with a dash as an option.
        file = f"./{words[0]}" if words[0].startswith("-") else words[0]
        command_words = ["python", file, *words[1:]]
        if not options.any_lock and _has_metadata(Path(file)):
            raise _make_inline_metadata_error(file, words[1:], options)
    with enter_project_folder(options.terminal):
        if options.any_lock:
            paths = _select_environment(options)
        else:
            paths = options.read_paths()
            machine = read_machine(options.terminal)
            recover_environment(paths, options.terminal)
            arguments = command_words[1:] if command_words[0] == "python" else ()
            existing = _check_environment(paths, machine, options, arguments=arguments)
            _check_projects(existing, options.terminal)
            check_environment_trust(paths.venv, options.terminal)
    _execute(command_words, paths)


def _select_environment(options: CommandOptions) -> EnvironmentPaths:
    """Return the environment of the lock file that fits this machine."""
    from gpuinstall.install.start import select_environment

    folder = options.read_paths(is_read_only=True).folder
    with options.open_project(
        folder=folder, only=True, ignores_existing_backend=True
    ) as project:
        if options.require_gpu:
            _check_gpu(project.machine)
        return select_environment(
            project, proof=options.proof, installing=options.install
        )


def _has_metadata(script: Path) -> bool:
    """Return whether a script has inline metadata (PEP 723)."""
    with suppress(OSError, ValueError):
        return bool(re.search(r"(?m)^# /// script\s*$", read_document(script, None)))
    return False


def _make_inline_metadata_error(
    script: str, arguments: Sequence[str], options: CommandOptions
) -> UsageError:
    """Return an error for inline metadata, with alternative commands."""
    from gpuinstall.plan import choose

    with options.open_project(is_read_only=True) as project:
        choice = choose(project.machine, Request(), project.catalog).choice
        index = project.sources.addresses.torch_index
    note = ""
    settings: list[str] = []
    if choice:
        tag = choice.build.backend.tag
        note = f"with these lines in its metadata block, for the {tag} build of torch:"
        url = json.dumps(f"{index}/{tag}")
        settings = _SCRIPT_SETTINGS.format(tag=tag, url=url).splitlines()
    return UsageError(
        "inline-metadata",
        f"{script} has inline metadata, which only uv installs",
        hint=(
            Advice("uv", ("run", script, *arguments), note=note),
            *settings,
            make_command("run python", script, *arguments, note="in .venv"),
        ),
    )


def _check_gpu(machine: Machine) -> None:
    """Raise MachineError if no GPU of a machine can be used."""
    cause = _explain_unusable_gpus(machine)
    if cause:
        message = f"no GPU can be used on this machine: {cause}"
        raise MachineError("no-gpu", message, hint=make_command("doctor"))


def _explain_unusable_gpus(machine: Machine) -> str:
    """Return why no GPU of a machine can be used, or ""."""
    code = "visible-devices-hide-gpus"
    hidden = [one for one in machine.problems if one.code == code]
    for problem in (*machine.blocking, *hidden):
        return problem.message
    return "" if machine.gpus else "none was found"


def _check_environment(
    paths: EnvironmentPaths,
    machine: Machine,
    options: CommandOptions,
    *,
    arguments: Sequence[str],
) -> ExistingEnvironment:
    """Check that the managed environment exists and supports this machine.

    Args:
        paths: The paths of the environment.
        machine: This machine.
        options: The options of the command.
        arguments: The arguments of Python, if the command runs it.

    Raises:
        UsageError: The folder has no managed environment.
        LockError: Its lock file does not fit this machine.
        MachineError: ``--require-gpu`` was given, and no GPU can be used.
    """
    from gpuinstall.install.state import check_libcuda, inspect_environment

    venv = paths.venv
    if options.require_gpu:
        _check_gpu(machine)
    check_libcuda(venv, machine)
    existing = inspect_environment(paths, machine)
    marker = existing.marker
    if marker is None or not existing.has_python:
        raise _make_environment_error(existing, arguments)
    existing.check_unchanged()
    # Without a GPU, every build runs on the CPU. Warn unless --require-gpu is given.
    if existing.lock and machine.gpus:
        misfit = describe_misfit(venv, existing.lock, marker, machine)
        if misfit:
            raise LockError("lock-does-not-fit", misfit, hint=make_command("sync"))
    elif existing.lock and known_backend(marker.backend) != CPU:
        torch = existing.lock.versions["torch"]
        cause = _explain_unusable_gpus(machine)
        options.terminal.warn(
            f"torch {torch} runs on the CPU because no GPU can be used on this machine: {cause}"
        )
    if machine.gpus and marker.verdict.get("status") == "unproven":
        options.terminal.warn(
            "this environment has not been verified on a GPU yet", make_command("sync")
        )
    return existing


def describe_misfit(venv: Path, lock: Lock, marker: Marker, machine: Machine) -> str:
    """Return why an environment does not fit a machine with GPUs, or ""."""
    from gpuinstall.lock.file.fit import CompatibleLock, check_lock
    from gpuinstall.plan.values import PlanInput
    from gpuinstall.wheels.learned.store import load_extended_catalog

    request = Request(backend=marker.backend, python=marker.python)
    wanted = PlanInput(machine, request, load_extended_catalog())
    verdict = check_lock(lock, wanted)
    if isinstance(verdict, CompatibleLock):
        return ""
    return f"{venv} does not fit this machine: {verdict.reason.message}"


def _check_projects(existing: ExistingEnvironment, reporter: Reporter) -> None:
    """Check that a copied environment does not import the original's projects.

    Raises:
        UsageError: A project would be imported from the original folder.
    """
    venv, misplaced = existing.paths.venv, existing.misplaced_projects
    for package in existing.find_packages(misplaced):
        folder, is_editable = package.read_source() or (None, False)
        if folder and is_editable and exists(folder) and not is_recorded(venv):
            raise UsageError(
                "project-elsewhere",
                f"{package.name} would be imported from {folder}",
                why=f"{venv} was copied",
                hint=make_command(
                    "sync", *venv_option(venv), note="installs it from this folder"
                ),
            )
    if misplaced:
        reporter.warn(
            f"{join_names(sorted(misplaced))} is missing or was installed from a different path",
            make_command("sync"),
        )


def _make_environment_error(
    existing: ExistingEnvironment, arguments: Sequence[str]
) -> UsageError:
    """Return an error for a missing, unmanaged, or broken environment.

    Args:
        existing: The environment.
        arguments: The arguments of Python, if the command runs it.
    """
    venv = existing.paths.venv
    python = existing.paths.find_interpreter()
    if not (existing.marker or exists(python)):
        return make_missing_error(venv, arguments)
    hint: Hint = make_command("install", *venv_option(venv))
    message = f"the Python of {venv} is missing"
    if not existing.marker:
        message = f"{venv} is not an environment that gpuinstall created"
        hint = f"Use its own Python: {python}"
        if arguments:
            hint = Advice(str(python), tuple(arguments), note="its own Python")
    return UsageError("environment-missing", message, hint=hint)


def _execute(words: list[str], paths: EnvironmentPaths) -> NoReturn:
    """Replace this process with a command. On Windows, exit with its status.

    Raises:
        UsageError: The command cannot be started.
    """
    variables = _make_activated_variables(paths.venv)
    restore_umask()
    try:
        if os.name != "nt":
            os.execvpe(words[0], words, variables)  # noqa: S606
        program = _find_windows_program(words[0], variables["PATH"])
        status = subprocess.call([program, *words[1:]], env=variables)
    except OSError as error:
        from gpuinstall.environments.packages import read_packages

        word = words[0]
        reason = error.strerror
        note = "or the package that provides it"
        hint: Hint | None = make_command("install", word, note=note)
        # An unreadable folder on PATH causes another error.
        is_missing = "/" not in word and not shutil.which(word, path=variables["PATH"])
        if error.errno == ENOENT or is_missing:
            reason = "no such program in the environment or on PATH"
            packages = read_packages(packages_folders(paths.venv))
            if normalize_name(word) in {package.name for package in packages}:
                reason, hint = "the package is installed, but has no such program", None
        if word == "-" or exists(word):
            hint = make_command("run python", *words)
        elif "/" in word or word.endswith(".py"):
            reason = "no such file"
            hint = "Check the path; if it is a URL, download it first"
        message = f"{word} cannot be run: {reason}"
        raise UsageError("command-missing", message, hint=hint) from None
    raise click.exceptions.Exit(status)


def _make_activated_variables(venv: Path) -> dict[str, str]:
    """Return the variables of this process with an environment activated."""
    variables = dict(os.environ)
    # PYTHONHOME would select the standard library of another Python.
    variables.pop("PYTHONHOME", None)
    programs = interpreter(venv).parent
    variables["PATH"] = f"{programs}{os.pathsep}{variables.get('PATH', os.defpath)}"
    variables["VIRTUAL_ENV"] = str(venv)
    return variables


def _find_windows_program(word: str, path: str) -> str:
    """Find a program in ``path``, which starts with the environment's folder.

    Windows itself would first search the folder of gpuinstall's Python and the working
    folder.
    """
    is_name = Path(word).name == word
    folder = path.partition(os.pathsep)[0] if is_name else ""
    return (
        shutil.which(str(Path(folder, word))) or shutil.which(word, path=path) or word
    )
