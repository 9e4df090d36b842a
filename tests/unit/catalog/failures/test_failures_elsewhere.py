"""The failures that the machine itself does not show: made in the plan, the sources, the preflight, an environment.

Each has a healthy counterpart, as close to it as can be, that does not show it. The last test prints how many of
the catalogue's entries are made, here and in tests/unit/machine/test_failures.py, and why the others are not.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from gpuinstall.api import choose
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.machine import Environment, Gpu
from gpuinstall.base.process import Finished
from gpuinstall.base.request import Request
from gpuinstall.catalog.failures.problems import FixContext
from gpuinstall.catalog.failures.table import load_failures
from gpuinstall.catalog.narrowing import narrow
from gpuinstall.diagnose.evidence import read_overrides, read_project
from gpuinstall.lock.lock import LockedFile
from gpuinstall.lock.resolution import check_provenance
from gpuinstall.machine.nvidia.preflight import judge_trial, problems_of
from gpuinstall.machine.probe import read_machine
from gpuinstall.sources import read_sources
from tests.frozen import frozen_catalog
from tests.lab.recorded import healthy, recording
from tests.unit.diagnose.evidence import found as found_in
from tests.unit.diagnose.evidence import holding
from tests.unit.lock.wheels_here import torch
from tests.unit.machine.test_failures import MADE as ON_THE_MACHINE
from tests.unit.plan.machines import jetson, machine

Signs = set[tuple[str, "str | None"]]
ADA = machine("RTX 4090", glibc="2.41")
HERE = FixContext.of_machine(ADA)
SOUND = (("torch", "2.10.0+cu126"), ("torchvision", "0.25.0+cu126"), ("torchaudio", "2.10.0+cu126"))
WHEEL = torch()


class Made(NamedTuple):
    """What makes a failure, and what is as close to it and healthy; ``id`` where the room names the entry."""

    code: str
    sick: Callable[[Path], Signs]
    healthy: Callable[[Path], Signs]
    id: str | None = None


def planned(asked, listing=None, **request):
    """The reasons and warnings of a plan, with the catalogue as shipped or as the sources list it."""

    def signs(_):
        catalog = (
            frozen_catalog()
            if listing is None
            else narrow(frozen_catalog(), listing, asked.os, asked.arch)
        )
        made = choose(asked, Request(**request), catalog)
        outcome = ("refused", None) if made.choice is None else ("chosen", None)
        return {outcome, *((reason.code, None) for reason in (*made.reasons, *made.warnings))}

    return signs


def answered(**answer):
    text = json.dumps({"path": "libcuda.so.1"} | answer)
    problems = problems_of([judge_trial(ADA.gpus[0], ADA, Finished((), 0, text, ""))], HERE)
    return lambda _: {(problem.code, problem.id) for problem in problems}


def resolved(package, address):
    """A file that a resolution ended at, for a package whose page lists another."""

    def signs(_):
        try:
            check_provenance((LockedFile(package, address),), {package: (WHEEL,)})
        except InstallationError as error:
            return {(error.code, None)}
        return set()

    return signs


def configured(**variables):
    """A shell whose variables name indexes: those passed over are said once, and none reaches uv (test_sources)."""

    def signs(folder):
        home = {"HOME": str(folder), "PIP_CONFIG_FILE": "/dev/null"}
        return (
            {("extra-index", None)}
            if read_sources(None, home | variables, folder).extra_indexes
            else set()
        )

    return signs


def found(findings):
    return {(each.code, each.id) for each in findings}


def packages(
    named,
    on=ADA,
    *,
    packages=None,
    apart=(),
    **parts,
):
    """An environment with these packages, some of them ``apart``, in another folder."""
    contents = holding(*(packages or named), **parts)
    others = tuple(
        replace(package, record=Path("lib", "absent")) for package in holding(*apart).packages
    )
    return lambda _: found(
        found_in(on, contents=replace(contents, packages=(*contents.packages, *others)))
    )


def shell(variable):
    """A shell in which a variable is set."""
    return lambda folder: found(found_in(overrides=read_overrides({variable: str(folder)})))


def project(text):
    def signs(folder):
        (folder / "pyproject.toml").write_text(
            '[project]\nname = "app"\ndependencies = ["torch"]\n' + text
        )
        return found(found_in(torch="2.10.0+cu126", project=read_project(folder)))

    return signs


NOT_NVIDIA = Gpu(0, "Matrox G200eW3", pci_id="102b:0536", found_via="pci")

PLAN = {
    "F02": Made(
        "driver-too-old", planned(machine("T4", driver="418.226.00")), planned(machine("T4"))
    ),
    "F19": Made(
        "driver-barely-new-enough",
        planned(machine("A100", driver="525.60.13")),
        planned(machine("A100", driver="530.30.02")),
    ),
    "F24": Made("gpu-not-supported", planned(machine(NOT_NVIDIA, driver=None)), planned(ADA)),
    "F28": Made(
        "looks-like-a-builder",
        planned(machine(driver=None, environment=Environment(container="docker"))),
        planned(machine("A100", environment=Environment(container="docker"))),
    ),
    "F29": Made(
        "jetson",
        planned(jetson("Orin", "36.4.0", cuda="12.6")),
        planned(jetson("Orin", "38.4.0", driver="595.58")),
    ),
    "F30": Made(
        "run-time-compiler-too-old",
        planned(machine("GB10", arch="aarch64"), backend="cu128"),
        planned(machine("GB10", arch="aarch64")),
    ),
    "F37": Made(
        "no-code",
        planned(machine("GTX 1080"), requirements=("torch==2.15.0",)),
        planned(machine("T4"), requirements=("torch==2.15.0",)),
    ),
    "F38": Made(
        "no-code",
        planned(machine("RTX 5090"), requirements=("torch==2.6.0",)),
        planned(machine("H100"), requirements=("torch==2.6.0",)),
    ),
    "F40": Made(
        "gpu-left-out", planned(machine("P40", "RTX 5090")), planned(machine("T4", "RTX 5090"))
    ),
    "F41": Made(
        "python-unsupported",
        planned(ADA, requirements=("torch==2.15.0",), python="3.10"),
        planned(ADA, requirements=("torch==2.15.0",), python="3.12"),
    ),
    "F47": Made(
        "no-companion",
        planned(ADA, requirements=("torch==2.15.0", "torchvision==0.24.1")),
        planned(ADA, requirements=("torch==2.9.1", "torchvision==0.24.1")),
    ),
    "F48": Made(
        "no-companion",
        planned(ADA, requirements=("torchaudio",), backend="cu132"),
        planned(ADA, requirements=("torchaudio",), backend="cu130"),
    ),
    "F58": Made(
        "glibc-too-old",
        planned(machine("RTX 5090", glibc="2.17")),
        planned(machine("RTX 5090", glibc="2.28")),
    ),
}

SOURCES = {
    "F33": Made(
        "wrong-source",
        resolved("torch", "https://index.example/torch-2.14.1-cp312-cp312-win_amd64.whl"),
        resolved("torch", WHEEL.url),
    ),
}

PREFLIGHT = {
    "F67": Made(
        "kernel-not-proven",
        answered(call="cuModuleLoadData", status=222, instead={"wrong": 0}),
        answered(wrong=0),
        id="F67",
    )
}


def doctor(entry, code, sick, fit):
    return {entry: Made(code, sick, fit, id=entry)}


sound = partial(packages, SOUND)

DOCTOR = {
    **doctor("F32", "override-left-behind", shell("UV_TORCH_BACKEND"), shell("UV_CACHE_DIR")),
    **doctor("F34", "torch-twice", sound(packages=(*SOUND, ("torch", "2.9.1"))), sound()),
    **doctor(
        "F44",
        "uv-undoes-build",
        project(""),
        project('[tool.uv.sources]\ntorch = { index = "cu126" }\n'),
    ),
}

ELSEWHERE = {"plan": PLAN, "sources and lock": SOURCES, "preflight": PREFLIGHT, "doctor": DOCTOR}

CANNOT = {
    "F59": "which libstdc++ a process takes is known when it has loaded one; a newer one on the path is no fault",
    "F65": "the version of Windows' C++ runtime stands in the resources of its file; F64 finds one that is missing",
    "F68": "only torch.compile needs a compiler, so a machine without one is healthy; verify --deep compiles",
    "F71": "no sign of it is known before a library is imported",
}


@pytest.mark.parametrize("room", ELSEWHERE)
def test_a_failure_is_recognised_and_its_healthy_counterpart_does_not_show_it(tmp_path, room):
    wrong = {}
    for entry, made in ELSEWHERE[room].items():
        folders = (tmp_path / entry / "sick", tmp_path / entry / "healthy")
        for folder in folders:
            folder.mkdir(parents=True)
        sick, healthy_codes = made.sick(folders[0]), {code for code, _ in made.healthy(folders[1])}
        if (made.code, made.id) not in sick or healthy_codes & {made.code, "refused"}:
            wrong[entry] = (sick, healthy_codes)

    assert wrong == {}


def test_a_toolkit_on_the_machine_changes_no_choice(tmp_path):
    tools = {
        "/usr/local/cuda/version.json": '{"cuda": {"version": "11.8"}}',
        "/usr/local/cuda/bin/nvcc": "",
    }
    home = {"CUDA_HOME": "/usr/local/cuda", "CUDA_PATH": "/usr/local/cuda"}
    without = read_machine(source=recording(tmp_path / "without", healthy()))
    assert read_machine(source=recording(tmp_path / "with", healthy() | tools, **home)) == without


def test_every_entry_that_is_seen_before_an_installation_is_made_or_has_its_reason(
    capsys,
):
    rooms = {"the machine": ON_THE_MACHINE, **ELSEWHERE}
    made = [entry for entries in rooms.values() for entry in entries if entry.startswith("F")]
    early = {failure.id for failure in load_failures().values() if "before" in failure.detected}
    assert len(made) == len(set(made))
    assert early <= {*made, *CANNOT} <= load_failures().keys()
    with capsys.disabled():
        of_all = f"{len(made)} of the {len(load_failures())} failures"
        print(f"\n{of_all} are made before anything is installed")  # noqa: T201
        for room, entries in rooms.items():
            print(f"  {len(entries)} in {room}: {', '.join(entries)}")  # noqa: T201
        for entry, reason in CANNOT.items():
            print(f"  {entry} is not: {reason}")  # noqa: T201
