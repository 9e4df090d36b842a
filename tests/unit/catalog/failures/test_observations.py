"""Recognition of each observation in many generated wordings."""

from itertools import product
from pathlib import Path
from string import Template

import tomli

from gpuinstall.catalog.failures.classify import Circumstances, classify
from gpuinstall.catalog.failures.table import load_failures, load_kinds
from tests.unit.catalog.failures.subjects import lookalikes

LOGS = Path(__file__).resolve().parents[3] / "data" / "logs"
SAID = tomli.loads((LOGS / "observations.toml").read_text("utf-8"))


def families():
    """Yield each observation with each of its wordings."""
    for name, kinds in SAID["about"].items():
        for kind, values in kinds.items():
            for wording, value in product(SAID["wordings"][kind], values):
                yield name, Template(wording).substitute(it=value)
    for name, sentences in SAID["sentences"].items():
        for sentence in sentences:
            yield name, sentence


def names_in(text):
    """Return the names of a text's observations."""
    return {observation.name for observation in Circumstances(text).observations}


def test_every_wording_of_an_error_is_recognized():
    lost = [(name, text) for name, text in families() if name not in names_in(text)]

    assert lost == []


def test_out_of_memory_is_recognized_in_any_wording():
    others = [
        text
        for text in SAID["memory"]["texts"]
        if "out-of-memory" not in {other.id for other in lookalikes(text)}
    ]

    assert others == []


def test_cause_inferred_from_platform_is_not_certain():
    texts = (
        "Failed to initialize NVML: Unknown Error",
        "it works on the host\ndocker: No CUDA GPUs are available",
    )

    assert [text for text in texts if classify(text)[0].is_certain] == []


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


def test_failure_signs_refer_to_existing_observations():
    names = {f"{kind.name} {family}" for kind in load_kinds() for family in kind.of}
    names |= {kind.name for kind in load_kinds()}
    # Observations without a family are codes or signals.
    names |= {"winerror 5", "winerror 32", "winerror 206", "no wheel torch"}
    names |= {
        "cpu build xgboost",
        "unknown architecture sm_120",
        "no version transformers",
        "no file ray",
    }
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
