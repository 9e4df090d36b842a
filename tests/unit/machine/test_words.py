"""A machine in words."""

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.catalog.gpus import other_chips
from gpuinstall.machine.words import driver_in_words, machine_in_words


def refused(*gpus, driver, os=None):
    with pytest.raises(UsageError) as caught:
        machine_in_words(gpus, driver, os, None)
    return caught.value


def test_a_machine_has_what_was_said_and_nothing_else():
    made = machine_in_words(("RTX 5090", "sm_70"), "570.86", "windows", None)

    assert (made.os, made.arch, str(made.driver and made.driver.version)) == (
        "windows",
        "x86_64",
        "570.86",
    )
    assert [str(gpu.compute_capability) for gpu in made.gpus] == ["12.0", "7.0"]
    assert made.pythons is None
    assert [gpu.memory_mib for gpu in made.gpus] == [None, None]


@pytest.mark.parametrize(
    ("said", "driver"),
    [
        ("535.183.01", "535.183.01"),
        ("570", "570"),
        ("31.0.15.3623", "536.23"),
    ],
)
def test_a_driver_is_read_as_windows_writes_it_too(said, driver):
    assert str(driver_in_words(said)) == driver


@pytest.mark.parametrize(
    "said",
    [
        "12.4",
        "cu124",
        "12.4.1",
        "vGPU 17.3",
    ],
)
def test_a_version_of_cuda_or_of_vgpu_software_is_no_drivers(said):
    error = refused("RTX 4090", driver=said)

    assert (error.code, error.exit_code) == ("driver-malformed", 2)
    assert "nvidia-smi" in (error.hint or "")


def test_a_glibc_may_be_given_where_there_is_one():
    assert machine_in_words(("A100",), "580", glibc="2.35").glibc == "2.35"
    with pytest.raises(UsageError, match="no glibc of windows"):
        machine_in_words(("A100",), "580", "windows", glibc="2.35")


@pytest.mark.parametrize("said", ["banana", "-", "580.", "12.4.x.y"])
def test_what_is_no_driver_says_what_to_give(said):
    error = refused("RTX 5090", driver=said)

    assert error.code == "driver-malformed"
    assert "--driver 580" in (error.hint or "")


def test_without_a_driver_the_answer_is_the_plan_of_each_card():
    error = refused("RTX 5090", "V100", driver=None)

    assert (error.code, error.exit_code) == ("driver-missing", 2)
    assert "GeForce RTX 5090" in error.message
    assert (error.hint or "").splitlines()[1:] == [
        "gpuinstall plan --gpu 'GeForce RTX 5090'",
        "gpuinstall plan --gpu V100",
    ]


def test_macos_needs_no_driver():
    assert machine_in_words(("RTX 4090",), None, "macos", None).driver is None


@pytest.mark.parametrize(
    ("gpus", "driver", "os", "platform"),
    [
        (("RTX 4090",), "580", None, ("linux", "x86_64")),
        (("RTX 4090",), "31.0.15.3623", None, ("windows", "x86_64")),
        (("RTX 4090",), "31.0.15.3623", "linux", ("linux", "x86_64")),
        (("DGX Spark",), "580", None, ("linux", "aarch64")),
        (("GB200", "GB200"), "580", None, ("linux", "aarch64")),
        (("N1X",), "615", None, ("windows", "arm64")),
        (("N1X",), "615", "linux", ("linux", "aarch64")),
        (("sm_121",), "580", None, ("linux", "x86_64")),
        (("RTX 4090",), "580", "macos", ("macos", "arm64")),
    ],
)
def test_the_platform_is_what_was_said_or_what_the_gpu_and_the_driver_s_number_have(
    gpus, driver, os, platform
):
    made = machine_in_words(gpus, driver, os, None)

    assert (made.os, made.arch) == platform


def test_the_processor_that_was_said_is_kept():
    assert machine_in_words(("DGX Spark",), "580", None, "x86_64").arch == "x86_64"


def test_every_product_of_another_maker_is_found_by_its_name_with_its_brand():
    wrong = []
    for chip in other_chips():
        for name in chip.products:
            (gpu,) = machine_in_words((f"{chip.brand} {name}",)).gpus
            if (gpu.vendor, gpu.architecture) != (chip.maker, chip.architecture):
                wrong.append((name, gpu))

    assert wrong == []


def test_a_name_that_is_nvidias_and_apples_is_not_guessed():
    error = refused("M4", driver="535")

    assert (error.code, error.hint) == (
        "gpu-ambiguous",
        "Use --gpu metal (Apple M4) or --gpu sm_52 (Tesla M4)",
    )
    assert machine_in_words(("M3",)).os == "macos"
