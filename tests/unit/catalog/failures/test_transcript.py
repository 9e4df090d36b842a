"""Messages are found despite line endings and escape sequences."""

import re

import pytest

from gpuinstall.catalog.failures.table import Pattern
from gpuinstall.catalog.failures.transcript import LONGEST, Transcript
from tests.unit.catalog.failures.attacks import patterns

SAYS = Pattern("found no nvidia driver on your system")
LINE = "RuntimeError: Found no NVIDIA driver on your system. Please check"


def quotation(text, pattern=SAYS):
    passage = Transcript(text).find(pattern)
    assert passage is not None
    return passage.quotation


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        LINE.upper(),
        f"\x1b[31m{LINE}\x1b[0m",
        LINE.replace(" ", "\n"),
        "RuntimeError: Found no NVIDIA driver\non your system. Please check",
        "progress 10%\rprogress 90%\rFound no NVIDIA driver on your system",
    ],
)
def test_line_wrapped_message_is_found(text):
    assert Transcript(text).find(SAYS) is not None


def test_evidence_of_a_wrapped_message_has_all_lines():
    assert quotation("one\nFound no NVIDIA\ndriver on your system\ntwo") == (
        "Found no NVIDIA\ndriver on your system"
    )


@pytest.mark.parametrize(
    ("line", "is_message"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=4 train.py", False),
        ("$ python train.py --seed=46", False),
        ("root@node:/w# vllm serve m --max-num-seqs=100", False),
        ("export CUDA_HOME=/usr/local/cuda", False),
        ("RUN CUDA_HOME=/usr/local/cuda pip install .", False),
        ("node1:12:34 [0] NCCL INFO Failed to open libibverbs.so[.1]", False),
        ("node1:12:34 [0] NCCL WARN Failed to open libibverbs.so[.1]", True),
        ("CUDA_HOME=/usr/local/cuda-12 does not exist", True),
        ("$ nvidia-smi: command not found", True),
        ("conda install pytorch installs the CPU version", True),
    ],
)
def test_shell_commands_are_not_error_messages(line, is_message):
    assert bool(Transcript(line).messages.find(Pattern("\\S"))) == is_message


def test_ellipsis_pattern_does_not_match_across_lines():
    pattern = Pattern("libcudnn…not found")
    assert Transcript("libcudnn.so.9 was not found").find(pattern)
    assert Transcript("libcudnn.so.9 is here\nfile not found").find(pattern) is None


def test_failure_line_is_found_in_a_long_text():
    noise = "step 1 loss 0.1\n" * (LONGEST // 10)
    for text in (
        f"{LINE}\n{noise}",
        f"{noise}{LINE}\n{noise[:9000]}",
        f"{noise}{LINE}\n{noise}",
    ):
        assert quotation(text) == LINE
    assert quotation("x" * 1_000_000 + f" {LINE} " + "x" * 1_000_000)
    assert len(quotation("x" * 3_000_000 + LINE)) <= 2001


@pytest.mark.parametrize(
    ("says", "needle"),
    [
        ("error 803", "error"),
        (r"libcuda\.so(\.1)?: cannot open", "libcuda"),
        ("(alpha|beta|gamma) on", "on"),
        ("(alpha|beta (gamma|delta))", ""),
        (r"capability (\(cc\) )?12\.1", "capability"),
        ("colou?r of [abc)]+ things", "things"),
        (r"errno 2\][^\n]{0,60}[a-z]:\\[^\n]{220}", "errno"),
    ],
)
def test_literal_search_text_is_extracted_from_pattern(says, needle):
    assert Pattern(says).needle == needle


def test_pattern_alternatives_are_in_parentheses():
    groups = re.compile(r"\[(?:\\.|[^\]\\])+\]|\((?:\\.|[^()\\])*\)")
    wrong = []
    for pattern in patterns():
        outside = re.sub(r"\\[^\w\s]", "", pattern.says)
        while (rest := groups.sub("", outside)) != outside:
            outside = rest
        if "|" in outside:
            wrong.append(pattern.says)
    assert wrong == []


@pytest.mark.parametrize(
    ("says", "text"),
    [
        (
            r"torchvision [\d.+a-z]+ requires",
            "torchvision 0.18.0+cu121 requires torch==2.3.0",
        ),
        (r"torch [^\n.]{0,9}[+.*]+ end", "torch 2 +.* end"),
        (r"nvidia[^\n ]*: key", "nvidia+open: key"),
        (r"torch[ =-]+2", "torch - 2"),
    ],
)
def test_quotation_includes_whole_character_class_match(says, text):
    assert quotation(text, Pattern(says)) == text
