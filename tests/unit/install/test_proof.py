from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.finding import CheckResult
from gpuinstall.base.values import replace
from gpuinstall.install.proof import check_links, exclude_failing_builds
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
    """Return the remaining builds after a build failed."""
    rest = exclude_failing_builds(CATALOG, build, failing(cause))
    assert rest is not None
    return [build for build in rest.builds if not build.absent]


def majors(builds):
    return {build.toolkit[0] for build in builds if build.toolkit}


def test_missing_kernel_excludes_builds_with_same_gpu_code():
    builds = left("F37")
    assert CU130.code not in {build.code for build in builds}
    assert majors(builds) >= {12, 13}


def test_unsupported_cuda_excludes_its_major_version():
    builds = left("F19")
    assert 13 not in majors(builds)
    assert "cu126" in {build.backend.tag for build in builds}


def test_failed_build_missing_from_the_catalog_is_excluded():
    learned = replace(CU130, torch=Version("99.0"), learned="2026-11-20")
    rest = exclude_failing_builds(CATALOG, learned, failing("F37"))
    assert rest is not None
    assert [build.absent for build in rest.builds if build.torch == learned.torch] == [
        "failed"
    ]


@pytest.mark.parametrize("cause", ["F59", "F70", None])
def test_unrelated_failure_does_not_exclude_builds(cause):
    assert exclude_failing_builds(CATALOG, CU130, failing(cause)) is None


def test_passed_checks_do_not_exclude_builds():
    assert exclude_failing_builds(CATALOG, CU130, failing("F37", "passed")) is None


def linked(site, *named):
    """Check an environment with these requested packages; return warnings."""
    choice = SimpleNamespace(requirements=required(*named))
    fit: Any = SimpleNamespace(choice=choice)
    warnings = Listener()
    check_links(fit, site, warnings)
    return warnings.warnings


def test_missing_library_is_reported_with_its_package(tmp_path):
    path = "ctranslate2.libs/libctranslate2-a7a60d30.so.4.8.5"
    place(tmp_path, "ctranslate2", path, strings=["libcublas.so.12"])
    with pytest.raises(InstallationError) as refused:
        linked(tmp_path, "ctranslate2")
    need = (
        "needs libcublas.so.12, which is neither in the environment nor on the system"
    )
    assert need in refused.value.message
    assert refused.value.hint == "Request nvidia-cublas-cu12 too"
    # A package that was not requested only causes a warning.
    assert len(linked(tmp_path, "faster-whisper")) == 1


def test_linked_library_requires_the_same_major_version(
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


def test_library_in_ld_library_path_is_found(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "libcublas.so.12").touch()
    place(tmp_path, "some", "some/_C.so", needs=["libcublas.so.12"])
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path / 'elsewhere'}")
    assert linked(tmp_path, "some") == []
