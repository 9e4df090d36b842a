"""What follows from what is there, as a table: no file is read, no uv is run."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import LockError, MachineError
from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import Marker, fingerprint
from gpuinstall.environments.stamp import Stamp
from gpuinstall.install.state import (
    Action,
    ExistingEnvironment,
    InstallOptions,
    InstallState,
)
from gpuinstall.lock.file.lock import parse
from gpuinstall.lock.request.lock_request import LockRequest
from tests.frozen import frozen_catalog
from tests.unit.install.environments import lock_text

PATHS = EnvironmentPaths(Path("/project/.venv"))
MACHINE = Machine("linux", "x86_64", "glibc", "2.36", pythons=("3.12.1",))
OPTIONS = InstallOptions()
CPU = Request(("torch",), backend="cpu")
CATALOG = frozen_catalog()


def lock(torch="2.14.1+cpu", name="pylock.cpu.toml"):
    return parse(
        name,
        lock_text(torch).replace(
            f"torch-{torch}", f"torch-{torch.replace('+', '%2B')}"
        ),
    )


def environment(held, *locks, is_proven=True, status="passed"):
    """An environment made of ``held``, beside ``locks``."""
    marker = Marker(
        "1",
        held.name,
        held.sha256,
        "3.12",
        "2.14.1+cpu",
        "cpu",
        fingerprint(MACHINE),
        {},
        packages=held.versions,
    )
    stamp = Stamp(
        python="",
        variables={},
        files={"torch": {}},
        verdict={"status": status},
    )
    return ExistingEnvironment(
        PATHS,
        False,
        marker,
        held,
        held.versions,
        has_python=True,
        locks=locks,
        stamp=stamp if is_proven else None,
    )


@dataclass(frozen=True)
class Example:
    """What is there and asked for, and where the lock comes from."""

    existing: ExistingEnvironment
    source: str
    options: InstallOptions = OPTIONS
    action: Action = Action.BUILD
    request: Request = CPU
    here: Machine | None = MACHINE


NOTHING = ExistingEnvironment(PATHS)
OLDER = lock("2.13.0+cpu")
NEWER = lock("2.14.1+cpu")
ADDED = replace(
    environment(NEWER, NEWER), versions={"torch": "2.14.1+cpu", "cowsay": "6.1"}
)
DAMAGED = replace(environment(NEWER, NEWER), versions={"torch": "2.13.0+cpu"})
CUDA = lock("2.14.1+cu126", "pylock.cu126.toml")
BROKEN = replace(
    MACHINE,
    problems=(Finding("driver-library-mismatch", "differ", fixes=("sudo reboot",)),),
)

EXAMPLES = {
    "nothing there": Example(NOTHING, "a new one"),
    "a lock that fits": Example(replace(NOTHING, locks=(NEWER,)), "the folder's"),
    "a lock for other machines": Example(replace(NOTHING, locks=(CUDA,)), "a new one"),
    "a lock, and an upgrade": Example(
        replace(NOTHING, locks=(NEWER,)), "a new one", InstallOptions(upgrade=True)
    ),
    "its own lock, proven": Example(
        environment(NEWER, NEWER), "its own", action=Action.NOTHING
    ),
    "its own lock alone, proven": Example(
        environment(NEWER), "its own", action=Action.NOTHING
    ),
    "its own lock alone, and only the folder's count": Example(
        environment(NEWER), "lock-missing", InstallOptions(locked=True)
    ),
    "proven on another machine": Example(
        environment(NEWER, NEWER, is_proven=False), "its own", action=Action.VERIFY
    ),
    "not proven yet": Example(
        environment(NEWER, NEWER, status="unproven"), "its own", action=Action.VERIFY
    ),
    "not proven yet, and the GPUs are elsewhere": Example(
        environment(NEWER, NEWER, status="unproven"),
        "its own",
        action=Action.NOTHING,
        here=None,
    ),
    "the folder's lock was updated": Example(environment(OLDER, NEWER), "the folder's"),
    "made of the lock, and changed by hand": Example(DAMAGED, "the folder's"),
    "made of the lock, with a package of the user's": Example(
        ADDED, "its own", action=Action.NOTHING
    ),
    "made of the lock, and without a Python": Example(
        replace(environment(NEWER, NEWER), has_python=False), "the folder's"
    ),
    "an upgrade": Example(
        environment(NEWER, NEWER), "a new one", InstallOptions(upgrade=True)
    ),
    "no lock, and none is to be made": Example(
        NOTHING, "lock-missing", InstallOptions(locked=True)
    ),
    "no lock that fits, and none is to be made": Example(
        replace(NOTHING, locks=(CUDA,)),
        "lock-does-not-fit",
        InstallOptions(locked=True),
    ),
    "no lock of the target": Example(
        replace(NOTHING, locks=(NEWER,)),
        "lock-missing",
        InstallOptions(locked=True, target="cu126"),
    ),
    "another torch is asked for": Example(
        environment(OLDER, OLDER),
        "a new one",
        request=Request(("torch==2.14.1",), backend="cpu"),
    ),
}


def state(
    existing,
    options=OPTIONS,
    *,
    machine=MACHINE,
    request=CPU,
    here=MACHINE,
):
    return InstallState(existing, LockRequest(machine, request, CATALOG), here, options)


def test_where_the_lock_comes_from_and_what_there_is_to_do():
    wrong = {}
    for name, example in EXAMPLES.items():
        there = state(
            example.existing,
            example.options,
            request=example.request,
            here=example.here,
        )
        found = (source_of(there), there.action)
        if found != (example.source, example.action):
            wrong[name] = found
    assert wrong == {}


def source_of(there):
    if there.fit:
        return "the folder's" if there.action is Action.BUILD else "its own"
    try:
        there.check_lockable()
    except LockError as refused:
        return refused.code
    return "a new one"


def test_a_new_lock_that_changes_nothing_leaves_a_proven_environment_alone():
    upgraded = state(environment(NEWER), InstallOptions(upgrade=True))
    fit = state(environment(NEWER, NEWER)).fit
    assert (upgraded.action, upgraded.action_for(fit)) == (Action.BUILD, Action.NOTHING)


@pytest.mark.parametrize(
    "existing",
    [
        replace(NOTHING, locks=(CUDA, NEWER)),
        environment(CUDA, CUDA),
        environment(CUDA),
    ],
)
def test_a_lock_that_does_not_fit_is_named_wherever_it_lies(existing):
    assert [misfit.candidate for misfit in state(existing).misfits] == [CUDA]


@pytest.mark.parametrize("locked", [False, True])
def test_a_machine_that_must_be_repaired_is_the_fault_and_not_its_locks(locked):
    there = state(
        replace(NOTHING, locks=(CUDA,)),
        InstallOptions(locked=locked),
        machine=BROKEN,
        request=Request(("torch",)),
    )
    with pytest.raises(MachineError) as refused:
        there.check_lockable()
    assert refused.value.data is not None
