"""Intel's builds against the hardware that torch's documentation names: every torch, platform and chip."""

import pytest

from gpuinstall.api import choose
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.catalog import load_catalog
from tests.frozen import frozen_catalog

# By minor: the chips that the documentation of a release, or its makers, name, by the beginning of their version.
CLIENT = "12.55 12.56 12.57 12.71 12.74 20.1 20.2 20.4"
NAMED = {
    "2.5": ("12.60", ""),
    "2.6": (
        "12.60 12.55 12.56 12.57 20.1 20.2 20.4",
        "12.55 12.56 12.57 20.1 20.2 20.4",
    ),
    **dict.fromkeys(("2.7", "2.8", "2.9"), (f"12.60 {CLIENT}", CLIENT)),
    **{f"2.{minor}": (f"12.60 {CLIENT} 30", f"{CLIENT} 30") for minor in range(10, 16)},
}
CHIPS = [*f"12.60 {CLIENT} 30".split(), "12.2", "12.10", "12.70"]


@pytest.mark.parametrize("chip", CHIPS)
def test_plan_takes_every_build_whose_documentation_names_the_chip_and_no_other(chip):
    catalog = frozen_catalog()
    for minor, (linux, windows) in NAMED.items():
        for torch in (
            str(torch)
            for torch in catalog.releases
            if str(torch).startswith(f"{minor}.")
        ):
            for os, named in (("linux", linux), ("windows", windows)):
                plan = choose(
                    intel(chip, os),
                    Request((f"torch=={torch}",), backend="xpu"),
                    catalog,
                )
                assert (plan.choice is not None) == (chip in named.split()), (
                    chip,
                    torch,
                    os,
                )


def test_the_catalogue_has_the_builds_of_the_table_on_its_two_platforms():
    builds = [
        build
        for build in load_catalog().serving("xpu").builds
        if build.backend.kind == "xpu"
    ]

    assert {
        ".".join(str(build.torch).split(".")[:2]) for build in builds
    } == NAMED.keys()
    assert {build.platform for build in builds} == {"linux_x86_64", "windows_x86_64"}


def test_a_chip_that_torch_is_not_for_is_refused_by_name():
    plan = choose(intel("12.2"), Request(backend="xpu"), frozen_catalog())

    assert (plan.exit_code, plan.reasons[0].code) == (3, "no-build-ever")


def intel(chip, os="linux"):
    """A machine with one GPU of Intel's."""
    return Machine(
        os, "x86_64", gpus=(Gpu(0, vendor="intel", architecture=f"xe {chip}.0"),)
    )
