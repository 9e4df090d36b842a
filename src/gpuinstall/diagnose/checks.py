"""Check the files of an environment and the project around it."""

from __future__ import annotations

import re
from contextlib import suppress
from os.path import exists
from pathlib import Path

from packaging.utils import canonicalize_name

from gpuinstall.base.advice import Advice, environment_advice, make_command
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import read_document, real_path
from gpuinstall.base.finding import Finding, Rejection
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.shell import quote_word
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.catalog import COMPANIONS
from gpuinstall.catalog.failures.problems import finding_for
from gpuinstall.diagnose.evidence import DoctorEvidence, DoctorFindings
from gpuinstall.diagnose.predicates import companions
from gpuinstall.environments.damage import Damage, find_damage, is_configuration_lost
from gpuinstall.environments.environment import (
    describe_changed_packages,
    read_marker,
)
from gpuinstall.environments.guard import read_guard_lines
from gpuinstall.lock.file.fit import check_lock
from gpuinstall.lock.file.folder import read_folder_locks
from gpuinstall.lock.file.lock import find_misplaced_projects
from gpuinstall.lock.request.history import read_environment_lock, was_installed
from gpuinstall.lock.request.pyproject import ProjectFile
from gpuinstall.plan.values import PlanInput
from gpuinstall.sources.gate import list_source_fixes

_POWER_CUT = "a power failure or a full disk interrupted the writing of the file"
_ACTIVATED = re.compile(
    r"^ *(?:export )?VIRTUAL_ENV=(['\"]?)(/[^'\"$\n]+)\1$", re.MULTILINE
)


def uv_undoes_build(evidence: DoctorEvidence) -> DoctorFindings:
    """Report a uv project whose next ``uv sync`` replaces the CUDA build."""
    label = evidence.torch_version.partition("+")[2]
    # uv would install the default index's torch, which has no local version label.
    if not (label.startswith("cu") and _is_undone(evidence.folder)):
        return
    yield finding_for(
        "uv-undoes-build",
        f"the next uv run or uv sync replaces torch {evidence.torch_version} with the default index's build",
        evidence.context.knowing(group=quote_word(f"torch-{label}")),
        why="pyproject.toml requires torch, and [tool.uv.sources] does not set its index",
        entry="F44",
        where="project",
        blocking=False,
    )


def _is_undone(folder: Path) -> bool:
    """Return whether uv would install torch from its default index."""
    # Malformed files are reported when the request is read.
    with suppress(ValueError, UsageError):
        project = ProjectFile.read(folder / "pyproject.toml", folder)
        names = requirement_names(project.dependencies())
        indexes = [index.get("default") for index in project.uv.get("index", ())]
        is_named = "torch" in project.uv.get("sources", ()) or any(indexes)
        return not (is_named or names.isdisjoint({"torch", *COMPANIONS}))
    return False


def stale_locks(evidence: DoctorEvidence) -> DoctorFindings:
    """Report lock files that are unreadable or unsuitable for this machine."""
    misfits = []
    files = read_folder_locks(evidence.folder).files
    for file in files:
        if file.error:
            yield replace(file.error.finding, where="project", blocking=False)
        if file.lock is None:
            continue
        answer = check_lock(
            file.lock,
            PlanInput(evidence.machine, evidence.request, evidence.catalog),
            gate=None if was_installed(file.lock, evidence.venv) else evidence.gate,
        )
        if isinstance(answer, Rejection):
            misfits.append(answer)
    # One compatible lock file is enough, because the others may be for other machines.
    if misfits and len(misfits) == len(files):
        name = misfits[0].candidate.name
        reason = misfits[0].reason
        yield Finding(
            f"lock-{reason.code}",
            f"no lock file in this folder fits this machine: {name}: {reason.message}",
            fixes=tuple(list_source_fixes({reason.code})) or (make_command("lock"),),
            where="project",
            blocking=False,
        )


def changed_by_hand(evidence: DoctorEvidence) -> DoctorFindings:
    """Report packages that another tool changed in a managed environment."""
    marker = read_marker(evidence.venv)
    if marker is None:
        return
    versions = {package.name: package.version for package in evidence.packages}
    changes = describe_changed_packages(versions, marker.packages)
    lock = read_environment_lock(evidence.venv)
    if lock:
        for name in find_misplaced_projects(lock, evidence.folder, evidence.packages):
            changes.setdefault(
                name, f"{name} is missing or was installed from a different path"
            )
    changed = join_names([*changes.values()])
    if changed:
        yield evidence.fault(
            "changed-by-hand",
            changed,
            why="pip, uv, or another program changed it",
            fixes=(environment_advice(evidence.venv, "sync"),),
            blocking=False,
        )


def environment_moved(evidence: DoctorEvidence) -> DoctorFindings:
    """Report an unmanaged environment if its scripts contain another path.

    The activation scripts of managed environments find their own path.
    """
    if read_marker(evidence.venv):
        return
    line = None
    with suppress(OSError, ValueError):
        line = _ACTIVATED.search(
            read_document(
                interpreter(evidence.venv).with_name("activate"), evidence.venv
            )
        )
    # There is no match if the script is missing or finds its own path.
    activated = Path(line[2]) if line else evidence.venv
    if real_path(activated) != real_path(evidence.venv):
        yield evidence.fault(
            "environment-moved",
            f"{evidence.venv} was moved or copied: its activate script points to {activated}",
            why="its scripts contain the old path, so they start another Python or fail",
            fixes=(evidence.install_advice(recreate=True),),
        )


def configuration_lost(evidence: DoctorEvidence) -> DoctorFindings:
    """Report an environment whose ``pyvenv.cfg`` is empty."""
    python = interpreter(evidence.venv)
    if not (is_configuration_lost(evidence.venv) and exists(python)):
        return
    fix = Advice(
        "uv",
        (
            "venv",
            "--allow-existing",
            "--python",
            str(python.resolve()),
            str(evidence.venv),
        ),
        note="recreates the file and keeps the packages",
    )
    yield evidence.fault(
        "configuration-lost",
        f"{evidence.venv / 'pyvenv.cfg'} is empty",
        why=_POWER_CUT,
        fixes=(fix,),
    )


def files_damaged(evidence: DoctorEvidence) -> DoctorFindings:
    """Report packages with missing, truncated, or modified files.

    Missing and truncated files of the torch family or its dependencies are a blocking problem.
    """
    packages = evidence.by_name
    family = packages.keys() & {"torch", *evidence.catalog.family}
    # torch imports its dependencies.
    needed = family | {
        canonicalize_name(one.name)
        for name in family
        for one in packages[name].read_requirements()
    }
    for damage in find_damage(evidence.packages):
        package = damage.package
        is_modified = damage.kind == "modified"
        yield evidence.fault(
            "no-record" if damage.kind == "no-record" else f"files-{damage.kind}",
            damage.message,
            why=_cause(damage),
            entry="F167" if package.name == "torch" and not is_modified else None,
            fixes=evidence.reinstall(
                package,
                is_in_cache=damage.is_in_cache,
                note="overwrites your edits" if is_modified else "",
            ),
            blocking=package.name in needed and not is_modified,
        )


def _cause(damage: Damage) -> str:
    match damage.kind:
        case "no-record":
            return f"{_POWER_CUT}; more of its files may be empty"
        case "missing":
            return "they were removed after the installation"
        case "truncated":
            return "they were shortened after the installation"
        case "modified" if damage.is_in_cache:
            return "the edit also changed uv's cache and other environments, which share the file"
        case "modified":
            return "you or another program edited it"


def torch_twice(evidence: DoctorEvidence) -> DoctorFindings:
    """Report that one site-packages folder contains several torch versions."""
    copies = [package for package in evidence.packages if package.name == "torch"]
    if len(copies) > 1:
        versions = ", ".join(package.version for package in copies)
        yield evidence.fault(
            "torch-twice",
            f"torch is installed {len(copies)} times in one environment: {versions}",
            why="the folder contains files of several versions",
            entry="F34",
            fixes=(evidence.install_advice(recreate=True),),
        )


def companions_of_another_torch(evidence: DoctorEvidence) -> DoctorFindings:
    """Report torchvision or torchaudio for another build of torch."""
    for entry, message in companions(evidence).causes.items():
        name = message.partition(" ")[0]
        yield evidence.fault(
            f"{name}-mismatch",
            message,
            entry=entry,
            why="they were not installed together",
            fixes=(
                evidence.install_advice("torch", name, note="install both together"),
            ),
        )


def guard_passed(evidence: DoctorEvidence) -> DoctorFindings:
    """Report an unmanaged environment whose verified torch was replaced."""
    version = evidence.torch_version
    for line in read_guard_lines(evidence.venv):
        name, _, proven = line.partition("==")
        if name == "torch" and version != proven and not evidence.has_lock:
            found = f"torch {version} is installed" if version else "torch is missing"
            yield evidence.fault(
                "guard-passed",
                f"{found}, but torch {proven} was verified",
                why="an installer that ignores the environment's pip and uv settings replaced it",
                fixes=(environment_advice(evidence.venv, "install", "--into"),),
            )


CHECKS = (
    environment_moved,
    configuration_lost,
    files_damaged,
    torch_twice,
    companions_of_another_torch,
    guard_passed,
    uv_undoes_build,
    stale_locks,
    changed_by_hand,
)
