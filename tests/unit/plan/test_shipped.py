"""Plans with the shipped catalog. ``cases/`` uses a frozen one."""

from gpuinstall.api import choose
from gpuinstall.base.machine import Gpu
from gpuinstall.base.request import Request
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.catalog import load_catalog
from tests.unit.plan.machines import jetson, machine


def test_unknown_minimum_driver_is_not_reported():
    rubin = Gpu(0, "NVIDIA R200", compute_capability=ComputeCapability(10, 7))
    refused = choose(machine(rubin), Request(), load_catalog())

    assert refused.reasons[0].code == "driver-older-than-gpu"
    assert "newer than 595.45.04" in refused.reasons[0].message
    assert "610" not in f"{refused.reasons[0].message} {refused.fix}"


def test_jetson_orin_selects_build_with_native_code():
    orin = jetson("Orin", "38.2")
    newest, older = (
        choose(orin, Request((text,)), load_catalog())
        for text in ("torch", "torch==2.9.1")
    )

    assert newest.choice
    assert (newest.choice.build.backend.tag, newest.warnings) == ("cu132", ())
    assert older.choice
    assert older.choice.build.name == "2.9.1+cu130"
    assert [warning.code for warning in older.warnings] == ["code-of-a-relative"]


def test_document_contains_the_command_of_uv():
    plan = choose(machine("V100"), Request(("torch",)), load_catalog())
    build = plan.to_dict()["build"]
    assert build["command"] == (
        f"uv pip install {build['requirements'][0]} --index {build['index']}"
    )
