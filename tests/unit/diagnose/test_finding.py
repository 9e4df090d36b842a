"""Findings of doctor: their order, the exit status, and explained checks."""

import pytest

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.diagnose.examination import (
    Examination,
    by_urgency,
    merge_failures,
    report_refusal,
)
from gpuinstall.machine.prober import Preflight
from gpuinstall.plan import Rejected, choose
from tests.frozen import frozen_catalog
from tests.unit.diagnose.evidence import doctor_evidence
from tests.unit.plan.machines import machine

MACHINE = Finding("driver-missing", "no driver", "F01", fixes=("sudo apt install x",))
NOTE = Finding("gpu-not-ours", "1 of 8", blocking=False)
ENVIRONMENT = Finding(
    "kernel-failed", "GPU 0", "F49", fixes=("gpuinstall install",), where="environment"
)
POISON = Finding(
    "library-path-poisoned",
    "LD_LIBRARY_PATH",
    "F49",
    where="environment",
    blocking=False,
)
PROJECT = Finding("uv-undoes-build", "uv", "F44", where="project", blocking=False)


def exit_code(findings, machine):
    return Examination(
        machine, Preflight(), doctor_evidence(), (*machine.problems, *findings)
    ).exit_code


def test_blocking_and_machine_findings_are_listed_first():
    assert by_urgency([PROJECT, NOTE, ENVIRONMENT, MACHINE]) == (
        MACHINE,
        ENVIRONMENT,
        NOTE,
        PROJECT,
    )


def test_duplicate_findings_are_reported_once():
    assert by_urgency([NOTE, replace(NOTE), PROJECT]) == (NOTE, PROJECT)


def test_finding_without_reason_uses_evidence_as_reason():
    findings = (replace(NOTE, why="a job"), replace(NOTE, evidence="SLURM_JOB_ID"))
    document = Examination(
        Machine("linux", "x86_64"), Preflight(), doctor_evidence(), findings
    ).to_dict()
    assert [row["why"] for row in document["findings"]] == ["a job", "SLURM_JOB_ID"]


def test_machine_exit_status_takes_precedence_over_environment():
    sound = Machine("linux", "x86_64", gpus=(Gpu(0), Gpu(1)))
    assert exit_code([NOTE, PROJECT, POISON], sound) == 0
    assert exit_code([ENVIRONMENT, NOTE], sound) == 5
    assert exit_code([ENVIRONMENT, MACHINE], sound) == 8


def test_failed_check_is_merged_into_its_explanation():
    assert merge_failures([POISON], [ENVIRONMENT]) == [replace(POISON, blocking=True)]
    assert merge_failures([POISON], []) == [POISON]
    other = replace(ENVIRONMENT, id="F37")
    assert merge_failures([POISON], [other]) == [POISON, other]


def test_only_blocking_damage_explains_failed_checks():
    unmet = replace(POISON, code="requirement-unmet", id=None)

    assert merge_failures([unmet], [ENVIRONMENT]) == [unmet, ENVIRONMENT]
    lost = replace(unmet, blocking=True)
    assert merge_failures([lost], [ENVIRONMENT]) == [lost]


TORCH, FOR_CPU = Request(("torch",)), Request(("torch",), backend="cpu")
LOST = Finding("gpu-lost", "GPU 0 is lost")


def refuse(request_):
    """Return a function that refuses machines without a build."""

    def find_error(on):
        plan = choose(on, request_, frozen_catalog())
        return plan.error(on) if isinstance(plan, Rejected) else None

    return find_error


@pytest.mark.parametrize(
    ("on", "request_", "refusal"),
    [
        (machine("GTX 1080", driver="430.40"), TORCH, ("machine", "driver-too-old")),
        (
            machine("RTX 3090", driver="450.80.02"),
            TORCH,
            ("machine", "driver-older-than-gpu"),
        ),
        (machine("RTX 3090", driver=None), TORCH, ("machine", "no-driver")),
        (machine("GT 710"), TORCH, ("project", "no-build-ever")),
        (machine("H100"), Request(("torch==9.9",)), ("project", "other-torch")),
        (machine("H100"), TORCH, None),
        (machine(driver=None), TORCH, None),
        (machine("GTX 1080", driver="430.40"), FOR_CPU, None),
        # The messages of machine problems.
        (machine("H100").add_problems([LOST]), TORCH, None),
    ],
)
def test_doctor_reports_request_that_install_rejects(on, request_, refusal):
    found = [*report_refusal(on, refuse(request_), words=())]

    assert [(one.where, one.code) for one in found] == ([refusal] if refusal else [])
    assert all(one.blocking == (one.where == "machine") for one in found)


def test_old_driver_suggests_the_cpu_build():
    old = machine("GTX 1080", driver="430.40")
    (finding,) = report_refusal(old, refuse(TORCH), words=())
    cpu = "gpuinstall install --backend cpu   # selects the CPU build"
    assert cpu in map(str, finding.fixes)
