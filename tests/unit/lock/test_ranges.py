"""Ranges of GPUs and drivers: the machines that stand for them, the fewest locks, what no lock serves."""

import pytest
from packaging.version import Version

from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import Request
from gpuinstall.base.versions import Backend
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.gpus import card_capabilities, series_of
from gpuinstall.lock.cover import cover_range, machines_in, spanned

NAMES = ("RTX 30", "RTX 40", "A800")
SERIES = [
    name
    for capability in card_capabilities(load_catalog().drivers)
    for name in series_of(str(capability))
]


def covered(*names, drivers=None, request=None):
    catalog = load_catalog()
    machines = machines_in(names, drivers, "x86_64", catalog)
    return cover_range(machines, request or Request(), catalog)


def test_a_series_is_every_card_of_its_code_under_each_branch():
    machines = machines_in(NAMES, ">=525,<590", "x86_64", load_catalog())

    assert spanned(machines) == "RTX 30, RTX 40, A800 with driver 525–580"
    capabilities = {str(machine.gpus[0].compute_capability) for machine in machines}
    assert capabilities == {"8.6", "8.9", "8.0"}


def test_a_number_is_one_branch():
    machines = machines_in(["A800"], "570", "x86_64", load_catalog())

    assert spanned(machines) == "A800 with driver 570"


def test_each_machine_gets_its_newest_torch():
    cover = covered(*NAMES, drivers=">=525")

    assert {one.request.backend: spanned(one.serves) for one in cover.requests} == {
        "cu126": "RTX 30, RTX 40, A800 with driver 525–575",
        "cu132": "RTX 30, RTX 40, A800 with driver 580–615",
    }


def test_cards_that_share_no_build_have_a_lock_each():
    cover = covered("GTX 1080", "RTX 5090", drivers="580")

    cards = {one.request.backend: spanned(one.serves) for one in cover.requests}
    assert cards == {
        "cu126": "GeForce GTX 1080 with driver 580",
        "cu130": "GeForce RTX 5090 with driver 580",
    }


def test_what_no_build_runs_on_is_named_by_gpu_and_driver():
    cover = covered("RTX 40", drivers=">=470,<530")

    assert spanned(cover.unserved) == "RTX 40 with driver 470–515"


def test_a_torch_newer_than_its_lock_is_refused_as_that():
    _, older, _ = covered("RTX 30", drivers=">=470").requests

    (reason,) = older.outcome_with(torch=Version("2.15.0")).reasons
    assert reason.code == "newer-than-cover"
    assert reason.message.endswith("this lock of the range has an older torch")


def test_every_gpu_is_served_under_some_driver_or_named_and_a_target_has_one_torch():
    catalog = load_catalog()
    names = [*SERIES, "RX 7900 XTX", "Arc B580"]
    machines = machines_in(names, None, "x86_64", catalog)
    cover = cover_range(machines, Request(), catalog)

    served = sum(len(one.serves) for one in cover.requests)
    assert served + len(cover.unserved) == len(machines)
    kinds = {Backend.parse(one.request.backend).kind for one in cover.requests}
    assert kinds == {"cuda", "rocm", "xpu"}
    targets = [one.label for one in cover.requests]
    assert len(set(targets)) == len(targets)


@pytest.mark.parametrize("drivers", ["new", ">=", "470-580"])
def test_a_malformed_range_is_refused(drivers):
    with pytest.raises(UsageError, match="not a range of driver branches"):
        machines_in(["RTX 30"], drivers, "x86_64", load_catalog())
