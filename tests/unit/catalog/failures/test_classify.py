"""Classification of failure messages and logs, and of healthy output."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuinstall.base.machine import Environment, Machine
from gpuinstall.catalog.failures.classify import classify
from gpuinstall.catalog.failures.table import load_failures
from tests.unit.catalog.failures.subjects import explained, lookalikes
from tests.unit.plan.machines import jetson, machine

LOGS = Path(__file__).resolve().parents[3] / "data" / "logs"
FAILING = sorted(LOGS.glob("F*.txt"))
KINDS = tomli.loads((LOGS / "kinds.toml").read_text("utf-8"))["text"]
PACKAGES = (LOGS / "healthy-packages.txt").read_text("utf-8")
NO_KERNEL = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device"
)
TOO_OLD = (
    "RuntimeError: The NVIDIA driver on your system is too old (found version 12080)."
)
NOT_SUPPORTED = "CUDA error: operation not supported"
NO_DRIVER = "Found no NVIDIA driver on your system."
NO_DEVICES = "No devices were found"
IN_DOCKER = Environment(container="docker")
# nvidia-smi prints this for three failures. The kernel log distinguishes them.
SHARED = {NO_DEVICES: {"F06", "F07", "F31"}}


def first(text, machine=None):
    return next((cause.id for cause in classify(text, machine)), None)


@cache
def causes_of(known):
    """Return the causes of a text, cached for two tests."""
    return classify(known)


def between_words(text, width):
    # Do not break a path, or a line after a colon.
    return re.sub(rf"([^\n\\]{{{width},}}?[^:]) (?=\S)", r"\1\n", text)


def prefixed(prefix):
    return lambda text: "\n".join(prefix + line for line in text.split("\n"))


MESSAGES = [
    (failure.id, message)
    for failure in load_failures().values()
    for message in failure.messages
]
BREAKS: dict[str, Callable[[str], str]] = {
    "wrapped between words": lambda text: between_words(text, 60),
    "colored": lambda text: "\n".join(
        f"\x1b[33m{line}\x1b[0m" for line in text.split("\n")
    ),
    "from Windows": lambda text: text.replace("\n", "\r\n"),
    "indented": prefixed("        "),
    "below a list of packages": lambda text: PACKAGES + text,
    "above a list of packages": lambda text: f"{text}\n{PACKAGES}",
    "in a long log": lambda text: (
        "".join(f"step {number} loss 0.{number}\n" for number in range(300)) + text
    ),
}


def rows_of(name):
    """Return each text of a table file with its entry; ``none``: no entry."""
    table = tomli.loads((LOGS / f"{name}.toml").read_text("utf-8"))
    for entry, texts in table.items():
        for text in [texts] if isinstance(texts, str) else texts:
            yield None if entry == "none" else entry, text


def nothing_in(*texts):
    """Return texts without an entry."""
    return [(None, text) for text in texts]


HEALTHY = [log.read_text("utf-8") for log in sorted(LOGS.glob("healthy-*.txt"))]
UNRELATED = (LOGS / "unrelated.txt").read_text("utf-8")
VARIANTS = [*rows_of("variants")]
TEXTS = {
    "messages": [row for row in MESSAGES if row[1] not in SHARED],
    "wordings of public threads": VARIANTS,
    "other programs and languages": [*rows_of("wordings")],
    "healthy logs": nothing_in(*HEALTHY),
    "healthy logs of 80 columns": nothing_in(
        *(re.sub(r"(.{80})(?=.)", r"\1\n", text) for text in HEALTHY)
    ),
    "unrelated lines": nothing_in(*UNRELATED.splitlines()),
    "unrelated lines together": nothing_in(UNRELATED),
    "healthy texts beside an entry": nothing_in(
        *(text for _, text in rows_of("counterparts"))
    ),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_error_text_is_classified_as_expected_failure(kind):
    causes = {(entry, text): causes_of(text) for entry, text in TEXTS[kind]}

    assert {
        row: found
        for row, found in causes.items()
        if next((cause.id for cause in found), None) != row[0]
    } == {}


def test_ambiguous_message_returns_all_causes():
    assert {text: {cause.id for cause in causes_of(text)} for text in SHARED} == SHARED
    assert all(
        entry in SHARED[message] for entry, message in MESSAGES if message in SHARED
    )


def test_every_failure_has_an_example_log():
    sources = tomli.loads((LOGS / "sources.toml").read_text("utf-8"))
    healthy = {entry for entry, _ in rows_of("counterparts")}
    assert {path.stem for path in FAILING} == load_failures().keys(), (
        "add a log to tests/data/logs/<id>.txt"
    )
    assert sources.keys() | healthy <= load_failures().keys()
    assert len(HEALTHY) >= 30


def test_failure_logs_are_classified_with_quoted_evidence():
    wrong = {}
    for log in FAILING:
        text = log.read_text("utf-8")
        cause = causes_of(text)[0]
        # URLs are decoded.
        is_quoted = cause.evidence in text.replace("%2B", "+")
        if not (cause.id == log.stem and is_quoted and cause.fix):
            wrong[log.stem] = cause

    assert wrong == {}


def test_cause_and_fix_depend_on_the_platform():
    here = Machine("linux", "x86_64", distribution="Ubuntu 22.04")
    wrong = {}
    for row in KINDS:
        causes = explained(row["says"], here)
        fix = "\n".join(map(str, causes[0].fix)) if causes else ""
        is_right = (
            row.get("is") in {None, *(cause.id for cause in causes[:1])}
            and row.get("fix", "") in fix
            and row.get("first", "") in fix.partition("\n")[0]
            and row.get("never", "no command") not in fix
            and row.get("why", "") in "".join(cause.why for cause in causes[:1])
            and bool(causes) == ("fix" in row)
        )
        if not is_right:
            wrong[row["says"]] = causes

    assert wrong == {}


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.heavy)])
def test_logs_are_classified_with_any_line_breaks(every):
    found = {}
    for number, (name, broken) in enumerate(BREAKS.items()):
        for log in FAILING[number % every :: every]:
            found[name, log.stem] = first(broken(log.read_text("utf-8")))

    assert {place: cause for place, cause in found.items() if cause != place[1]} == {}


@pytest.mark.parametrize(
    ("text", "known", "cause"),
    [
        (NO_KERNEL, machine("GTX 1080", driver=None), "F37"),
        (NO_KERNEL, machine("RTX 5090", driver=None), "F38"),
        (NO_KERNEL, machine("RTX 4090", "GTX 1080", driver=None), "F40"),
        (NO_KERNEL, jetson("Orin", "36.4.0", driver=None), "F29"),
        (TOO_OLD, machine("RTX 5090", driver="570.86", cuda="12.8"), "F39"),
        (TOO_OLD, machine("RTX 4090", driver="570.86", cuda="12.8"), "F02"),
        (NOT_SUPPORTED, machine("A100", driver="525.60.13"), "F19"),
        (NOT_SUPPORTED, machine("A100", driver="535.183.01"), "F18"),
        (NO_DEVICES, machine("GTX 1080", driver="590.48.01"), "F06"),
        (NO_DRIVER, machine(driver=None, environment=IN_DOCKER), "F25"),
        (NO_DRIVER, machine(driver=None, environment=Environment(wsl=True)), "F23"),
    ],
)
def test_classification_depends_on_the_machine(text, known, cause):
    assert first(text, known) == cause


def test_consequence_of_an_error_is_not_a_cause():
    causes = classify(
        "Error 802: system not yet initialized\nRuntimeError: No CUDA GPUs are available"
    )
    # The consequence has less than a tenth of the score.
    assert [cause.id for cause in causes] == ["F10"]


def test_at_most_three_independent_causes_are_reported():
    failures = load_failures()
    explained = [failures[name].messages[0] for name in ("F25", "F01")]
    many = [failure.messages[0] for failure in failures.values()][:14]
    far = "\n" * 100

    assert [cause.id for cause in classify(far.join(explained))] == ["F25"]
    assert len(classify(far.join(many))) == 3


LOOKALIKES = {
    name: (LOGS / f"healthy-{name}.txt").read_text("utf-8")
    for name in (
        "out-of-memory",
        "device-assert",
        "killed-for-memory",
        "file-watches",
        "model-too-new",
        "package-missing",
    )
} | {
    "libuv": "use_libuv was requested but PyTorch was built without libuv support",
    "two-openmp": "OMP: Error #15: Initializing libiomp5md.dll, but found libomp",
    "weights-only": "_pickle.UnpicklingError: Weights only load failed.",
}


@pytest.mark.parametrize("name", LOOKALIKES)
def test_errors_similar_to_gpu_failures_are_reported_separately(name):
    assert [other.id for other in lookalikes(LOOKALIKES[name])] == [name]


def test_exhausted_open_files_require_higher_limit():
    (limit,) = lookalikes("RuntimeError: received 0 items of ancdata")
    assert str(limit.fix[0]).startswith("ulimit -n ")


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (
            "Free memory on device (2.13/23.65 GiB) on startup is less than desired GPU memory utilization (0.9, 21.28 GiB).",
            "nvidia-smi",
        ),
        (
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
            "--max-model-len",
        ),
        (
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes.",
            "data loader workers",
        ),
        ("train.py FAILED exitcode  : -9 (pid: 5)", "data loader workers"),
        ("Error while deserializing header: HeaderTooLarge", "Download the file again"),
        ("ValueError: Tokenizer class X does not exist", "--upgrade transformers"),
    ],
)
def test_first_step_belongs_to_the_cause(text, step):
    (cause,) = lookalikes(text)
    assert step in str(cause.fix[0])
    # With a small gpu_memory_utilization, most of the memory is free.
    assert " full" not in cause.title or "main memory" in cause.title


def test_out_of_memory_fix_excludes_current_process():
    own = "CUDA out of memory. Process 76 has 53.16 GiB memory in use. 40.69 GiB is reserved by PyTorch but unallocated"
    others = "CUDA out of memory. Process 76 has 53.16 GiB memory in use."
    (first, *rest), other = (
        [*map(str, lookalikes(text)[0].fix)] for text in (own, others)
    )
    assert "expandable_segments" in first
    assert "40.69 GiB is reserved and unused" in first
    assert not any("76" in line for line in rest)
    assert other[0].startswith("ps -fp 76 ")
    assert "{" not in "".join(map(str, lookalikes("CUDA out of memory")[0].fix))


@given(st.text())
def test_classify_accepts_arbitrary_text(text):
    classify(text)


@settings(max_examples=50)
@given(st.sampled_from(FAILING), st.integers(0, 3000), st.integers(0, 3000))
def test_classify_accepts_truncated_logs(log, start, length):
    classify(log.read_text("utf-8")[start : start + length])
