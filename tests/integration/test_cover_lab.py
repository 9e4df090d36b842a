"""``gpuinstall lock cover``: the locks that serve a range of GPUs and drivers, written."""

import pytest

from gpuinstall.api import choose
from gpuinstall.base.request import Request
from gpuinstall.catalog import load_catalog
from gpuinstall.lock.lock import read_lock
from gpuinstall.lock.ranges import cover_range, machines_in
from gpuinstall.words import machine_in_words
from tests.lab.index import StandInIndex
from tests.lab.recorded import read_recording
from tests.lab.stub_torch import modules
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop
from tests.unit.install.test_start import RECORDED, entered

DRIVEN = (
    ("V100", "535.183.01"),
    ("T4", "450.80.02"),
    ("RTX 5090", "580.95.05"),
    ("B200", "610.43.02"),
)
TAGS = "cp312-cp312-manylinux_2_28_x86_64"
CARDS = ("--gpu", "RTX 30", "--gpu", "RTX 40", "--gpu", "A800", "--gpu", "H800")


def test_the_locks_of_a_range_are_written_and_it_is_said_what_each_serves(stand_in, tmp_path):
    (tmp_path / "project").mkdir()
    workshop = Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())
    words = ("lock", "cover", "torch", *CARDS, "--driver", ">=470")

    data = workshop.document(*words)["data"]
    assert [row["target"] for row in data["cover"]] == ["cu118", "cu126", "cu132"]
    assert data["unserved"] == "RTX 40, H800 with driver 470–515"
    done = workshop.run(*words)
    assert "Serves      cu126: RTX 30, RTX 40, A800, H800 with driver 525–575\n" in done.out
    assert "Uncovered   no build runs on RTX 40, H800 with driver 470–515" in done.out


def test_a_range_without_gpus_is_refused(stand_in, tmp_path):
    workshop = Workshop(tmp_path, tmp_path / "caches", stand_in.environment())
    assert (
        "lock cover requires either --gpu or --all-supported" in workshop.run("lock", "cover").err
    )


@pytest.mark.heavy
def test_the_locks_that_cover_everything_are_made_and_each_recorded_machine_takes_the_one_that_fits(
    tmp_path,
):
    catalog, folder = load_catalog(), tmp_path / "project"
    request = Request(python="3.12")
    locks_to_make = cover_range(machines_in((), None, "x86_64", catalog), request, catalog).locks
    builds = {lock.build.backend.tag: lock.build for lock in locks_to_make}
    for tag, build in builds.items():
        held = modules(build.name, tag)
        make_wheel(tmp_path / "served" / "whl" / tag, "torch", build.name, TAGS, modules=held)
    (tmp_path / "served" / "simple").mkdir()
    folder.mkdir()
    with StandInIndex(tmp_path / "served") as index:
        workshop = Workshop(folder, tmp_path / "caches", index.environment())
        data = workshop.document("lock", "cover", "torch", "--all-supported", "--python", "3.12")[
            "data"
        ]

    locks = {
        lock["target"]: read_lock(folder / f"pylock.{lock['target']}.toml")
        for lock in data["locks"]
    }
    assert {lock.versions["torch"] for lock in locks.values()} == {
        build.name for build in builds.values()
    }
    assert {row["target"] for row in data["cover"]} == set(locks)
    machines = {recording.name: read_recording(recording) for recording in RECORDED}
    machines |= {gpu: machine_in_words((gpu,), driver) for gpu, driver in DRIVEN}
    taken, expected = {}, {}
    for name, machine in machines.items():
        plan = choose(machine, request, catalog.only(*builds.values()))
        fits = plan.choice and plan.status != "cpu"
        expected[name] = plan.choice.build.backend.tag if plan.choice and fits else "refused"
        taken[name] = entered(folder, machine)
    assert taken == expected
    assert {"cu118", "cu129", "refused"} <= set(taken.values())
