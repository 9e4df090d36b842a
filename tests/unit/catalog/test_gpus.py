"""Tests of finding GPUs by name."""

import re
import time
from collections import defaultdict
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.support_table import list_gpu_capabilities

from gpuinstall.base.errors import GpuInstallError
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.gpus import (
    find_gpu,
    load_gpus,
    load_other_chips,
    load_products,
)

NAMES = Path(__file__).parents[2] / "data" / "gpu_names.txt"


def found(name):
    """Return a capability, another vendor's architecture, or an error code."""
    try:
        gpu = find_gpu(name)
        return str(gpu.capability or gpu.architecture)
    except GpuInstallError as error:
        return error.code


def said(name):
    """Return the message and hint for an unknown name."""
    try:
        find_gpu(name)
    except GpuInstallError as error:
        return f"{error.message} {error.hint}"
    return ""


def cases():
    for line in NAMES.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, result = line.rpartition(": ")
            result, _, words = result.partition(", ")
            yield name, result, [word for word in words.split(" | ") if word]


def test_gpu_name_resolves_to_a_chip_or_error():
    wrong = {}
    for name, result, words in cases():
        text = said(name) if words else ""
        missing = [word for word in words if word not in text]
        if found(name) != result or missing:
            wrong[name] = (found(name), missing)

    assert wrong == {}


def test_resolved_gpu_name_keeps_model_suffix():
    names = {
        "rtx 5090": "GeForce RTX 5090",
        "NVIDIA-A100-80GB-PCIe": "NVIDIA-A100-80GB-PCIe",
        "A100 MIG 1g.5gb": "A100 MIG 1g.5gb",
        # Only the 4 GB model is listed.
        "T400": "T400",
        # These are not listed, but their family determines the chip.
        "RTX 5070 SUPER": "RTX 5070 SUPER, assumed to be an RTX 50",
        "NVIDIA RTX 5070 SUPER": "RTX 5070 SUPER, assumed to be an RTX 50",
        "Vera Rubin": "Vera Rubin, assumed to be an unreleased chip of 10.7",
    }

    assert {name: find_gpu(name).name for name in names} == names


SHARED = {"m4", "840m"}
"""Names of NVIDIA products that could belong to another vendor."""


def bare(name):
    brands = load_gpus()["brands"].split()
    return " ".join(word for word in name.split() if word.lower() not in brands)


def spellings(name):
    """Return spellings in lower case, with separators, and without vendor."""
    low = {name.lower(), bare(name).lower(), f"nvidia {bare(name)}".lower()}
    return {
        name,
        *low,
        *(text.replace(" ", "_") for text in low),
        *(text.replace(" ", "-") for text in low),
    }


def letters(text):
    return re.sub("[^a-z0-9]", "", text.lower())


# A step of 5 selects two or three of a dozen spellings, different ones for each name.
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.heavy)])
def test_listed_gpu_is_found_in_any_spelling(step):
    # The capabilities of all products with these letters.
    sold = defaultdict(set)
    for one in load_products():
        sold[letters(bare(one.name))].add(str(one.capability))
    spelled = [
        (spelling, sold[letters(bare(name))])
        for name in sorted({one.name for one in load_products()})
        for spelling in sorted(spellings(name) - SHARED)
    ]
    wrong = {}
    for spelling, capabilities in spelled[::step]:
        expected = capabilities if len(capabilities) == 1 else {"gpu-ambiguous"}
        if (outcome := found(spelling)) and {outcome} != expected:
            wrong[spelling] = outcome

    assert wrong == {}


SHARED_NUMBERS = {"840m", "860m", "880m", "760m", "780m", "m4"}
"""Vendor names on NVIDIA products."""


def other_spellings(chip, name):
    """Return a name in all cases, with all separators and suffixes."""
    texts = (name.lower(), name.upper(), name.replace(" ", "_"), name.replace(" ", "-"))
    prefixes = [f"{chip.brand} ", f"{chip.brand.upper()}_"]
    if letters(name) not in SHARED_NUMBERS:
        prefixes.append("")
    suffixes = ("", " Graphics", " 16GB", "-32GB", " (Mobile)")
    return {"".join(parts) for parts in product(prefixes, texts, suffixes)}


# A step of 17 selects three or four of sixty spellings, different ones for each name.
@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.heavy)])
def test_gpu_names_of_other_vendors_are_found(step):
    spelled = [
        (text, chip.architecture)
        for chip in load_other_chips()
        for name in chip.products
        for text in sorted(other_spellings(chip, name))
    ]
    codes = {text: (found(text), code) for text, code in spelled[::step]}

    assert {text: pair for text, pair in codes.items() if len({*pair}) > 1} == {}


@given(st.text(max_size=30))
def test_arbitrary_text_returns_gpu_or_error(text):
    errors = {"gpu-unknown", "gpu-ambiguous", "gpu-not-supported"}

    assert found(text) in {
        *errors,
        *(str(product.capability) for product in load_products()),
        *(chip.architecture for chip in load_other_chips()),
    }


@pytest.mark.parametrize("letters", ["a", "1.", "b5", "... ", "rtx 4090 "])
def test_long_names_are_rejected_quickly(letters):
    start = time.process_time()

    assert found(letters * (100_000 // len(letters))) in {
        "gpu-unknown",
        "gpu-ambiguous",
    }
    assert time.process_time() - start < 2


def test_gpu_name_determines_arm_platform():
    names = [
        "DGX Spark",
        "Jetson Orin",
        "GH200",
        "GB200",
        "GB300",
        "T4G",
        "H100",
        "B200",
        "RTX 5090",
        "T4",
    ]

    assert [find_gpu(name).arm for name in names] == [True] * 6 + [False] * 4


def test_gpu_series_names_match_their_products():
    listed = load_gpus()["series"]
    names = {
        text: [one.name for one in load_products() if str(one.capability) == text]
        for text in listed
    }

    assert [
        (text, word)
        for text, words in listed.items()
        for word in words
        if not _is_called(word, names[text])
    ] == []
    unnamed = (
        set(map(str, list_gpu_capabilities(load_catalog().drivers))) - listed.keys()
    )
    assert unnamed <= {"3.0", "3.5", "5.0", "10.7", "11.0"}


def _is_called(series, products):
    """Return whether a series includes a product: RTX 30 and RTX 3090."""
    return any(series.rstrip("0") in name for name in products)


def test_spaces_and_hyphens_do_not_change_a_gpu():
    names = {gpu.name for gpu in load_products()}
    names = names.union(*((*chip.products, chip.chip) for chip in load_other_chips()))
    wrong = []
    for name in sorted(names):
        joined = re.sub(r"(?<!\d) | (?!\d)", "", name)
        spelled = {joined, name.replace(" ", "-"), name.replace("-", " ")}
        wrong += [(name, one) for one in spelled if found(one) != found(name)]
    assert wrong == []
