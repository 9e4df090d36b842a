import json

import pytest

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine, MigDevice
from gpuinstall.base.process import Finished
from gpuinstall.catalog.failures.problems import FixContext
from gpuinstall.machine.nvidia.preflight import (
    GpuTrial,
    judge_trial,
    outcomes_of,
    problems_of,
    trials,
)
from gpuinstall.machine.prober import Preflight, ProofOutcome

ALONE = Gpu(0, uuid="GPU-aaaa")
SLICED = Gpu(
    1, uuid="GPU-bbbb", mig=True, mig_devices=(MigDevice("MIG-1"), MigDevice("MIG-2"))
)
MACHINE = Machine(os="linux", arch="x86_64", gpus=(ALONE, SLICED))
HERE = FixContext.of_machine(MACHINE)
JOB = {"SLURM_JOB_ID": "42"}


def visible(machine, environ):
    return [visible for _, visible in trials(machine, environ)]


def answered(**answer):
    return judge_trial(
        ALONE,
        MACHINE,
        Finished((), 0, json.dumps({"path": "libcuda.so.1"} | answer), ""),
    )


def test_every_card_and_every_slice_is_tried_by_its_uuid():
    assert visible(MACHINE, {"CUDA_VISIBLE_DEVICES": "7"}) == [
        "GPU-aaaa",
        "MIG-1",
        "MIG-2",
    ]


def test_a_card_without_a_uuid_is_tried_by_its_place_among_those_given():
    assert visible(Machine(os="linux", arch="aarch64", gpus=(ALONE, Gpu(2))), {}) == [
        "GPU-aaaa",
        "1",
    ]


@pytest.mark.parametrize(
    ("given", "tried"),
    [
        ("0", ["GPU-aaaa"]),
        ("1", ["MIG-1", "MIG-2"]),
        ("1, 0", ["GPU-aaaa", "MIG-1", "MIG-2"]),
        ("MIG-2", ["MIG-2"]),
        ("GPU-bb", ["MIG-1", "MIG-2"]),
        ("", []),
        ("NoDevFiles", []),
    ],
)
def test_a_job_is_tried_on_its_own_cards(given, tried):
    assert visible(MACHINE, JOB | {"CUDA_VISIBLE_DEVICES": given}) == tried


@pytest.mark.parametrize(
    ("given", "tried"),
    [
        ("0", ["GPU-dddd"]),
        ("1", ["GPU-ffff"]),
        ("3", []),
        ("0,1", ["GPU-dddd", "GPU-ffff"]),
    ],
)
def test_cuda_counts_the_cards_of_a_job_from_0_whatever_nvml_calls_them(given, tried):
    gpus = (Gpu(3, uuid="GPU-dddd"), Gpu(5, uuid="GPU-ffff"))
    assert (
        visible(
            Machine(os="linux", arch="x86_64", gpus=gpus),
            JOB | {"CUDA_VISIBLE_DEVICES": given},
        )
        == tried
    )


def test_what_the_probe_found_broken_is_not_tried():
    broken, slow = (
        Finding("gpu-lost", "lost", gpus=(0,)),
        Finding("slow", "slow", blocking=False, gpus=(1,)),
    )
    assert visible(MACHINE.with_problems([broken, slow]), {}) == ["MIG-1", "MIG-2"]
    assert visible(MACHINE.with_problems([Finding("no-driver", "no driver")]), {}) == []


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"wrong": 0}, "proven"),
        ({"wrong": 3}, "failed"),
        ({"call": "cuCtxSynchronize", "status": 719}, "failed"),
        ({"call": "cuDevicePrimaryCtxRetain", "status": 46}, "unproven"),
        ({"call": "cuModuleLoadData", "status": -1}, "unproven"),
        ({"call": "cuModuleGetFunction", "status": 500}, "failed"),
        ({"call": "cuInit", "status": 500}, "failed"),
        ({"call": "cuMemAlloc_v2", "status": 2}, "unproven"),
        ({"call": "cuModuleLoadData", "status": 221}, "unproven"),
        ({"call": "cuInit", "status": 2}, "failed"),
    ],
)
def test_an_answer_becomes_an_outcome(answer, outcome):
    assert answered(**answer).outcome == outcome


def test_a_library_that_cannot_be_loaded_is_said_in_the_loaders_words():
    found = answered(
        fault="missing", error="libcuda.so.1: cannot open shared object file"
    )
    (problem,) = problems_of([found], HERE)
    assert (problem.code, problem.evidence) == (
        "libcuda-missing",
        "libcuda.so.1: cannot open shared object file",
    )


def test_a_child_that_was_killed_says_nothing_of_the_card():
    killed = judge_trial(ALONE, MACHINE, Finished((), -9, "", ""))
    (problem,) = problems_of([killed], HERE)
    assert (killed.outcome, problem.code, problem.blocking, problem.why) == (
        "unproven",
        "driver-not-asked",
        False,
        "libcuda: killed by SIGKILL: the system does that when memory runs out, also at a job's limit",
    )


def test_a_gpu_is_as_good_as_its_worst_slice():
    outcomes: list[tuple[int, ProofOutcome]] = [
        (0, "proven"),
        (1, "unproven"),
        (1, "failed"),
        (1, "proven"),
    ]
    findings = [GpuTrial(index, outcome) for index, outcome in outcomes]
    assert outcomes_of(findings) == {0: "proven", 1: "failed"}
    one_failed = [GpuTrial(0, "failed"), GpuTrial(1, "proven")]
    assert list(outcomes_of(one_failed)) == [0, 1]


def test_what_stops_every_card_at_the_start_is_the_machines_problem():
    stuck = [
        judge_trial(Gpu(index), MACHINE, Finished((), None, "", ""))
        for index in range(2)
    ]
    assert [problem.gpus for problem in problems_of(stuck, HERE)] == [()]
    assert [
        problem.gpus for problem in problems_of([*stuck, GpuTrial(2, "proven")], HERE)
    ] == [(0, 1)]


def test_the_document_names_each_gpu_and_its_outcome():
    problem = Finding("gpu-busy", "GPU 1 is held", blocking=False, gpus=(1,))
    document = Preflight({0: "proven", 1: "unproven"}, (problem,), 0.40049).to_dict()
    assert document["gpus"] == [
        {"index": 0, "status": "proven"},
        {"index": 1, "status": "unproven"},
    ]
    assert document["problems"][0]["gpus"] == [1]
    assert document["seconds"] == 0.4


@pytest.mark.parametrize(
    ("outcomes", "summary"),
    [
        (["proven"], "a kernel ran on GPU 0"),
        (["proven", "proven"], "a kernel ran on both GPUs"),
        (["proven"] * 8, "a kernel ran on all 8 GPUs"),
        (
            ["proven", "failed", "proven"],
            "a kernel ran on GPUs 0 and 2 · failed: GPU 1",
        ),
        ([], ""),
    ],
)
def test_the_summary_says_what_ran_where(outcomes, summary):
    assert Preflight(dict(enumerate(outcomes))).summary == summary
