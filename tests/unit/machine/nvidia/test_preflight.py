import json

import pytest

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.process import Finished
from gpuinstall.catalog.failures.problems import FixContext
from gpuinstall.machine.nvidia.preflight import (
    classify_trial,
    combine_outcomes,
    create_trial_problems,
)
from gpuinstall.machine.prober import Preflight
from tests.lab.skips import needs_signals

MACHINE = Machine(os="linux", arch="x86_64", gpus=(Gpu(0),))
HERE = FixContext.of_machine(MACHINE)


def tried_on(index, ended=0, **answer):
    """Return the result of a child that tried a GPU."""
    out = json.dumps({"path": "libcuda.so.1"} | answer) if ended == 0 else ""
    return classify_trial(Gpu(index), MACHINE, Finished((), ended, out, ""))


@pytest.mark.parametrize(
    ("call", "status", "outcome"),
    [
        ("cuCtxSynchronize", 719, "failed"),
        ("cuModuleGetFunction", 500, "failed"),
        ("cuDevicePrimaryCtxRetain", 46, "unproven"),
        ("cuModuleLoadData", 221, "unproven"),
        ("cuMemAlloc_v2", 2, "unproven"),
        # Another user's process explains nothing before the GPU is requested.
        ("cuInit", 2, "failed"),
        ("cuInit", 500, "failed"),
    ],
)
def test_cuda_error_determines_preflight_outcome(call, status, outcome):
    assert tried_on(0, call=call, status=status).outcome == outcome


def test_loader_error_is_reported_as_evidence():
    found = tried_on(
        0, fault="missing", error="libcuda.so.1: cannot open shared object file"
    )
    (problem,) = create_trial_problems([found], HERE)
    assert (problem.code, problem.evidence) == (
        "libcuda-missing",
        "libcuda.so.1: cannot open shared object file",
    )


@needs_signals
def test_killed_child_leaves_the_gpu_unproven():
    killed = tried_on(0, ended=-9)
    (problem,) = create_trial_problems([killed], HERE)
    assert (killed.outcome, problem.code, problem.blocking, problem.why) == (
        "unproven",
        "driver-not-asked",
        False,
        "CUDA: killed by SIGKILL: the system does this when the machine or the job runs out of memory",
    )


def test_gpu_fails_if_one_mig_slice_fails():
    # Slice, and number of wrong words of its kernel.
    slices = [(0, 0), (1, 0), (1, 3), (1, 0)]
    tried = [tried_on(index, wrong=wrong) for index, wrong in slices]
    assert combine_outcomes(tried) == {0: "proven", 1: "failed"}


def test_fault_on_all_gpus_is_machine_fault():
    stuck = [tried_on(0, ended=None), tried_on(1, ended=None)]
    assert [problem.gpus for problem in create_trial_problems(stuck, HERE)] == [()]
    alone = create_trial_problems([*stuck, tried_on(2, wrong=0)], HERE)
    assert [problem.gpus for problem in alone] == [(0, 1)]
    differing = create_trial_problems(
        [tried_on(0, ended=None), tried_on(1, call="cuInit", status=999)], HERE
    )
    assert [problem.gpus for problem in differing] == [(0,), (1,)]


def test_preflight_document_lists_gpus_and_outcomes():
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
def test_summary_lists_gpus_by_outcome(outcomes, summary):
    assert Preflight(dict(enumerate(outcomes))).summary == summary
