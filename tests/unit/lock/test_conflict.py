# ruff: noqa: E501  uv writes long lines
"""Tests of the sentences that are made from uv's conflict."""

import pytest

from gpuinstall.base.errors import NoBuildError
from gpuinstall.lock.uv.conflict import Conflict

BUILDS = """error: No solution found when resolving dependencies
  cause: Because torch==2.14.0 depends on cudnn==9 and gpuinstall-build<=0 depends on torch==2.14.0, we can conclude that gpuinstall-build<=0 depends on cudnn==9. (1)

         Because torch==2.15.0 depends on cudnn==9 and gpuinstall-build==1 depends on torch==2.15.0, we can conclude that gpuinstall-build==1 depends on cudnn==9.
         And because we know from (1) that gpuinstall-build<=0 depends on cudnn==9, we can conclude that all versions of gpuinstall-build depend on cudnn==9.
         And because runner>=2.0 depends on cudnn>=10, we can conclude that all versions of gpuinstall-build and runner>=2.0 are incompatible.
         And because you require runner>=2.0, painter<3, and gpuinstall-build, we can conclude that your requirements are unsatisfiable.
"""
GLIBC = """error: No solution found when resolving dependencies
  cause: Because kernels==2.0 has no wheels with a matching platform tag (e.g., `manylinux_2_28_x86_64`) and front>=2.0 depends on kernels==2.0, we can conclude that front>=2.0 cannot be used.
         And because you require front>=2, we can conclude that your requirements are unsatisfiable.

hint: Wheels are available for `kernels` (v2.0) on the following platforms: `manylinux_2_31_x86_64`, `manylinux_2_35_x86_64`
"""


def create_conflict(message, *bounds):
    error = NoBuildError("requirements-conflict", "no versions")
    return Conflict(error, message=message, bounds=frozenset(bounds))


def test_virtual_packages_and_bounds_are_omitted():
    conflict = create_conflict(BUILDS, "runner>=2.0")

    assert conflict.list_statements(["runner"]) == [
        "runner>=2.0 depends on cudnn>=10",
        "torch==2.15.0 depends on cudnn==9",
        "you require painter<3",
    ]


def test_requested_limits_are_kept():
    assert create_conflict(BUILDS).list_statements()[-1] == (
        "you require runner>=2.0 and painter<3"
    )


def test_hint_names_the_glibc_of_a_wheel():
    assert create_conflict(GLIBC).incompatible == ("kernels", "2.31")


def test_wheel_for_another_architecture_is_no_reason():
    message = GLIBC.replace("_28_x86_64", "_34_aarch64")

    assert create_conflict(message).incompatible == ("", "")


@pytest.mark.parametrize("message", ["", "error: unreadable"])
def test_conflict_without_statements_has_no_sentence(message):
    assert create_conflict(message).format(["runner"]) == ""
