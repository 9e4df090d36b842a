"""Conditions of texts that resemble errors."""

from gpuinstall.catalog.failures.classify import classify
from gpuinstall.catalog.failures.table import load_conditions, load_failures
from gpuinstall.catalog.failures.transcript import Transcript

VALUES = ("5", "32", "206", "torch", "xgboost", "sm_120", "transformers", "ray")


def names_in(text):
    """Return the names of the conditions in a text's messages."""
    messages = Transcript(text).messages
    return {
        row.name_of(passage.match)
        for row in load_conditions()
        for pattern in row.says
        for passage in messages.passages(pattern)
    }


def test_cause_inferred_from_platform_is_not_certain():
    texts = (
        "Failed to initialize NVML: Unknown Error",
        "it works on the host\ndocker: No CUDA GPUs are available",
    )

    assert {classify(text)[0].certainty for text in texts} == {"possible"}


def test_numpy_warning_of_isolated_build_is_ignored():
    warning = "UserWarning: Failed to initialize NumPy: No module named 'numpy' (Triggered internally)"

    assert classify(f"pip-build-env-x/overlay/torch/nn/modules.py:20: {warning}") == ()


def test_harmless_log_line_is_not_recognized_as_error():
    texts = (
        "libcudart.so.12 => /opt/env/lib/libcudart.so.12",
        "NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "torch 2.9.1+cu130, CUDA 13.0, cuDNN 9.13",
        "epoch 3 loss 0.35 (error 0.02) 999 of 1000",
    )
    named = {text: names_in(text) - {"missing library plugin"} for text in texts}

    assert {text: names for text, names in named.items() if names} == {}


def test_failure_signs_refer_to_existing_conditions():
    rows = load_conditions()
    names = {f"{row.name} {family}" for row in rows for family in row.of}
    names |= {row.name for row in rows}
    # Conditions with values, such as codes, have no families.
    names |= {f"{row.name} {value}" for row in rows if row.name for value in VALUES}
    signs = [
        (failure.id, sign.sees)
        for failure in load_failures().values()
        for sign in failure.signs
        if sign.sees
    ]

    assert [
        (entry, sees.pattern)
        for entry, sees in signs
        if not any(map(sees.fullmatch, names))
    ] == []
