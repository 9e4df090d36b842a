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
from tests.lab.parsed import required
from tests.unit.wheels.test_linking import place

CATALOG = frozen_catalog()
BUILDS = CATALOG.builds_for("linux", "x86_64")
CU130 = next(build for build in BUILDS if build.backend.tag == "cu130")


def failing(cause, status="failed"):
    checks = (
        CheckResult("matmul-float32", status, id=cause),
        CheckResult("sort", "passed", id="F19"),
    )
    return Verdict(verdict.VerifiedEnvironment(), (Device(0, "GPU", checks),))


def left(cause, build=CU130):
    """The builds that are left after one of them has failed."""
    rest = catalog_without(CATALOG, build, failing(cause))
    assert rest is not None
    return [build for build in rest.builds if not build.absent]


def majors(builds):
    return {build.toolkit[0] for build in builds if build.toolkit}


def test_a_missing_kernel_rules_out_the_builds_with_the_same_code():
    builds = left("F37")
    assert CU130.code not in {build.code for build in builds}
    assert majors(builds) >= {12, 13}


def test_a_driver_that_does_not_serve_the_cuda_rules_out_its_major():
    builds = left("F19")
    assert 13 not in majors(builds)
    assert "cu126" in {build.backend.tag for build in builds}


def test_a_build_that_this_run_alone_has_learned_is_ruled_out_too():
    learned = replace(CU130, torch=Version("99.0"), learned="2026-11-20")
    rest = catalog_without(CATALOG, learned, failing("F37"))
    assert rest is not None
    assert [build.absent for build in rest.builds if build.torch == learned.torch] == [
        "failed"
    ]


@pytest.mark.parametrize("cause", ["F59", "F70", None])
def test_what_another_build_would_not_repair_is_not_tried_again(cause):
    assert catalog_without(CATALOG, CU130, failing(cause)) is None


def test_only_what_failed_counts():
    assert catalog_without(CATALOG, CU130, failing("F37", "passed")) is None


def linked(site, *named):
    """Return the warnings of an environment with these requested packages."""
    choice = SimpleNamespace(requirements=required(*named))
    fit: Any = SimpleNamespace(choice=choice)
    warnings = Listener()
    check_links(fit, site, warnings)
    return warnings.warnings


def test_a_library_that_is_nowhere_is_refused_with_the_command_that_brings_it(tmp_path):
    path = "ctranslate2.libs/libctranslate2-a7a60d30.so.4.8.5"
    place(tmp_path, "ctranslate2", path, strings=["libcublas.so.12"])
    with pytest.raises(InstallationError) as refused:
        linked(tmp_path, "ctranslate2")
    need = (
        "needs libcublas.so.12, which is neither in the environment nor on the system"
    )
    assert need in refused.value.message
    assert refused.value.hint == "Request nvidia-cublas-cu12 too"
    # Of what was not requested it is a warning.
    assert len(linked(tmp_path, "faster-whisper")) == 1


def test_a_library_of_another_major_does_not_pass_and_that_of_another_folder_does(
    tmp_path,
):
    place(
        tmp_path,
        "tensorrt-cu12-libs",
        "tensorrt_libs/libnvinfer.so.10",
        soname="libnvinfer.so.10",
    )
    place(tmp_path, "some", "some/_C.so", needs=["libnvinfer.so.10"])
    assert linked(tmp_path, "some") == []
    place(tmp_path, "old", "old/_C.so", needs=["libnvinfer.so.9"])
    with pytest.raises(InstallationError, match=r"needs libnvinfer\.so\.9"):
        linked(tmp_path, "old")


def test_a_library_that_only_a_variable_brings_is_left_to_it(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "libcublas.so.12").touch()
    place(tmp_path, "some", "some/_C.so", needs=["libcublas.so.12"])
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path / 'elsewhere'}")
    assert linked(tmp_path, "some") == []
