from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.errors import UsageError
from gpuinstall.verify.bench import (
    Bench,
    DeviceBench,
    Measurement,
    ceilings_of,
    compare,
    load_cards,
)
from gpuinstall.verify.kernels.loading import fewest, worker_counts

LOADING = Measurement(
    "data-loading", 900.0, "img/s", settings={"num_workers": 4, "pin_memory": True}
)


def run(product: float, launch: float = 2.0, name: str = "NVIDIA GeForce RTX 4090") -> Bench:
    measured = (
        Measurement("product-float16", product, "TFLOP/s", ceiling=165.2),
        Measurement("launch", launch, "µs"),
        LOADING,
    )
    return Bench(
        "2.14.1+cu126", (DeviceBench(0, name, measured, {"product-fp8": "needs torch 2.1"}),)
    )


def test_a_run_is_read_back_as_it_was_written() -> None:
    assert Bench.from_dict(run(150.0).to_dict()) == run(150.0)


@pytest.mark.parametrize(
    "document", [None, [], {}, {"schema": "gpuinstall.bench/1"}, {"schema": "gpuinstall.plan/1"}]
)
def test_another_document_is_a_usage_error(document: Any) -> None:
    with pytest.raises(UsageError, match="the earlier run is"):
        Bench.from_dict(document)


@pytest.mark.parametrize("value", [None, "fast", "NaN", float("inf"), []])
def test_a_number_that_is_none_is_a_usage_error(value: object) -> None:
    document = run(150.0).to_dict()
    document["devices"][0]["measurements"][0]["value"] = value
    with pytest.raises(UsageError, match="malformed"):
        Bench.from_dict(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["name", "value", "unit", "index"]), inner)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["index", "name", "left_out"]), JSON),
    st.lists(JSON, max_size=3),
)
def test_no_document_of_an_earlier_run_ends_in_anything_but_our_error(
    device: dict[str, Any], measured: Any
) -> None:
    devices = [device | {"measurements": measured}]
    with suppress(UsageError):
        compare(
            run(1.0),
            Bench.from_dict({"schema": "gpuinstall.bench/1", "torch": "2", "devices": devices}),
        )


def test_a_measurement_says_how_far_it_got() -> None:
    assert run(150.0).devices[0].measurements[0].share == pytest.approx(0.908, abs=0.001)
    assert run(150.0).devices[0].measurements[1].share is None


def test_slower_products_and_longer_launches_are_worse() -> None:
    changes = {
        change.name: change for change in compare(run(120.0, launch=3.0), run(150.0, launch=2.0))
    }
    assert changes["product-float16"].gain == pytest.approx(-0.2)
    assert changes["launch"].gain == pytest.approx(-1 / 3)
    assert [changes[name].worse for name in ("product-float16", "launch", "data-loading")] == [
        True,
        True,
        False,
    ]


def test_only_the_same_device_is_compared() -> None:
    assert compare(run(1.0, name="A"), run(1.0, name="B")) == ()


def test_a_card_is_found_by_its_whole_name() -> None:
    assert ceilings_of("NVIDIA H200")["product-bfloat16"] == 989.5
    assert ceilings_of("NVIDIA H200")["memory"] == 4800
    assert ceilings_of("Tesla T4") == {"product-float32": 8.1, "product-float16": 65, "memory": 320}
    assert ceilings_of("NVIDIA GeForce RTX 4090 Laptop GPU") == {}


def test_cards_that_share_a_name_are_told_apart_by_memory() -> None:
    rates = {
        mib: ceilings_of("NVIDIA GeForce RTX 3080", mib).get("memory")
        for mib in (10240, 12288, 16384, None)
    }
    assert rates == {10240: 760, 12288: 912, 16384: None, None: None}


def test_every_ceiling_is_sourced_and_sensible() -> None:
    for card in load_cards():
        assert card["source"].startswith("https://"), card["name"]
        half = card.get("float16", card["float32"])
        assert card["float32"] <= half <= card.get("fp8", half * 2), card["name"]
        assert 100 < card["memory"] < 10000, card["name"]
        assert card.get("bfloat16", half) == half, card["name"]
    assert len({(card["name"], card.get("gib")) for card in load_cards()}) == len(load_cards())


def test_the_fewest_workers_that_suffice_are_recommended() -> None:
    assert worker_counts(6) == [0, 1, 2, 4]
    assert worker_counts(128) == [0, 1, 2, 4, 8, 16]
    assert fewest({0: 100.0, 1: 180.0, 2: 391.0, 4: 400.0, 8: 390.0}) == 2
