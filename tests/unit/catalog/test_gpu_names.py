"""A GPU by its name."""

import re
import time
from collections import defaultdict
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.base.errors import GpuInstallError, NoBuildError, UsageError
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.gpu_names import find_gpu
from gpuinstall.catalog.gpus import (
    card_capabilities,
    load_gpus,
    name_tables,
    other_chips,
    products,
)


def found(name):
    """What a name leads to: a compute capability, the name of other code, or the slug of the error."""
    try:
        gpu = find_gpu(name)
        return str(gpu.capability or gpu.architecture)
    except GpuInstallError as error:
        return error.code


def refused(name):
    with pytest.raises(UsageError) as caught:
        find_gpu(name)
    return caught.value


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("RTX 5090", "12.0"),
        ("NVIDIA GeForce RTX 5090", "12.0"),
        ("rtx5090", "12.0"),
        ("5090", "12.0"),
        ("rtx 4070 super", "8.9"),
        ("RTX 4090 Laptop GPU", "8.9"),
        ("RTX 3080 Mobile", "8.6"),
        ("GTX 1080", "6.1"),
        ("GTX 750 Ti", "5.0"),
        ("GT 710", "3.5"),
        ("Tesla K80", "3.7"),
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("TITAN RTX", "7.5"),
        ("A100", "8.0"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("RTX A6000", "8.6"),
        ("L4", "8.9"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("B200", "10.0"),
        ("GB10", "12.1"),
        ("Jetson AGX Thor", "11.0"),
        ("Quadro RTX 8000", "7.5"),
        ("NVIDIA TITAN X (Pascal)", "6.1"),
    ],
)
def test_a_gpu_is_found_by_its_name(name, capability):
    assert found(name) == capability


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("nvidia_h100_80gb_hbm3", "9.0"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "8.0"),
        ("A100 80 GB PCIe", "8.0"),
        ("RTX 3050", "8.6"),
        ("NVIDIA GeForce RTX 3050 A Laptop GPU", "8.9"),
        ("GTX 750", "5.0"),
        ("M2000", "5.2"),
        ("Quadro M2000M", "5.0"),
        ("Tesla K40", "3.5"),
        ("RTX 8000", "7.5"),
        ("NVIDIA GeForce GTX 1650 Ti with Max-Q Design", "7.5"),
        ("4090D", "8.9"),
    ],
)
def test_a_name_is_read_as_shops_and_habit_write_it(name, capability):
    assert found(name) == capability


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("DGX Spark", "12.1"),
        ("DGX A100", "8.0"),
        ("Grace Hopper", "9.0"),
        ("Jetson Orin", "8.7"),
        ("Jetson Orin Nano Super Developer Kit", "8.7"),
        ("Orin (nvgpu)", "8.7"),
        ("NVIDIA Thor", "11.0"),
        ("Jetson Nano", "5.3"),
        ("Hopper", "9.0"),
    ],
)
def test_a_product_line_is_found_by_a_name_that_no_bus_shows(name, capability):
    assert found(name) == capability


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("A100 MIG 1g.5gb", "8.0"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0"),
        ("A100 MIG 1c.3g.20gb", "8.0"),
        ("MIG 1g.5gb", "gpu-unknown"),
    ],
)
def test_a_slice_is_the_card_that_it_is_of(name, capability):
    assert found(name) == capability


def test_a_product_keeps_the_words_of_the_person_where_they_say_less_or_more_than_a_listed_name():
    names = ["rtx 5090", "NVIDIA-A100-80GB-PCIe", "A100 MIG 1g.5gb"]

    assert [find_gpu(name).name for name in names] == [
        "GeForce RTX 5090",
        "A100-80GB-PCIe",
        "A100 MIG 1g.5gb",
    ]


@pytest.mark.parametrize(
    ("name", "hints"),
    [
        (
            "RTX 6000",
            ['"Quadro RTX 6000" (sm_75)', '"RTX 6000 Ada Generation" (sm_89)', "RTX PRO 6000"],
        ),
        ("Blackwell", ["sm_100", "sm_103", "sm_110", "sm_120", "sm_121"]),
        ("GTX 860M", ["--gpu GK104 (sm_30)", "--gpu GM107 (sm_50)"]),
        ("DGX Station", ["sm_70", "sm_80", "sm_103"]),
        ("M4", ['"Tesla M4"']),
    ],
)
def test_a_name_of_several_chips_is_ambiguous_and_says_what_to_say(name, hints):
    error = refused(name)

    assert (error.code, error.exit_code) == ("gpu-ambiguous", 2)
    assert [hint for hint in hints if hint not in (error.hint or "")] == []


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA Graphics Device",
        "GeForce",
        "RTX",
        "80GB",
        "2",
        "",
        "RTX 50",
        "RTX 5090 Ti",
        "RTX 3090, RTX 3090",
        "Voodoo 2",
    ],
)
def test_a_name_of_no_one_gpu_is_never_guessed(name):
    assert refused(name).code == "gpu-unknown"


@pytest.mark.parametrize(
    ("name", "near"), [("RTX 5095", "RTX 5090"), ("GTX 1085", "GTX 1080"), ("RTX 409", "RTX 4090")]
)
def test_an_unknown_name_offers_the_nearest(name, near):
    assert refused(name).code == "gpu-unknown"
    assert near in (refused(name).hint or "")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("RX 7900 XTX", "gfx1100"),
        ("7900xtx", "gfx1100"),
        ("7900", "gfx1100"),
        ("AMD Radeon RX 6800", "gfx1030"),
        ("Radeon Pro W7900", "gfx1100"),
        ("R9700", "gfx1201"),
        ("Ryzen AI Max+ 395", "gfx1151"),
        ("8060S", "gfx1151"),
        ("AMD Radeon(TM) 780M Graphics", "gfx1103"),
        ("AMD Instinct MI250X", "gfx90a"),
        ("Navi 31", "gfx1100"),
        ("gfx90a", "gfx90a"),
        ("Intel(R) Arc(TM) A770 Graphics", "xe 12.55"),
        ("Data Center GPU Max 1550", "xe 12.60"),
        ("M2 Ultra", "metal"),
        ("Orin Nano", "8.7"),
        ("AGX Thor", "11.0"),
        ("A40", "8.6"),
        ("Arc Pro A40", "xe 12.56"),
    ],
)
def test_every_maker_s_names_are_read_alike(name, code):
    assert found(name) == code


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("780M", ["GeForce GTX 780M", "AMD Radeon 780M"]),
        ("880M", ["GeForce GTX 880M", "AMD Radeon 880M"]),
        ("M4", ["Tesla M4", "Apple M4"]),
        ("Alchemist", ["Alchemist"]),
    ],
)
def test_a_number_that_several_makers_or_chips_have_is_not_guessed(name, names):
    error = refused(name)

    assert error.code == "gpu-ambiguous"
    assert all(other in (error.hint or "") for other in names)


@pytest.mark.parametrize(
    "name", ["Quadro 6000", "NVIDIA Quadro 6000", "GTX 580", "Tesla M2090", "Quadro 2000"]
)
def test_a_card_before_kepler_is_not_taken_for_a_newer_one_of_the_same_number(name):
    with pytest.raises(NoBuildError) as caught:
        find_gpu(name)

    assert (caught.value.code, caught.value.exit_code) == ("gpu-not-supported", 3)
    assert "Fermi" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "maker"),
    [("RX 7990", "AMD"), ("Radeon HD 7970", "AMD"), ("Iris Xe", "Intel"), ("UHD 770", "Intel")],
)
def test_a_gpu_that_its_maker_sells_and_nobody_builds_for_says_so(name, maker):
    with pytest.raises(NoBuildError) as caught:
        find_gpu(name)

    assert (caught.value.code, caught.value.exit_code) == ("gpu-not-supported", 3)
    assert f"for {maker}'s {name}" in caught.value.message


@pytest.mark.parametrize(
    ("name", "near"),
    [("RX 7900 XTZ", "AMD Radeon RX 7900 XT"), ("Arc B850", "Intel Arc B580"), ("MI30X", "MI300X")],
)
def test_a_name_with_a_slip_of_the_pen_offers_another_makers_too(name, near):
    with pytest.raises(GpuInstallError) as caught:
        find_gpu(name)

    assert near in (caught.value.hint or "")


SHARED = {"m4", "840m"}
"""Listed names of NVIDIA's that are written as another maker's."""


def bare(name):
    return " ".join(word for word in name.split() if word.lower() not in name_tables()[0].brands)


def spellings(name):
    """A listed name in lower case, with underscores, with hyphens, with the maker's words and without."""
    low = {name.lower(), bare(name).lower(), f"nvidia {bare(name)}".lower()}
    return {
        name,
        *low,
        *(text.replace(" ", "_") for text in low),
        *(text.replace(" ", "-") for text in low),
    }


def letters(text):
    return re.sub("[^a-z0-9]", "", text.lower())


def test_a_listed_name_however_written_finds_its_chip_or_has_several():
    sold = defaultdict(
        set
    )  # the capabilities of the products with these letters, derived without the reader
    for sold_gpu in products():
        sold[letters(bare(sold_gpu.name))].add(str(sold_gpu.capability))
    wrong = {
        spelling: outcome
        for name in {product.name for product in products()}
        for spelling in spellings(name) - SHARED
        if (outcome := found(spelling))
        and {outcome}
        != (theirs if len(theirs := sold[letters(bare(name))]) == 1 else {"gpu-ambiguous"})
    }

    assert wrong == {}


SHARED_NUMBERS = {"840m", "860m", "880m", "760m", "780m", "m4"}
"""What NVIDIA sold too."""


def other_spellings(chip, name):
    """Return another maker's name in every case, with every separator, prefix and suffix."""
    texts = (name.lower(), name.upper(), name.replace(" ", "_"), name.replace(" ", "-"))
    prefixes = [f"{chip.brand} ", f"{chip.brand.upper()}_"]
    if letters(name) not in SHARED_NUMBERS:
        prefixes.append("")
    suffixes = ("", " Graphics", " 16GB", "-32GB", " (Mobile)")
    return {"".join(parts) for parts in product(prefixes, texts, suffixes)}


def test_another_makers_name_is_found_however_it_is_spelled():
    wrong = {}
    for chip in other_chips():
        for name in chip.products:
            for text in other_spellings(chip, name):
                if (code := found(text)) != chip.architecture:
                    wrong[text] = code

    assert wrong == {}


@given(st.text(max_size=30))
def test_any_text_is_a_gpu_or_an_error_that_says_why(text):
    errors = {"gpu-unknown", "gpu-ambiguous", "gpu-not-supported"}

    assert found(text) in {
        *errors,
        *(str(product.capability) for product in products()),
        *(chip.architecture for chip in other_chips()),
    }


@pytest.mark.parametrize("letters", ["a", "1.", "b5", "... ", "rtx 4090 "])
def test_a_name_of_100_000_letters_is_unknown_at_once(letters):
    start = time.process_time()

    assert found(letters * (100_000 // len(letters))) in {"gpu-unknown", "gpu-ambiguous"}
    assert time.process_time() - start < 2


def test_what_stands_beside_an_arm_processor_is_known():
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


def test_what_people_call_the_cards_of_a_capability_is_what_its_products_are_called():
    listed = load_gpus()["series"]
    names = {
        text: [one.name for one in products() if str(one.capability) == text] for text in listed
    }

    assert [
        (text, word)
        for text, words in listed.items()
        for word in words
        if not _is_called(word, names[text])
    ] == []
    unnamed = set(map(str, card_capabilities(load_catalog().drivers))) - listed.keys()
    assert unnamed <= {"3.0", "3.5", "5.0", "10.7", "11.0"}


def _is_called(series, products):
    """Whether a product is of a series: RTX 30 of RTX 3090, GTX 900 of GTX 980."""
    return any(series.rstrip("0") in name for name in products)
