"""Actions for environment states, as a table without files or uv."""

from pathlib import Path

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import LockError, MachineError
from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.environments.stamp import Stamp
from gpuinstall.install.state import (
    Action,
    ExistingEnvironment,
    InstallOptions,
    InstallState,
    check_lock_files,
)
from gpuinstall.lock.file.lock import parse
from gpuinstall.lock.request.lock_request import LockRequest
from tests.frozen import frozen_catalog
from tests.unit.install.environments import MARKER, lock_text

PATHS = EnvironmentPaths(Path("/project/.venv"))
MACHINE = Machine("linux", "x86_64", "glibc", "2.36", pythons=("3.12.1",))
OPTIONS = InstallOptions()
CPU = Request(("torch",), backend="cpu")
CATALOG = frozen_catalog()


def lock(torch="2.14.1+cpu", name="pylock.cpu.toml"):
    return parse(name, lock_text(torch))


def environment(held, *locks, is_proven=True, status="passed"):
    """Return an environment created from ``held``, next to ``locks``."""
    facts = {"lock": held.name, "lock_sha256": held.sha256, "packages": held.versions}
    stamp = Stamp("", {}, {"torch": {}}, {"status": status})
    return ExistingEnvironment(
        PATHS,
        False,
        replace(MARKER, **facts),
        held,
        held.versions,
        has_python=True,
        locks=locks,
        stamp=stamp if is_proven else None,
    )


def state(
    existing,
    options=OPTIONS,
    *,
    machine=MACHINE,
    request=CPU,
    here=MACHINE,
):
    requested = LockRequest(machine, request, CATALOG)
    return check_lock_files(InstallState(existing, requested, here, options))


LOCKED = InstallOptions(locked=True)
UPGRADE = InstallOptions(upgrade=True)
OLDER = lock("2.13.0+cpu")
NEWER = lock("2.14.1+cpu")
CUDA = lock("2.14.1+cu126", "pylock.cu126.toml")
NOTHING = ExistingEnvironment(PATHS)
FITTING = replace(NOTHING, locks=(NEWER,))
OTHERS = replace(NOTHING, locks=(CUDA,))
PROVEN = environment(NEWER, NEWER)
ALONE = environment(NEWER)
UNPROVEN = environment(NEWER, NEWER, status="unproven")
OUTDATED = environment(OLDER, OLDER)
BROKEN = replace(
    MACHINE,
    problems=(Finding("driver-library-mismatch", "differ", fixes=("sudo reboot",)),),
)

EXAMPLES = {
    "nothing there": (state(NOTHING), "a new one"),
    "a lock that fits": (state(FITTING), "the folder's"),
    "a lock for other machines": (state(OTHERS), "a new one"),
    "a lock, and an upgrade": (state(FITTING, UPGRADE), "a new one"),
    "its own lock, proven": (state(PROVEN), "is none"),
    "its own lock alone, proven": (state(ALONE), "is none"),
    "its own lock alone, and only the folder's count": (
        state(ALONE, LOCKED),
        "lock-missing",
    ),
    "proven on another machine": (
        state(environment(NEWER, NEWER, is_proven=False)),
        "is proven",
    ),
    "not proven yet": (state(UNPROVEN), "is proven"),
    "not proven yet, and the GPUs are elsewhere": (
        state(UNPROVEN, here=None),
        "is none",
    ),
    "the folder's lock was updated": (
        state(environment(OLDER, NEWER)),
        "the folder's",
    ),
    "made of the lock, and changed by hand": (
        state(replace(PROVEN, versions={"torch": "2.13.0+cpu"})),
        "the folder's",
    ),
    "made of the lock, with a package of the user's": (
        state(replace(PROVEN, versions={"torch": "2.14.1+cpu", "cowsay": "6.1"})),
        "is none",
    ),
    "made of the lock, and without a Python": (
        state(replace(PROVEN, has_python=False)),
        "the folder's",
    ),
    "made of the lock, and without its pip": (
        state(replace(PROVEN, lacks_pip=True)),
        "the folder's",
    ),
    "an upgrade": (state(PROVEN, UPGRADE), "a new one"),
    "no lock, and none is to be made": (state(NOTHING, LOCKED), "lock-missing"),
    "no lock that fits, and none is to be made": (
        state(OTHERS, LOCKED),
        "lock-does-not-fit",
    ),
    "no lock of the target": (
        state(FITTING, InstallOptions(locked=True, target="cu126")),
        "lock-missing",
    ),
    "another torch is asked for": (
        state(OUTDATED, request=Request(("torch==2.14.1",), backend="cpu")),
        "a new one",
    ),
}


def test_install_state_determines_lock_and_action():
    found = {name: outcome(there) for name, (there, _) in EXAMPLES.items()}
    assert found == {name: expected for name, (_, expected) in EXAMPLES.items()}


def outcome(there):
    """Return the action for a state, and the source of the lock."""
    if there.action is not Action.BUILD:
        return f"is {there.action.value}"
    if there.fit:
        return "the folder's"
    try:
        there.check_lockable()
    except LockError as refused:
        return refused.code
    return "a new one"


def test_upgrade_with_unchanged_lock_requires_no_action():
    upgraded = state(ALONE, UPGRADE)
    fit = state(PROVEN).fit
    assert (upgraded.action, upgraded.find_action(fit)) == (
        Action.BUILD,
        Action.NOTHING,
    )


@pytest.mark.parametrize(
    "existing",
    [
        replace(NOTHING, locks=(CUDA, NEWER)),
        environment(CUDA, CUDA),
        environment(CUDA),
    ],
)
def test_incompatible_lock_is_reported_with_or_without_environment(existing):
    assert [misfit.candidate for misfit in state(existing).misfits] == [CUDA]


@pytest.mark.parametrize("locked", [False, True])
def test_machine_error_is_reported_before_lock_errors(locked):
    there = state(
        OTHERS,
        InstallOptions(locked=locked),
        machine=BROKEN,
        request=Request(("torch",)),
    )
    with pytest.raises(MachineError) as refused:
        there.check_lockable()
    assert refused.value.data is not None
