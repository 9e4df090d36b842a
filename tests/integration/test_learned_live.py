"""A torch that came out today, on an index that lists it, by a tool that has never heard of it."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuinstall.api import choose
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.request import Request
from gpuinstall.lock.live import learned_catalog
from gpuinstall.sources import Sources
from gpuinstall.sources.web import Client
from gpuinstall.wheels.learned.store import LearnedStore, known_catalog
from tests.frozen import frozen_catalog
from tests.lab.index import Habits, StandInIndex
from tests.lab.new_torch import make_new_torch
from tests.lab.wheels import make_wheel

LATER = "650.10"


@dataclass
class Person:
    """Somebody who plans with what the index lists today, and remembers."""

    index: StandInIndex
    folder: Path
    steps: list[str] = field(default_factory=list)

    @property
    def store(self):
        return LearnedStore(self.folder / "learned")

    def plan(self, machine, request=Request()):  # noqa: B008  frozen
        sources = Sources(
            self.index.torch_index,
            is_torch_index_requested=True,
            default_index=self.index.default_index,
        )
        with Client(cache=self.folder) as client:
            catalog = learned_catalog(
                frozen_catalog(),
                machine,
                request,
                SilentReporter(),
                sources=sources,
                client=client,
                store=self.store,
            )
        return choose(machine, request, catalog)

    def asked_for_wheels(self):
        """The wheels of which something was asked since the last time, by name."""
        found = sorted(
            {
                asked.path.rpartition("/")[2]
                for asked in self.index.log
                if asked.path.endswith(".whl")
            }
        )
        self.index.forget()
        return found


@pytest.fixture
def person(stand_in, tmp_path):
    return Person(stand_in, tmp_path / "cache")


def machine(capability="8.9", driver="610.43.02", cuda=None):
    return Machine.from_dict(
        {
            "schema": "gpuinstall.machine/1",
            "os": "linux",
            "arch": "x86_64",
            "libc": "glibc",
            "glibc": "2.36",
            "driver": {"version": driver, "cuda": cuda},
            "gpus": [{"index": 0, "name": "NVIDIA test", "compute_capability": capability}],
        }
    )


def chosen(plan):
    assert plan.choice is not None, plan.reasons
    return plan.choice.build.name


def why_not(plan, name):
    return next(found.reason for found in plan.rejected if found.candidate.name == name)


def test_a_new_torch_of_a_known_cuda_is_read_and_chosen(person, stand_in_folder):
    make_new_torch(stand_in_folder, "cu132")

    plan = person.plan(machine())

    assert chosen(plan) == "2.16.0+cu132"
    assert plan.gpus[0].runs == "sm_86"
    assert plan.reasons[0].code == "learned"
    assert "read from its wheel on 20" in plan.reasons[0].message
    assert person.asked_for_wheels() == [
        "torch-2.16.0%2Bcu132-cp312-cp312-manylinux_2_28_x86_64.whl"
    ]


def test_a_new_torch_of_an_unknown_cuda_major_is_chosen_only_where_the_driver_has_that_cuda(
    person, stand_in_folder
):
    make_new_torch(stand_in_folder, "cu140")

    today = person.plan(machine("9.0"))
    assert chosen(today) == "2.15.0+cu132"
    assert why_not(today, "2.16.0+cu140") == (
        "driver-too-old",
        "CUDA 14.x needs a driver for CUDA 14.0; driver 610.43.02 says CUDA 13.3",
    )
    assert person.asked_for_wheels() == []

    later = person.plan(machine("9.0", LATER, "14.1"))
    assert chosen(later) == "2.16.0+cu140"
    assert [warning.code for warning in later.warnings] == ["driver-not-in-catalogue"]
    assert "judged by its CUDA 14.1" in later.warnings[0].message


def test_a_new_torch_without_code_for_the_gpu_is_rejected_for_that_and_older_ones_are_not_read(
    person, stand_in_folder
):
    make_new_torch(stand_in_folder, "cu132", "130")

    plan = person.plan(machine())

    assert chosen(plan) == "2.15.0+cu132"
    assert why_not(plan, "2.16.0+cu132")[0] == "no-code"
    assert "only for sm_130" in why_not(plan, "2.16.0+cu132")[1]


def test_a_chip_that_nobody_knew_is_served_by_the_build_that_has_its_code(person, stand_in_folder):
    make_new_torch(stand_in_folder, "cu140", "130")

    plan = person.plan(machine("13.0", LATER, "14.0"))

    assert (chosen(plan), plan.gpus[0].runs) == ("2.16.0+cu140", "sm_130")
    assert {warning.code for warning in plan.warnings} == {
        "driver-not-in-catalogue",
        "chip-not-in-catalogue",
    }


def test_what_was_learned_serves_a_plan_that_asks_nobody(person, stand_in_folder, monkeypatch):
    make_new_torch(stand_in_folder, "cu132")
    person.plan(machine())
    monkeypatch.setattr("gpuinstall.wheels.learned.store.load_catalog", frozen_catalog)

    plan = choose(machine(), Request(), known_catalog(person.index.torch_index, person.store))
    elsewhere = choose(
        machine(), Request(), known_catalog("https://index.example/whl", person.store)
    )

    assert (chosen(plan), chosen(elsewhere)) == ("2.16.0+cu132", "2.15.0+cu132")
    assert plan.reasons[0].code == "learned"


def test_a_wheel_without_a_hash_is_asked_after_a_day_whether_it_is_the_same(
    person, stand_in_folder
):
    make_new_torch(stand_in_folder, "cu132")
    person.plan(machine())
    (row,) = (person.folder / "learned" / "builds").iterdir()
    row.write_text(row.read_text().replace('learned = "20', 'learned = "19'))
    person.index.forget()

    assert chosen(person.plan(machine())) == "2.16.0+cu132"
    (asked,) = [asked for asked in person.index.log if asked.path.endswith(".whl")]
    assert asked.range == "bytes=0-0"

    row.write_text(row.read_text().replace('learned = "20', 'learned = "19'))
    make_new_torch(stand_in_folder, "cu132", "100")
    assert chosen(person.plan(machine())) == "2.15.0+cu132"


def test_a_wheel_that_does_not_say_for_which_gpus_it_is_has_to_be_forced(person, stand_in_folder):
    make_new_torch(stand_in_folder, "cu132", "")

    plan = person.plan(machine())
    assert chosen(plan) == "2.15.0+cu132"
    assert why_not(plan, "2.16.0+cu132")[0] == "architectures-unknown"
    assert "--backend cu132" in why_not(plan, "2.16.0+cu132")[1]

    forced = person.plan(machine(), Request(backend="cu132"))
    assert chosen(forced) == "2.16.0+cu132"
    assert "architectures-unknown" in {warning.code for warning in forced.warnings}


def test_an_index_that_gives_no_parts_of_files_leaves_the_newest_known(stand_in_folder, tmp_path):
    make_new_torch(stand_in_folder, "cu132")
    with StandInIndex(stand_in_folder, Habits(ranges=False)) as index:
        plan = Person(index, tmp_path / "cache").plan(machine())

    assert chosen(plan) == "2.15.0+cu132"
    assert why_not(plan, "2.16.0+cu132")[0] == "not-in-catalogue"
    assert "does not support range requests" in why_not(plan, "2.16.0+cu132")[1]
    assert plan.reasons[0].code == "newest-known"


def test_the_cudnn_that_a_new_torch_pins_counts_as_the_wheel(person, stand_in_folder):
    make_new_torch(stand_in_folder, "cu132", "50 60 70 75 80")
    pinned = person.plan(machine("7.5"))
    assert dict(pinned.choice.build.libraries if pinned.choice else ()) == {"cudnn": "9.10.2.21"}


def test_a_wheel_that_holds_another_torch_than_its_name_says_is_not_believed(
    person, stand_in_folder
):
    right = make_new_torch(stand_in_folder, "cu132")
    wrong = make_new_torch(stand_in_folder, "cu130")
    right.unlink()
    right.write_bytes(wrong.read_bytes())

    plan = person.plan(machine())
    assert chosen(plan) == "2.16.0+cu130"


def test_the_companion_of_a_new_torch_is_the_one_that_demands_it(person, stand_in_folder):
    make_new_torch(stand_in_folder, "cu132")
    for version, torch in (("0.30.0", "2.15.0"), ("0.31.0", "2.16.0"), ("0.31.1", "2.16.1")):
        requires = ["numpy", f"torch=={torch}"]
        tags = "cp312-cp312-manylinux_2_28_x86_64"
        make_wheel(
            stand_in_folder / "whl" / "cu132",
            "torchvision",
            f"{version}+cu132",
            tags,
            requires=requires,
        )

    for _ in range(2):
        plan = person.plan(machine(), Request(("torch", "torchvision")))
        assert plan.choice is not None
        assert plan.choice.requirements == ("torch==2.16.0+cu132", "torchvision==0.31.0+cu132")


def test_a_new_torch_whose_companion_has_not_come_yet_is_left_for_the_one_before(
    person, stand_in_folder
):
    make_new_torch(stand_in_folder, "cu132")
    for wheel in (stand_in_folder / "whl" / "cu132").glob("torchvision-*"):
        wheel.unlink()

    plan = person.plan(machine(), Request(("torch", "torchvision")))

    assert chosen(plan) == "2.15.0+cu130"
    assert why_not(plan, "2.16.0+cu132") == (
        "no-companion",
        "no source lists torchvision for cu132",
    )
    assert person.asked_for_wheels() == []
