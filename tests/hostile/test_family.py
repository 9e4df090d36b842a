"""PyTorch's names are bound to their source on every path: a stranger's package of the same name is never asked for."""

import pytest
import tomli

from tests.hostile.family import NAMES, TAG, TORCH, UNKNOWN, Attack
from tests.lab.cases import mostly_heavy
from tests.lab.host import Answer
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

LOCK = ("lock", "--target", TAG, f"torch=={TORCH}")
EACH = mostly_heavy(NAMES, {"xformers"})


@pytest.fixture
def attack(stand_in, tmp_path):
    return Attack(stand_in, tmp_path / "executed")


@pytest.mark.heavy
def test_what_torch_demands_comes_from_the_index_of_torch_whatever_the_default_index_has(
    attack, workshop
):
    names = (*NAMES, UNKNOWN)
    attack.plant(names)
    attack.demand(names)
    attack.list_own(names)
    workshop.document(*LOCK)
    packages = {
        package["name"]: package
        for package in tomli.loads(workshop.lock(f"pylock.{TAG}.toml"))["packages"]
    }
    assert packages.keys() >= {*names}
    assert all(
        f"/whl/{TAG}/" in wheel["url"] for name in names for wheel in packages[name]["wheels"]
    )
    workshop.document("lock", "check")
    workshop.document("install", "--dry-run", "--backend", TAG)
    assert attack.asked(names) == []
    assert not attack.mark.exists()


@pytest.mark.parametrize("name", EACH)
def test_what_the_index_of_torch_does_not_list_comes_from_nowhere(attack, workshop, name):
    for wheel in (attack.index.folder / "whl" / TAG).glob(f"{name}-*"):
        wheel.unlink()
    attack.plant([name])
    attack.demand([name])
    error = workshop.document(*LOCK, exit_code=4)["errors"][0]
    assert (error["code"], error["message"].partition(" ")[0]) == ("family-unlisted", name)
    assert attack.asked([name]) == []
    assert not attack.mark.exists()
    assert workshop.entries() == set()


@pytest.mark.parametrize("name", EACH)
def test_what_a_program_demands_of_pytorch_comes_from_nowhere_else_either(attack, workshop, name):
    own = {
        wheel: wheel.read_bytes() for wheel in (attack.index.folder / "whl" / TAG).glob(f"{name}-*")
    }
    for wheel in own:
        wheel.unlink()
    attack.plant([name])
    make_wheel(attack.index.folder / "simple", "some-program", "1.0", requires=[name, "torch"])
    error = workshop.document(*LOCK, "some-program", exit_code=4)["errors"][0]
    assert error["code"] == "family-unlisted"
    for wheel, content in own.items():  # torch may demand just this version
        wheel.write_bytes(content)
    attack.list_own([name])
    workshop.document(*LOCK, "some-program")
    assert attack.asked([name]) == []
    assert not attack.mark.exists()


@pytest.mark.heavy
def test_an_index_that_fails_in_the_middle_leads_to_no_other(attack, workshop):
    attack.plant(["torchdata"])
    attack.demand(["torchdata"])
    attack.list_own(["torchdata"])
    respond = attack.index.torch.respond

    def broken(path, headers):
        return Answer(500) if "torchdata" in path else respond(path, headers)

    attack.index.torch.respond = broken
    assert workshop.document(*LOCK, exit_code=4)["errors"][0]["code"] in {
        "unreachable",
        "family-unlisted",
    }
    assert attack.asked(["torchdata"]) == []
    assert not attack.mark.exists()


def test_where_torch_comes_from_the_default_index_nothing_of_the_family_is_built(attack, workshop):
    attack.plant(["torchdata"], wheels=False)
    attack.demand_at_the_default_index(["torchdata"])
    silent = {**workshop.variables, "GPUINSTALL_TORCH_INDEX": "http://127.0.0.1:9/whl"}
    workshop = Workshop(workshop.folder, workshop.caches, silent)
    workshop.document("lock", "--target", "cu130", f"torch=={TORCH}", exit_code=4)
    assert not attack.mark.exists()
