"""Tests of machines that options describe."""

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.catalog.gpus import load_other_chips
from gpuinstall.machine.options import machine_from_options


def refused(*gpus, driver, assumes_driver=False):
    with pytest.raises(UsageError) as caught:
        machine_from_options(gpus, driver, assumes_driver=assumes_driver)
    return caught.value


def test_machine_from_options_has_only_given_facts():
    made = machine_from_options(("RTX 5090", "sm_70"), "570.86", "windows")

    assert (made.os, made.arch) == ("windows", "x86_64")
    assert str(made.driver and made.driver.version) == "570.86"
    assert [str(gpu.compute_capability) for gpu in made.gpus] == ["12.0", "7.0"]
    assert made.pythons is None
    assert [gpu.memory_mib for gpu in made.gpus] == [None, None]


# Versions of CUDA and vGPU software, and malformed versions.
@pytest.mark.parametrize(
    "said", ["12.4", "cu124", "12.4.1", "vGPU 17.3", "banana", "-", "580.", "12.4.x.y"]
)
def test_malformed_driver_has_a_hint(said):
    error = refused("RTX 4090", driver=said)

    assert (error.code, error.exit_code) == ("driver-malformed", 2)
    assert "nvidia-smi" in (error.hint or "")
    assert "--driver 580" in (error.hint or "")


def test_glibc_is_accepted_only_on_linux():
    assert machine_from_options(("A100",), "580", glibc="2.35").glibc == "2.35"
    with pytest.raises(UsageError, match="not a glibc version for windows"):
        machine_from_options(("A100",), "580", "windows", glibc="2.35")


def test_missing_driver_suggests_the_latest():
    error = refused("RTX 5090", "V100", driver=None)

    assert (error.code, error.exit_code) == ("driver-missing", 2)
    assert "GeForce RTX 5090" in error.message
    [fix] = error.fixes
    assert fix.arguments == ("--driver", "580")


def test_no_driver_is_assumed_for_too_different_gpus():
    error = refused("RTX 5090", "K80", driver=None, assumes_driver=True)

    assert error.message == "no driver supports GeForce RTX 5090 and Tesla K80"
    assert error.hint == (
        "gpuinstall plan --gpu 'GeForce RTX 5090'\ngpuinstall plan --gpu 'Tesla K80'"
    )


@pytest.mark.parametrize(
    ("gpu", "driver", "os", "arch", "platform"),
    [
        ("RTX 4090", "580", None, None, "linux x86_64"),
        ("RTX 4090", "31.0.15.3623", None, None, "windows x86_64"),
        ("RTX 4090", "31.0.15.3623", "linux", None, "linux x86_64"),
        ("DGX Spark", "580", None, None, "linux aarch64"),
        ("DGX Spark", "580", None, "x86_64", "linux x86_64"),
        ("GB200", "580", None, None, "linux aarch64"),
        ("N1X", "615", None, None, "windows arm64"),
        ("N1X", "615", "linux", None, "linux aarch64"),
        ("sm_121", "580", None, None, "linux x86_64"),
        # It needs no driver.
        ("RTX 4090", None, "macos", None, "macos arm64"),
        ("M3", None, None, None, "macos arm64"),
    ],
)
def test_platform_is_given_or_implied(gpu, driver, os, arch, platform):
    made = machine_from_options((gpu, gpu), driver, os, arch)

    assert f"{made.os} {made.arch}" == platform


def test_products_of_other_vendors_are_found_by_name():
    wrong = []
    for chip in load_other_chips():
        for name in chip.products:
            (gpu,) = machine_from_options((f"{chip.brand} {name}",)).gpus
            if (gpu.vendor, gpu.architecture) != (chip.maker, chip.architecture):
                wrong.append((name, gpu))

    assert wrong == []


def test_ambiguous_name_of_two_vendors_is_rejected():
    error = refused("M4", driver="535")

    assert error.code == "gpu-ambiguous"
    assert error.hint == "Use --gpu metal (Apple M4) or --gpu sm_52 (Tesla M4)"
