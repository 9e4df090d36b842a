from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.finding import CheckResult
from gpuinstall.base.values import replace
from gpuinstall.install.proof import catalog_without, check_links
from gpuinstall.verify import verdict
from gpuinstall.verify.verdict import Device, Verdict
from tests.frozen import frozen_catalog
from tests.lab.listener import Listener
from tests.unit.wheels.test_linking import place

CATALOG = frozen_catalog()
BUILDS = CATALOG.builds_for("linux", "x86_64")
CU130 = next(build for build in BUILDS if build.backend.tag == "cu130")


def failing(cause):
    checks = (
        CheckResult("matmul-float32", "failed", id=cause),
        CheckResult("sort", "passed", id="F19"),
    )
    return Verdict(verdict.VerifiedEnvironment(), (Device(0, "GPU", checks),))


def left(catalog):
    return [build for build in catalog.builds if not build.absent]


def test_a_missing_kernel_rules_out_the_builds_with_the_same_code():
    rest = catalog_without(CATALOG, CU130, failing("F37"))
    assert rest is not None
    assert CU130.code not in {build.code for build in left(rest)}
    assert {build.toolkit[0] for build in left(rest) if build.toolkit} >= {12, 13}


def test_a_driver_that_does_not_serve_the_cuda_rules_out_its_major():
    rest = catalog_without(CATALOG, CU130, failing("F19"))
    assert rest is not None
    assert 13 not in {build.toolkit[0] for build in left(rest) if build.toolkit}
    assert any(build.backend.tag == "cu126" for build in left(rest))


def test_a_build_that_this_run_alone_has_learned_is_ruled_out_too():
    learned = replace(CU130, torch=Version("99.0"), learned="2026-11-20")
    rest = catalog_without(CATALOG, learned, failing("F37"))
    assert rest is not None
    assert {build.absent for build in rest.builds if build.torch == learned.torch} == {
        "failed"
    }


@pytest.mark.parametrize("cause", ["F59", "F70", None])
def test_what_another_build_would_not_repair_is_not_tried_again(cause):
    assert catalog_without(CATALOG, CU130, failing(cause)) is None


def test_only_what_failed_counts():
    passed = Verdict(
        verdict.VerifiedEnvironment(),
        (Device(0, "GPU", (replace(CheckResult("sort", "passed"), id="F37"),)),),
    )
    assert catalog_without(CATALOG, CU130, passed) is None


def linked(site, *named):
    """What is warned of an environment that these packages were asked for."""
    fit: Any = SimpleNamespace(choice=SimpleNamespace(requirements=named))
    warnings = Listener()
    check_links(fit, site, warnings)
    return warnings.warnings


def test_a_named_package_whose_library_is_nowhere_is_refused_with_the_command_that_brings_it(
    tmp_path,
):
    strings = ["libcublas.so.12"]
    place(
        tmp_path,
        "ctranslate2",
        "ctranslate2.libs/libctranslate2-a7a60d30.so.4.8.5",
        strings=strings,
    )
    with pytest.raises(InstallationError) as refused:
        linked(tmp_path, "ctranslate2")
    assert (
        "needs libcublas.so.12, which is neither in the environment nor on the system"
        in refused.value.message
    )
    assert refused.value.hint == "Request nvidia-cublas-cu12 too"
    assert len(linked(tmp_path, "faster-whisper")) == 1


def test_a_cudnn_of_another_major_does_not_pass_for_the_one_that_is_needed(tmp_path):
    place(
        tmp_path,
        "nvidia-cudnn-cu12",
        "nvidia/cudnn/lib/libcudnn.so.9",
        soname="libcudnn.so.9",
    )
    place(tmp_path, "some", "some/_C.so", needs=["libcudnn.so.8"])
    with pytest.raises(InstallationError, match=r"needs libcudnn\.so\.8"):
        linked(tmp_path, "some")


def test_a_library_that_lies_in_a_folder_of_its_packages_own_is_left_to_it(tmp_path):
    place(
        tmp_path,
        "tensorrt-cu12-libs",
        "tensorrt_libs/libnvinfer.so.10",
        soname="libnvinfer.so.10",
    )
    place(tmp_path, "some", "some/_C.so", needs=["libnvinfer.so.10"])
    assert linked(tmp_path, "some") == []


def test_a_library_that_only_a_variable_brings_is_left_to_it(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "libcublas.so.12").touch()
    place(tmp_path, "some", "some/_C.so", needs=["libcublas.so.12"])
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path / 'elsewhere'}")
    assert linked(tmp_path, "some") == []
