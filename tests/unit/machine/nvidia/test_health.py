from __future__ import annotations

from typing import Any

import pytest

from gpuinstall.machine.nvidia.prober import NvidiaProber, judge_health
from tests.lab.driver import FakeDriver, FakeGpu

UNTOLD = "this driver does not report why clocks are reduced"
LINKLESS = "this card has no PCI Express link to measure, or the driver reports none"
SOUND = {
    "uncorrected": 0,
    "pages_pending": 0,
    "rows": [0, 0, 0, 0],
    "slowed": 0x1,
    "width": 16,
    "widest": 16,
}


def results(**facts: Any) -> dict[str, tuple[str, str | None]]:
    return {check.name: (check.status, check.message) for check in judge_health(SOUND | facts)}


def test_a_sound_card_passes():
    assert results() == {
        "ecc": ("passed", None),
        "clocks": ("passed", None),
        "pcie-link": ("passed", "x16"),
    }


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"uncorrected": 2}, "2 uncorrected memory errors"),
        ({"pages_pending": 1}, "a memory page waits to be retired"),
        ({"rows": [5, 1, 1, 0]}, "a memory row waits to be remapped"),
        ({"rows": [0, 0, 0, 1]}, "remapping a memory row failed"),
    ],
)
def test_faulty_memory_fails_with_its_cause(facts, message):
    check = judge_health(SOUND | facts)[0]
    assert (check.status, check.message, check.id) == ("failed", message, "F09")


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ([1, 1], "ECC is on"),
        ([1, 0], "ECC is on; off after the next restart"),
        ([0, 0], "ECC is off: memory errors are not counted"),
        ([0, 1], "ECC is off: memory errors are not counted; on after the next restart"),
    ],
)
def test_ecc_is_reported_as_it_is_and_as_it_will_be(mode, message):
    silent = dict.fromkeys(SOUND) | {"ecc": mode}

    assert results(ecc=mode)["ecc"] == ("passed", message)
    assert results(**silent)["ecc"] == ("skipped", message)


def test_a_slowed_or_narrow_card_passes_with_a_word():
    assert results(slowed=0x40 | 0x4)["clocks"] == (
        "passed",
        "slowed by heat (the hardware's limit)",
    )
    assert results(width=4)["pcie-link"] == ("passed", "x4, where card and slot could have x16")


def test_what_a_card_does_not_say_is_skipped():
    silent = dict.fromkeys(SOUND)
    assert {check.status for check in judge_health(silent)} == {"skipped"}


def test_a_chip_with_shared_memory_has_no_link():
    spark = {"compute_capability": [12, 1], "width": 1, "widest": 1}
    assert results(**spark)["pcie-link"][0] == "skipped"


def test_each_fact_of_nvml_is_judged(play):
    facts = {
        "sound": {"uncorrected": 0, "slowed": 0, "width": 16, "widest": 16},
        "one error": {"uncorrected": 1},
        "hot": {"slowed": 0x20},
        "narrow": {"width": 8, "widest": 16},
    }
    play(FakeDriver(tuple(FakeGpu(more=tuple(fact.items())) for fact in facts.values())))

    found = NvidiaProber().health()

    assert {
        name: [check.message for check in checks if check.message]
        for name, checks in zip(facts, found.values(), strict=True)
    } == {
        "sound": ["x16"],
        "one error": ["1 uncorrected memory errors", UNTOLD, LINKLESS],
        "hot": ["slowed by heat (the driver's limit)", LINKLESS],
        "narrow": [UNTOLD, "x8, where card and slot could have x16"],
    }


def test_nvml_is_asked_about_every_card(play):
    play(FakeDriver((FakeGpu(), FakeGpu(more=(("ecc", 1),)))))
    found = NvidiaProber().health()
    assert [checks[0].message for checks in found.values()] == [None, "ECC is on"]
    assert sorted(found) == [0, 1]
    assert [check.name for check in found[1]] == ["ecc", "clocks", "pcie-link"]


def test_a_driver_without_nvml_leaves_the_checks_out(play):
    play(FakeDriver((FakeGpu(),), nvml_init=18))
    assert NvidiaProber().health() == {}
