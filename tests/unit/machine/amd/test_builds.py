"""AMD's builds against the table of the index: every torch, tag and chip, written down here a second time."""

import pytest

from gpuinstall.api import choose
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from tests.frozen import frozen_catalog

SEVEN = "900 906 908 90a 942 1030 1100"
EIGHT = f"{SEVEN} 1101"
ELEVEN = f"{EIGHT} 1102 1200 1201"
FOURTEEN = f"{ELEVEN} 950 1150 1151"
FIFTEEN = f"{FOURTEEN} 1103"

# The releases of torch on the index, by minor: tags and the chips that each has code for.
TABLE = {
    "2.0": {"5.3": "", "5.4.2": ""},
    "2.1": {"5.5": "", "5.6": ""},
    "2.2": {"5.6": "", "5.7": ""},
    "2.3": {"5.7": "", "6.0": SEVEN},
    "2.4": {"6.0": SEVEN, "6.1": EIGHT},
    "2.5": {"6.1": EIGHT, "6.2": SEVEN},
    "2.6": {"6.1": EIGHT, "6.2.4": EIGHT},
    "2.7": {"6.2.4": ELEVEN, "6.3": ELEVEN},
    "2.8": {"6.3": ELEVEN, "6.4": ELEVEN},
    "2.9": {"6.3": ELEVEN, "6.4": ELEVEN},
    "2.10": {"7.0": FOURTEEN, "7.1": FOURTEEN},
    "2.11": {"7.1": FOURTEEN, "7.2": FOURTEEN},
    "2.12": {"7.1": FOURTEEN, "7.2": FOURTEEN},
    "2.13": {"7.1": FIFTEEN, "7.2": FIFTEEN},
    "2.14": {"7.2": FIFTEEN},
}
CHIPS = sorted(
    {
        f"gfx{chip}"
        for tags in TABLE.values()
        for chips in tags.values()
        for chip in chips.split()
    }
)


def amd(*chips, os="linux", kernel=None):
    gpus = [
        {
            "index": index,
            "vendor": "amd",
            "architecture": chip,
            "compute_capability": None,
        }
        for index, chip in enumerate(chips)
    ]
    least = {"schema": "gpuinstall.machine/1", "os": os, "arch": "x86_64", "gpus": gpus}
    return Machine.from_dict(
        {**least, **({"amd": {"kernel": kernel}} if kernel else {})}
    )


@pytest.mark.parametrize("chip", [*CHIPS, "gfx1031", "gfx1036", "gfx803"])
def test_plan_takes_every_build_that_names_the_chip_and_no_other(chip):
    machine, catalog = amd(chip), frozen_catalog()
    for minor, tags in TABLE.items():
        torches = [
            str(torch)
            for torch in catalog.releases
            if str(torch).startswith(f"{minor}.")
        ]
        for tag, chips in tags.items():
            for torch in torches:
                plan = choose(
                    machine,
                    Request((f"torch=={torch}",), backend=f"rocm{tag}"),
                    catalog,
                )
                assert (plan.choice is not None) == (
                    chip.removeprefix("gfx") in chips.split()
                ), (
                    chip,
                    torch,
                    tag,
                )


def test_the_catalogue_has_the_builds_of_the_table_and_the_one_that_is_not_installed_yet():
    builds = [
        build
        for build in frozen_catalog().serving("rocm").builds
        if build.backend.kind == "rocm"
    ]
    minors = {
        (".".join(str(build.torch).split(".")[:2]), build.backend.version or "")
        for build in builds
    }

    assert minors == {(minor, tag) for minor, tags in TABLE.items() for tag in tags} | {
        ("2.14", "7.14")
    }
    assert {build.platform for build in builds} == {"linux_x86_64"}


def test_a_build_in_separate_packages_one_of_them_code_is_refused_by_name():
    plan = choose(amd("gfx1100"), Request(backend="rocm7.14"), frozen_catalog())

    assert (plan.status, plan.reasons[0].code) == ("refused", "split")


def test_a_chip_is_never_served_by_the_code_of_its_relatives():
    plan = choose(amd("gfx1031"), Request(), frozen_catalog())

    assert (plan.exit_code, plan.reasons[0].code) == (3, "no-build-ever")
    command, cpu = (plan.fix or "").splitlines()
    assert command.startswith(
        "python -m pip install --index-url https://stable.repo.amd.com/"
    )
    assert '"torch[device-gfx1031]==' in command
    assert cpu == "Run it again with --backend cpu: the CPU build instead"


def test_a_kernel_far_from_the_rocm_is_a_warning_and_prefers_an_older_one():
    near = choose(amd("gfx1100", kernel="6.17.0-5"), Request(), frozen_catalog())
    far = choose(amd("gfx1100", kernel="6.8.0-45"), Request(), frozen_catalog())

    assert [warning.code for warning in near.warnings] == ["not-proven"]
    assert [warning.code for warning in far.warnings] == [
        "not-proven",
        "kernel-far-from-rocm",
    ]
    assert "682 days apart" in far.warnings[1].message


def test_what_people_reported_of_a_chip_is_said():
    plan = choose(
        amd("gfx1151", kernel="6.11.0"), Request(("torch==2.11.0",)), frozen_catalog()
    )

    assert plan.choice is not None
    assert plan.choice.build.backend.tag == "rocm7.2"
    assert any(
        warning.code == "reported" and "6.14" in warning.message
        for warning in plan.warnings
    )


def test_windows_is_refused_with_amds_own_command_and_guide():
    plan = choose(amd("gfx1201", os="windows"), Request(), frozen_catalog())

    assert (plan.exit_code, plan.reasons[0].code) == (3, "amd-elsewhere")
    command, guide, *_ = (plan.fix or "").splitlines()
    assert command.startswith(
        "python -m pip install --index-url https://stable.repo.amd.com/rocm/whl-next/"
        ' "torch[device-gfx1201]==2.14.0+rocm10.1.0"'
        ' "torchvision[device-gfx1201]==0.29.0a0+rocm10.1.0" "torchaudio==2.11.0.3+rocm10.1.0"   # '
    )
    assert guide.startswith("AMD's guide: https://rocm.docs.amd.com/")
