"""A machine in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.catalog.gpus import Product, products
from gpuinstall.errors import UsageError
from gpuinstall.words import find_product, machine_in_words


def found(name: str) -> str:
    """What a name leads to: a compute capability, or the slug of the error."""
    try:
        return str(find_product(name).capability)
    except UsageError as error:
        return error.code


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("RTX 5090", "12.0"),
        ("NVIDIA GeForce RTX 5090", "12.0"),
        ("rtx5090", "12.0"),
        ("5090", "12.0"),
        ("RTX 5070 Ti", "12.0"),
        ("rtx 4070 super", "8.9"),
        ("RTX 4070 Ti SUPER", "8.9"),
        ("RTX 4090 Laptop GPU", "8.9"),
        ("RTX 3080 Mobile", "8.6"),
        ("GTX 1080", "6.1"),
        ("GeForce GTX 1080 Ti", "6.1"),
        ("GTX 980", "5.2"),
        ("GTX 750 Ti", "5.0"),
        ("GT 1030", "6.1"),
        ("GT 710", "3.5"),
        ("K80", "3.7"),
        ("Tesla K80", "3.7"),
        ("P40", "6.1"),
        ("P100", "6.0"),
        ("V100", "7.0"),
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("T4", "7.5"),
        ("TITAN RTX", "7.5"),
        ("A100", "8.0"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("A10", "8.6"),
        ("RTX A6000", "8.6"),
        ("L4", "8.9"),
        ("L40S", "8.9"),
        ("RTX 6000 Ada", "8.9"),
        ("H100", "9.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("H200", "9.0"),
        ("GH200", "9.0"),
        ("B200", "10.0"),
        ("RTX PRO 6000", "12.0"),
        ("GB10", "12.1"),
        ("Jetson AGX Thor", "11.0"),
        ("MX450", "7.5"),
        ("GM107", "5.0"),
        ("Quadro RTX 8000", "7.5"),
        ("GeForce GTX 1080 with Max-Q Design", "6.1"),
        ("NVIDIA TITAN X (Pascal)", "6.1"),
        ("GTX TITAN X", "5.2"),
    ],
)
def test_a_gpu_is_found_by_its_name(name: str, capability: str) -> None:
    assert str(find_product(name).capability) == capability


@given(st.sampled_from(products()))
def test_every_listed_name_finds_its_chip_or_is_said_to_have_several(product: Product) -> None:
    assert found(product.name) in {str(product.capability), "gpu-ambiguous"}


@pytest.mark.parametrize(
    ("name", "near"), [("RTX 5095", "RTX 5090"), ("GTX 1085", "GTX 1080"), ("RTX 409", "RTX 4090")]
)
def test_an_unknown_name_offers_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_product(name)

    assert caught.value.code == "gpu-unknown"
    assert near in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "chip"), [("GTX 860M", "GM107 (sm_50)"), ("Titan X", "GP102 (sm_61)"), ("RTX", "AD102")]
)
def test_a_name_sold_with_several_chips_asks_which(name: str, chip: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_product(name)

    assert caught.value.code == "gpu-ambiguous"
    assert f"--gpu {chip}" in (caught.value.hint or "")


@given(st.text(max_size=30))
def test_any_text_is_a_gpu_or_a_usage_error(text: str) -> None:
    assert found(text) in {"gpu-unknown", "gpu-ambiguous", *(str(product.capability) for product in products())}


def test_a_machine_has_what_was_said_and_nothing_else() -> None:
    made = machine_in_words(("RTX 5090", "sm_70"), "570.86", "windows", None)

    assert (made.os, made.arch, str(made.driver and made.driver.version)) == ("windows", "x86_64", "570.86")
    assert [str(gpu.compute_capability) for gpu in made.gpus] == ["12.0", "7.0"]
    assert made.pythons is None
    assert [gpu.memory_mib for gpu in made.gpus] == [None, None]


@pytest.mark.parametrize(("driver", "code"), [(None, "driver-missing"), ("banana", "driver-malformed")])
def test_a_driver_is_needed_and_checked(driver: str | None, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        machine_in_words(("RTX 5090",), driver, None, None)

    assert caught.value.code == code
