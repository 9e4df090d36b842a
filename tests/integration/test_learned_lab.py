"""Every command that looks at the indexes takes a torch that came out today, and reads nothing of it twice."""

import pytest
import tomli

from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.new_torch import make_new_torch, make_variant
from tests.lab.wheels import make_wheel

NEW = FakeDriver((FakeGpu(),), driver="610.43.02", cuda=13030)


def parts_asked(stand_in):
    """The wheels of which parts were asked for since the last time."""
    found = sorted(
        {asked.path.rpartition("/")[2].partition("-cp")[0] for asked in stand_in.log if asked.range}
    )
    stand_in.forget()
    return found


def rejections(plan):
    return {f"{found['torch']}+{found['backend']}": found["code"] for found in plan["rejected"]}


@pytest.mark.heavy
def test_plan_lock_and_install_choose_the_new_torch_alike_and_read_its_wheels_once(
    workshop, stand_in, stand_in_folder, play
):
    play(NEW)
    for tag in ("cu130", "cu132", "cu140"):
        make_new_torch(stand_in_folder, tag)
    plan = workshop.document("plan", "--live")["data"]
    assert (plan["build"]["torch"], plan["build"]["backend"]) == ("2.16.0", "cu132")
    assert rejections(plan)["2.16.0+cu140"] == "driver-too-old"
    assert rejections(plan)["2.16.0+cu130"] == "less-preferred"
    assert parts_asked(stand_in) == ["torch-2.16.0%2Bcu130", "torch-2.16.0%2Bcu132"]

    without_asking = workshop.document("plan")["data"]
    assert without_asking["build"] == plan["build"]
    assert stand_in.log == []

    (lock,) = workshop.document("lock")["data"]["locks"]
    assert (lock["target"], lock["torch"]) == ("cu132", "2.16.0+cu132")
    evidence = tomli.loads(workshop.lock("pylock.cu132.toml"))["tool"]["gpuinstall"]
    assert evidence["architectures"] == ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]

    done = workshop.document("install")["data"]
    assert (done["environment"]["torch"], done["verdict"]["status"]) == ("2.16.0+cu132", "passed")
    assert parts_asked(stand_in) == []

    assert workshop.document("install")["data"]["environment"]["status"] == "none"
    assert workshop.document("sync")["data"]["environment"]["status"] == "none"
    assert stand_in.log == []


@pytest.mark.heavy
def test_a_torch_that_has_other_code_than_its_wheel_said_is_not_swapped_in(
    workshop, stand_in_folder, play
):
    play(NEW)
    make_new_torch(stand_in_folder, "cu132")
    workshop.document("plan", "--live")
    (row,) = (workshop.caches / "xdg" / "gpuinstall" / "learned" / "builds").iterdir()
    row.write_text(row.read_text().replace('    "sm_75",\n', ""))
    envelope = workshop.document("install", exit_code=5)
    assert (
        "has code for sm_75 sm_80"
        in envelope["data"]["verdict"]["devices"][0]["checks"][-1]["message"]
    )
    assert ".venv" not in workshop.entries()


def test_no_wheel_that_is_labelled_as_a_variant_comes_into_a_lock(workshop, stand_in_folder, play):
    play(NEW)
    make_new_torch(stand_in_folder, "cu132")
    for place in ("simple", "whl/cu132"):
        make_variant(stand_in_folder / place, "cu132")
    (lock,) = workshop.document("lock")["data"]["locks"]
    assert lock["torch"] == "2.16.0+cu132"
    text = workshop.lock("pylock.cu132.toml")
    assert "torch-2.16.0%2Bcu132-cp312-cp312-manylinux_2_28_x86_64.whl" in text
    assert "x86_64-cu" not in text


def test_what_is_locked_beside_a_new_torch_is_what_its_own_metadata_and_its_companions_demand(
    workshop, stand_in_folder, play
):
    play(NEW)
    make_new_torch(stand_in_folder, "cu132")
    tags = "cp312-cp312-manylinux_2_28_x86_64"
    make_wheel(
        stand_in_folder / "whl" / "cu132",
        "torchvision",
        "0.31.0+cu132",
        tags,
        requires=["torch==2.16.0"],
    )
    make_wheel(stand_in_folder / "whl" / "cu132", "triton", "3.9.1", tags)
    workshop.document("lock", "torch", "torchvision", "triton")
    packages = tomli.loads(workshop.lock("pylock.cu132.toml"))["packages"]
    versions = {package["name"]: package["version"] for package in packages}
    assert {
        name: versions[name] for name in ("torch", "torchvision", "triton", "nvidia-cudnn-cu13")
    } == {
        "torch": "2.16.0+cu132",
        "torchvision": "0.31.0+cu132",
        "triton": "3.9.0",
        "nvidia-cudnn-cu13": "9.10.2.21",
    }
