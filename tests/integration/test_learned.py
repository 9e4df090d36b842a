"""Every command that looks at the indexes takes a torch that came out today, and reads nothing of it twice."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import tomli

from gpuinstall.api import choose
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.listing import live_catalog
from gpuinstall.lock.live import learned_catalog
from gpuinstall.sources import Sources
from gpuinstall.sources.web import Client
from gpuinstall.wheels.learned.store import LearnedStore, known_catalog
from tests.frozen import frozen_catalog
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.index import Habits, StandInIndex
from tests.lab.listener import Listener
from tests.lab.new_torch import make_new_torch, make_variant
from tests.lab.wheels import make_wheel

NEW = FakeDriver((FakeGpu(),), driver="610.43.02", cuda=13030)


def parts_asked(stand_in):
    """The wheels of which parts were asked for since the last time."""
    found = sorted(
        {
            asked.path.rpartition("/")[2].partition("-cp")[0]
            for asked in stand_in.log
            if asked.range
        }
    )
    stand_in.forget()
    return found


def rejections(plan):
    return {
        f"{found['torch']}+{found['backend']}": found["code"]
        for found in plan["rejected"]
    }


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
    assert evidence["architectures"] == [
        "sm_75",
        "sm_80",
        "sm_86",
        "sm_90",
        "sm_100",
        "sm_120",
    ]

    done = workshop.document("install")["data"]
    assert (done["environment"]["torch"], done["verdict"]["status"]) == (
        "2.16.0+cu132",
        "passed",
    )
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


def test_no_wheel_that_is_labelled_as_a_variant_comes_into_a_lock(
    workshop, stand_in_folder, play
):
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
        name: versions[name]
        for name in ("torch", "torchvision", "triton", "nvidia-cudnn-cu13")
    } == {
        "torch": "2.16.0+cu132",
        "torchvision": "0.31.0+cu132",
        "triton": "3.9.0",
        "nvidia-cudnn-cu13": "9.10.2.21",
    }


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
                Reporter(),
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
            "gpus": [
                {"index": 0, "name": "NVIDIA test", "compute_capability": capability}
            ],
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
    assert later.warnings == ()


def test_a_new_torch_without_code_for_the_gpu_is_rejected_for_that_and_older_ones_are_not_read(
    person, stand_in_folder
):
    make_new_torch(stand_in_folder, "cu132", "130")

    plan = person.plan(machine())

    assert chosen(plan) == "2.15.0+cu132"
    assert why_not(plan, "2.16.0+cu132")[0] == "no-code"
    assert "only for sm_130" in why_not(plan, "2.16.0+cu132")[1]


def test_a_chip_that_nobody_knew_is_served_by_the_build_that_has_its_code(
    person, stand_in_folder
):
    make_new_torch(stand_in_folder, "cu140", "130")

    plan = person.plan(machine("13.0", LATER, "14.0"))

    assert (chosen(plan), plan.gpus[0].runs) == ("2.16.0+cu140", "sm_130")


def test_what_was_learned_serves_a_plan_that_asks_nobody(
    person, stand_in_folder, monkeypatch
):
    make_new_torch(stand_in_folder, "cu132")
    person.plan(machine())
    monkeypatch.setattr("gpuinstall.wheels.learned.store.load_catalog", frozen_catalog)

    plan = choose(
        machine(), Request(), known_catalog(person.index.torch_index, person.store)
    )
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


def test_a_wheel_that_does_not_say_for_which_gpus_it_is_has_to_be_forced(
    person, stand_in_folder
):
    make_new_torch(stand_in_folder, "cu132", "")

    plan = person.plan(machine())
    assert chosen(plan) == "2.15.0+cu132"
    assert why_not(plan, "2.16.0+cu132")[0] == "architectures-unknown"
    assert "--backend cu132" in why_not(plan, "2.16.0+cu132")[1]

    forced = person.plan(machine(), Request(backend="cu132"))
    assert chosen(forced) == "2.16.0+cu132"
    assert "architectures-unknown" in {warning.code for warning in forced.warnings}


def test_an_index_that_gives_no_parts_of_files_leaves_the_newest_known(
    stand_in_folder, tmp_path
):
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
    assert dict(pinned.choice.build.libraries if pinned.choice else ()) == {
        "cudnn": "9.10.2.21"
    }


def test_a_wheel_that_holds_another_torch_than_its_name_says_is_not_believed(
    person, stand_in_folder
):
    right = make_new_torch(stand_in_folder, "cu132")
    wrong = make_new_torch(stand_in_folder, "cu130")
    right.unlink()
    right.write_bytes(wrong.read_bytes())

    plan = person.plan(machine())
    assert chosen(plan) == "2.16.0+cu130"


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


def test_a_new_torch_that_no_companion_allows_yet_is_left_for_the_one_before(
    workshop, stand_in_folder, play
):
    play(NEW)
    make_new_torch(stand_in_folder, "cu132")
    for wheel in (stand_in_folder / "whl" / "cu132").glob("torchvision-*"):
        wheel.unlink()
    tags = "cp312-cp312-manylinux_2_28_x86_64"
    requires = ["torch==2.15.0"]
    make_wheel(
        stand_in_folder / "whl" / "cu132",
        "torchvision",
        "0.30.0+cu132",
        tags,
        requires=requires,
    )
    (lock,) = workshop.document("lock", "torch", "torchvision")["data"]["locks"]
    assert lock["torch"] == "2.15.0+cu130"


@dataclass(frozen=True)
class Live:
    """Chooses with what the sources list."""

    cache: Path
    reporter: Listener = field(default_factory=Listener)

    def catalog(self, machine, request, sources):
        with Client(cache=self.cache) as client:
            return live_catalog(
                load_catalog(),
                machine,
                request,
                self.reporter,
                sources=sources,
                client=client,
            )

    def plan(self, machine, sources, request=None):
        asked = request or Request()
        return choose(machine, asked, self.catalog(machine, asked, sources))


@pytest.fixture
def live(tmp_path):
    """A live catalogue with a cache of its own."""
    return Live(tmp_path / "cache")


def _machine(gpu=None, driver="535.183.01"):
    gpus = (
        [
            {
                "index": 0,
                "name": "NVIDIA test",
                "compute_capability": gpu,
                "memory_mib": 24564,
            }
        ]
        if gpu
        else []
    )
    return Machine.from_dict(
        {
            "schema": "gpuinstall.machine/1",
            "os": "linux",
            "arch": "x86_64",
            "libc": "glibc",
            "glibc": "2.36",
            "pythons": ["3.11.7", "3.12.1"],
            "driver": {"version": driver} if gpu else None,
            "gpus": gpus,
        }
    )


def _sources(index):
    return Sources(
        index.torch_index,
        is_torch_index_requested=True,
        default_index=index.default_index,
    )


def _chosen(plan):
    assert plan.choice is not None
    return plan.choice.build.name, plan.choice.index


def test_unreachable_index_is_said_once_and_the_default_index_serves(live, stand_in):
    sources = _sources(stand_in)
    stand_in.torch.close()
    plan = live.plan(_machine("8.9", "580.95.05"), sources)
    assert _chosen(plan) == ("2.15.0+cu132", None)
    assert [
        warning for warning in live.reporter.warnings if "cannot be reached" in warning
    ] == live.reporter.warnings
    assert len(live.reporter.warnings) == 1


def test_cpu_machine_prefers_a_folders_cpu_build_to_a_newer_cuda_one(
    live, stand_in, stand_in_folder, tmp_path
):
    wheel = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    place = tmp_path / "near"
    place.mkdir()
    (place / wheel).hardlink_to(stand_in_folder / "whl" / "cpu" / wheel)
    sources = Sources(
        stand_in.torch_index,
        find_links=(str(place),),
        default_index=stand_in.default_index,
    )
    stand_in.torch.close()
    plan = live.plan(_machine(), sources)
    assert _chosen(plan) == ("2.13.0+cpu", str(place))
    assert plan.choice is not None
    assert (plan.choice.python, plan.choice.requirements) == (
        "3.11",
        ("torch==2.13.0+cpu",),
    )


def test_named_index_that_lists_nothing_is_said_to_be_the_wrong_base(live, stand_in):
    wrong = f"{stand_in.torch_index}/cu126"
    live.plan(_machine("8.9"), Sources(wrong, is_torch_index_requested=True))
    (warning,) = live.reporter.warnings
    assert warning.startswith(f"{wrong} lists no torch")
