from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from gpuinstall.finding import CheckResult
from gpuinstall.install.proof import catalog_without
from gpuinstall.verify import verdict
from gpuinstall.verify.verdict import Device, Verdict
from tests.frozen import frozen_catalog

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build

CATALOG = frozen_catalog()
BUILDS = CATALOG.builds_for("linux", "x86_64")
CU130 = next(build for build in BUILDS if build.backend.tag == "cu130")


def failing(cause: str | None) -> Verdict:
    checks = (CheckResult("matmul-float32", "failed", id=cause), CheckResult("sort", "passed", id="F19"))
    return Verdict(verdict.VerifiedEnvironment(), (Device(0, "GPU", checks),))


def left(catalog: Catalog) -> list[Build]:
    return [build for build in catalog.builds if not build.absent]


def test_a_missing_kernel_rules_out_the_builds_with_the_same_code() -> None:
    rest = catalog_without(CATALOG, CU130, failing("F37"))
    assert rest is not None
    assert CU130.code not in {build.code for build in left(rest)}
    assert {build.toolkit[0] for build in left(rest) if build.toolkit} >= {12, 13}


def test_a_driver_that_does_not_serve_the_cuda_rules_out_its_major() -> None:
    rest = catalog_without(CATALOG, CU130, failing("F19"))
    assert rest is not None
    assert 13 not in {build.toolkit[0] for build in left(rest) if build.toolkit}
    assert any(build.backend.tag == "cu126" for build in left(rest))


def test_a_build_that_this_run_alone_has_learned_is_ruled_out_too() -> None:
    learned = replace(CU130, torch=Version("99.0"), learned="2026-11-20")
    rest = catalog_without(CATALOG, learned, failing("F37"))
    assert rest is not None
    assert {build.absent for build in rest.builds if build.torch == learned.torch} == {"failed"}


@pytest.mark.parametrize("cause", ["F59", "F70", None])
def test_what_another_build_would_not_repair_is_not_tried_again(cause: str | None) -> None:
    assert catalog_without(CATALOG, CU130, failing(cause)) is None


def test_only_what_failed_counts() -> None:
    passed = Verdict(
        verdict.VerifiedEnvironment(), (Device(0, "GPU", (replace(CheckResult("sort", "passed"), id="F37"),)),)
    )
    assert catalog_without(CATALOG, CU130, passed) is None
