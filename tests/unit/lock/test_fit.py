import pytest
import tomli_w

from gpuinstall.base.finding import Rejection
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.lock.file.fit import Fit, best, fit
from gpuinstall.lock.file.lock import Record, parse
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.file.write import document
from tests.frozen import frozen_catalog

CATALOG = frozen_catalog()
TAGS = {
    "linux": "manylinux_2_28_x86_64",
    "windows": "win_amd64",
    "macos": "macosx_11_0_arm64",
}


def locked(version, target, python="3.12"):
    cp = f"cp{python.replace('.', '')}"
    wheel = f"torch-{version.replace('+', '%2B')}-{cp}-{cp}-{TAGS[target.os]}.whl"
    url = f"https://index.example/{wheel}"
    packages = [{"name": "torch", "version": version, "wheels": [{"url": url}]}]
    record = Record(inputs=("torch",), torch=version, backend=target.backend)
    return parse(
        target.filename,
        tomli_w.dumps(document(packages, {url: "1" * 64}, target, python, record)),
    )


def machine(driver=None, capability=None):
    gpus = (
        (Gpu(0, "GPU", compute_capability=ComputeCapability.parse(capability)),)
        if capability
        else ()
    )
    found = Driver(DriverVersion.parse(driver)) if driver else None
    return Machine(
        "linux",
        "x86_64",
        "glibc",
        "2.36",
        pythons=("3.11.7", "3.12.1"),
        driver=found,
        gpus=gpus,
    )


LOCKS = [
    locked("2.14.1+cu126", Target("cu126")),
    locked("2.14.1+cu130", Target("cu130")),
    locked("2.14.1+cu130", Target("cu130", "windows")),
    locked("2.14.1+cpu", Target("cpu")),
]


@pytest.mark.parametrize(
    ("here", "chosen"),
    [
        (machine("580.95.05", "6.1"), "pylock.cu126.toml"),
        (machine("580.95.05", "8.0"), "pylock.cu130.toml"),
        (machine("535.183.01", "8.9"), "pylock.cu126.toml"),
        (machine("580.95.05", "12.0"), "pylock.cu130.toml"),
        (machine(), "pylock.cpu.toml"),
    ],
)
def test_of_the_locks_in_a_folder_each_machine_takes_the_one_that_runs_there(
    here, chosen
):
    fits = [fit(lock, here, Request(), CATALOG) for lock in LOCKS]
    found = best(fits, here, Request(), CATALOG)
    assert found is not None
    assert found.lock.name == chosen
    assert str(found.choice.build.torch) == "2.14.1"
    assert all(
        misfit.reason.message for misfit in fits if isinstance(misfit, Rejection)
    )


def misfit(lock, here, request=None):
    judged = fit(lock, here, request or Request(), CATALOG)
    assert isinstance(judged, Rejection)
    return judged.reason.code


def test_a_patch_release_of_python_fits_the_lock_of_its_minor():
    exact = Request(python="3.12.1")

    assert isinstance(fit(LOCKS[0], machine("580.95.05", "8.0"), exact, CATALOG), Fit)


def test_a_lock_for_another_system_is_refused_by_the_standards_own_fields():
    assert misfit(LOCKS[2], machine("580.95.05", "8.0")) == "other-platform"


def test_a_build_for_gpus_is_no_build_for_a_machine_without_any_unless_it_is_asked_for():
    # The default index has the second, too, without its label.
    for lock in LOCKS[:2]:
        assert misfit(lock, machine()) == "gpu-build"
    assert isinstance(fit(LOCKS[0], machine(), Request(backend="cu126"), CATALOG), Fit)
    assert isinstance(
        fit(locked("2.14.1", Target("cu130")), machine(), Request(), CATALOG), Fit
    )


def test_a_cpu_build_is_no_build_for_a_machine_with_a_gpu_unless_it_is_asked_for():
    assert misfit(LOCKS[3], machine("580.95.05", "8.0")) == "cpu-build"
    assert isinstance(
        fit(LOCKS[3], machine("580.95.05", "8.0"), Request(backend="cpu"), CATALOG), Fit
    )


def test_a_lock_whose_glibc_is_newer_is_refused():
    old = replace(machine("580.95.05", "8.0"), glibc="2.17")
    assert misfit(LOCKS[0], old) == "other-platform"


def test_a_lock_that_does_not_hold_the_request_is_refused():
    assert (
        misfit(LOCKS[3], machine(), Request(("torch", "torchvision")))
        == "other-request"
    )
    assert misfit(LOCKS[3], machine(), Request(("torch<2.14",))) == "other-request"
    assert isinstance(
        fit(
            LOCKS[3],
            machine(),
            Request(("Torch>=2.14", 'winonly; sys_platform == "win32"')),
            CATALOG,
        ),
        Fit,
    )


def test_a_python_that_is_fixed_otherwise_refuses_the_lock():
    assert misfit(LOCKS[3], machine(), Request(python="3.11"))


def test_what_the_tool_table_claims_decides_nothing():
    claims = LOCKS[1].text.replace('backend = "cu130"', 'backend = "cu126"')
    assert (
        misfit(parse("pylock.cu126.toml", claims), machine("535.183.01", "8.9")) != ""
    )


def test_a_torch_that_the_catalogue_does_not_know_is_refused():
    assert (
        misfit(locked("9.9.9+cu126", Target("cu126")), machine("580.95.05", "8.0"))
        == "unknown-build"
    )


def test_the_default_indexs_build_is_known_by_having_no_label():
    lock = locked("2.14.1", Target("cu130"))
    judged = fit(lock, machine("580.95.05", "8.0"), Request(), CATALOG)
    assert isinstance(judged, Fit)
    assert judged.choice.build.backend.tag == "cu130"
    assert judged.choice.index is None
