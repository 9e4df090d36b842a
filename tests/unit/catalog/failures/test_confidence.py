"""How sure an answer is: a wrong answer is worse than none, and 90 % means 90 %."""

import pytest

from gpuinstall.catalog.failures.classify import classify
from gpuinstall.catalog.failures.table import load_failures
from tests.unit.catalog.failures.held_out import CLASSES, answers


@pytest.mark.parametrize("number", ["line 493", "line 593", "590 steps", "525 steps"])
def test_a_number_in_a_traceback_is_no_driver(number):
    text = "{}\nNo devices were found"
    said = classify(text.format(f'  File "train.py", {number}, in main'))
    assert said == classify(text.format('  File "train.py", line 7, in main'))


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        (
            '[WinError 1455] The paging file is too small. Error loading "C:\\\\torch\\\\lib\\\\shm.dll"',
            "F76",
            "F64",
        ),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_89'", "F81", "F38"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_121'", "F81", "F30"),
        ("nvrtc: error: invalid value for --gpu-architecture (-arch)", "F85", "F30"),
        (
            "Could not load library libcudnn_ops_infer.so.8. Error: cannot open shared object file",
            "F102",
            "F51",
        ),
        (
            "Found no NVIDIA driver on your system.\nAMD Radeon RX 7900 XTX",
            "F99",
            "F01",
        ),
        ("No matching distribution found for torch==2.7.1+cu128", "F98", "F41"),
        (
            "Getting requirements to build wheel\nModuleNotFoundError: No module named 'torch'",
            "F73",
            "F105",
        ),
    ],
)
def test_what_looks_alike_is_not_answered_with_the_wrong_cause(text, right, wrong):
    confidences = {cause.id: cause.confidence for cause in classify(text)}
    assert next(iter(confidences)) == right
    assert confidences.get(wrong, 0) < 0.3


@pytest.mark.parametrize(
    ("text", "symptom", "cause"),
    [
        (
            "RuntimeError: Failed to infer device type",
            "F104",
            "NVML: Driver/library version mismatch",
        ),
        (
            "ModuleNotFoundError: No module named 'torch'",
            "F105",
            "error: externally-managed-environment",
        ),
        (
            "RuntimeError: Torch is not able to use GPU",
            "F103",
            "OSError: [WinError 1455] The paging file is too small",
        ),
    ],
)
def test_a_symptom_is_an_answer_only_where_nothing_names_the_cause(
    text, symptom, cause
):
    (alone,) = classify(text)
    assert alone.id == symptom
    assert any("gpuinstall doctor" in line for line in alone.fix)
    assert load_failures()[symptom].narrows
    assert symptom not in [each.id for each in classify(f"{cause}\n{text}")]


def test_an_answer_is_as_often_right_as_it_says():
    """Of texts that no pattern was written from, in each class of confidence that has some."""
    found = answers()
    for low, high in CLASSES:
        rights = [
            answer.is_right for answer in found if low <= answer.confidence < high
        ]
        if len(rights) >= 5:
            assert sum(rights) / len(rights) >= low


def test_no_answer_is_surer_than_was_measured_or_below_a_tenth():
    texts = [answer.text for answer in answers()]
    confidences = {cause.confidence for text in texts for cause in classify(text)}
    assert min(confidences) >= 0.1
    assert max(confidences) == 0.94


NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"
UNABLE = "RuntimeError: Torch is not able to use GPU"


@pytest.mark.parametrize(
    ("text", "faults", "decided"),
    [
        (NO_KERNEL, ["F38"], {"F38": 0.99}),
        (NO_KERNEL, ["F03"], {"F37": 0.46}),
        (NO_KERNEL, ["F37", "F134"], {"F37": 0.99}),
        (UNABLE, ["F33"], {"F33": 0.65}),
        (UNABLE, ["F02", "F33"], {"F33": 0.33, "F02": 0.33}),
    ],
)
def test_what_is_found_where_it_failed_decides_between_what_the_words_leave_open(
    text, faults, decided
):
    causes = classify(text, faults=dict.fromkeys(faults, ""))
    assert [(cause.id, cause.confidence) for cause in causes] == [*decided.items()]
