"""What is decided from what is there, as a table: no file is read, no uv is run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuinstall.environments.environment import Marker, fingerprint
from gpuinstall.environments.paths import EnvironmentPaths
from gpuinstall.errors import LockError, MachineError
from gpuinstall.finding import Finding
from gpuinstall.install.decision import (
    BuildEnvironment,
    Decision,
    OwnLock,
    PublishLock,
    Refuse,
    Resolve,
    Swap,
    UseLock,
    Verify,
    decide,
    judge_locks,
)
from gpuinstall.install.inspection import ExistingEnvironment
from gpuinstall.install.options import InstallOptions
from gpuinstall.lock.lock import Lock, parse
from gpuinstall.machine import Machine
from gpuinstall.plan import Plan, choose
from gpuinstall.request import Request
from tests.frozen import frozen_catalog
from tests.unit.install.environments import lock_text

PATHS = EnvironmentPaths(Path("/project/.venv"))
MACHINE = Machine("linux", "x86_64", "glibc", "2.36", pythons=("3.12.1",))
OPTIONS = InstallOptions(PATHS, MACHINE, MACHINE, Request(("torch",), backend="cpu"))
CATALOG = frozen_catalog()
REPLACING = (BuildEnvironment, Verify, Swap)
PROOF = (Verify, PublishLock)


def lock(torch: str = "2.14.1+cpu", name: str = "pylock.cpu.toml") -> Lock:
    return parse(name, lock_text(torch).replace(f"torch-{torch}", f"torch-{torch.replace('+', '%2B')}"))


def environment(held: Lock, *locks: Lock, proven_on: Machine = MACHINE, status: str = "passed") -> ExistingEnvironment:
    """An environment made of ``held``, beside ``locks``."""
    proof = fingerprint(proven_on)
    marker = Marker("1", held.name, held.sha256, "3.12", "2.14.1+cpu", "cpu", proof, {"status": status})
    return ExistingEnvironment(PATHS, False, marker, held, held.versions, has_python=True, locks=locks)


@dataclass(frozen=True)
class Example:
    """What is there and asked for, and what follows."""

    existing: ExistingEnvironment
    source: type
    steps: tuple[type, ...] = ()
    options: InstallOptions = OPTIONS


NOTHING = ExistingEnvironment(PATHS)
OLDER = lock("2.13.0+cpu")
NEWER = lock("2.14.1+cpu")
DAMAGED = replace(environment(NEWER, NEWER), packages={"torch": "2.14.1+cpu", "cowsay": "6.1"})
CUDA = lock("2.14.1+cu126", "pylock.cu126.toml")
BROKEN = replace(MACHINE, problems=(Finding("driver-library-mismatch", "differ", fixes=("sudo reboot",)),))
ELSEWHERE = replace(OPTIONS, here=None)
ANOTHER = replace(MACHINE, arch="aarch64")

EXAMPLES = {
    "nothing there": Example(NOTHING, Resolve, REPLACING),
    "a lock that fits": Example(replace(NOTHING, locks=(NEWER,)), UseLock, REPLACING),
    "a lock for other machines": Example(replace(NOTHING, locks=(CUDA,)), Resolve, REPLACING),
    "a lock, and an upgrade": Example(
        replace(NOTHING, locks=(NEWER,)), Resolve, REPLACING, replace(OPTIONS, upgrade=True)
    ),
    "its own lock, proven": Example(environment(NEWER, NEWER), OwnLock, (PublishLock,)),
    "its own lock alone, proven": Example(environment(NEWER), OwnLock, (PublishLock,)),
    "its own lock alone, and only the folder's count": Example(
        environment(NEWER), Refuse, options=replace(OPTIONS, locked=True)
    ),
    "proven, and to be proven again": Example(environment(NEWER, NEWER), OwnLock, PROOF, replace(OPTIONS, verify=True)),
    "proven on another machine": Example(environment(NEWER, NEWER, proven_on=ANOTHER), OwnLock, PROOF),
    "not proven yet": Example(environment(NEWER, NEWER, status="unproven"), OwnLock, PROOF),
    "not proven yet, and the GPUs are elsewhere": Example(
        environment(NEWER, NEWER, status="unproven"), OwnLock, (PublishLock,), ELSEWHERE
    ),
    "the folder's lock was updated": Example(environment(OLDER, NEWER), UseLock, REPLACING),
    "made of the lock, and changed by hand": Example(DAMAGED, UseLock, REPLACING),
    "made of the lock, and without a Python": Example(
        replace(environment(NEWER, NEWER), has_python=False), UseLock, REPLACING
    ),
    "an upgrade": Example(environment(NEWER, NEWER), Resolve, REPLACING, replace(OPTIONS, upgrade=True)),
    "no lock, and none is to be made": Example(NOTHING, Refuse, options=replace(OPTIONS, locked=True)),
    "no lock of the target": Example(
        replace(NOTHING, locks=(NEWER,)), Refuse, options=replace(OPTIONS, locked=True, target="cu126")
    ),
    "another torch is asked for": Example(
        environment(OLDER, OLDER),
        Resolve,
        REPLACING,
        replace(OPTIONS, request=Request(("torch==2.14.1",), backend="cpu")),
    ),
}


def decided(existing: ExistingEnvironment, options: InstallOptions = OPTIONS) -> Decision:
    plan = choose(options.machine, options.request, CATALOG)
    return decide(existing, judge_locks(existing, options, CATALOG), plan, options)


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_what_follows_from_what_is_there(example: Example) -> None:
    decision = decided(example.existing, example.options)
    assert (type(decision.lock), tuple(map(type, decision.steps))) == (example.source, example.steps)
    assert decision.changes_nothing == (example.steps == (PublishLock,))


def test_an_environment_is_proven_where_it_lies_and_a_new_one_before_it_is_swapped_in() -> None:
    assert Verify(PATHS.venv) in decided(environment(NEWER, NEWER, status="failed")).steps
    assert Verify(PATHS.staging) in decided(NOTHING).steps


def test_a_lock_that_does_not_fit_is_named_with_what_is_done_instead() -> None:
    decision = decided(replace(NOTHING, locks=(CUDA, NEWER)))
    assert [misfit.lock for misfit in decision.misfits] == [CUDA]


@pytest.mark.parametrize(("locks", "code"), [((), "lock-missing"), ((CUDA,), "lock-does-not-fit")])
def test_why_there_is_no_lock_to_install_is_said(locks: tuple[Lock, ...], code: str) -> None:
    refused = decided(replace(NOTHING, locks=locks), replace(OPTIONS, locked=True)).lock
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, LockError)
    assert refused.error.code == code


@pytest.mark.parametrize("locked", [False, True])
def test_a_machine_that_must_be_repaired_is_the_fault_and_not_its_locks(locked: bool) -> None:
    options = replace(OPTIONS, machine=BROKEN, request=Request(("torch",)), locked=locked)
    refused = decided(replace(NOTHING, locks=(CUDA,)), options).lock
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, MachineError)
    assert refused.error.data is not None


def test_the_narrowed_catalogue_of_a_second_attempt_is_decided_upon_alike() -> None:
    plan = choose(MACHINE, OPTIONS.request, CATALOG)
    assert isinstance(plan, Plan)
    rest = replace(CATALOG, builds=tuple(build for build in CATALOG.builds if build.torch != plan.choice.build.torch))
    again = replace(OPTIONS, upgrade=True)
    second = decide(environment(NEWER, NEWER), (), choose(MACHINE, OPTIONS.request, rest), again)
    assert isinstance(second.lock, Resolve)
    assert isinstance(second.lock.plan, Plan)
    assert second.lock.plan.choice.build.torch < plan.choice.build.torch
