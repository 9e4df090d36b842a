"""What commands answer: a reason only where it is one, commands that can be pasted, no line too many."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.host import Answer
from tests.lab.index import StandInIndex
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
CPU = ("--backend", "cpu", "--python", PYTHON)


@pytest.fixture
def workshop(stand_in: StandInIndex, stand_in_folder: Path, tmp_path: Path) -> Workshop:
    for version in ("2.2.6", "2.4.6"):
        make_wheel(stand_in_folder / "simple", "numpy", version)
    make_wheel(stand_in_folder / "simple", "pandas", "2.3.0", requires=["numpy"])
    (tmp_path / "project").mkdir()
    return Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())


def put_in_by_hand(workshop: Workshop, *packages: str):
    site = next((workshop.folder / ".venv" / "lib").glob("python*/site-packages"))
    for package in packages:
        name, _, requirement = package.partition(" requires ")
        record = site / f"{name}.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(
            f"Name: x\n{f'Requires-Dist: {requirement}' if requirement else ''}\n"
        )


@pytest.mark.heavy
def test_a_package_that_another_requires_stays_and_that_is_said(workshop):
    workshop.document("install", "torch", "numpy", "pandas", *CPU)
    done = workshop.run("remove", "numpy")
    assert done.status == 0, done.err
    assert "numpy 2.4.6 stays: pandas requires it" in done.err


@pytest.mark.heavy
def test_an_upgrade_that_a_bound_forbids_names_the_bound(workshop):
    workshop.document("install", "torch", "numpy<2.3", *CPU)
    done = workshop.run("install", "--upgrade-package", "numpy")
    assert done.status == 0, done.err
    assert "numpy stays at 2.2.6, the newest that fits numpy<2.3" in done.err


def test_a_first_installation_names_what_was_asked_for_first(workshop):
    done = workshop.run("install", "torch", "pandas", *CPU)
    assert "Changes     + pandas 2.3.0, torch " in done.err
    assert done.err.count("Build  ") == 1


@pytest.mark.heavy
def test_packages_of_pip_s_are_kept_at_their_versions_and_what_they_require_is_not_asked_for(
    workshop,
):
    workshop.document("install", "torch", "numpy", *CPU)
    libraries = [f"nvidia_library_{number}-12.6" for number in range(20)]
    put_in_by_hand(
        workshop, *libraries, *(f"cow_{n}-6.1 requires nvidia-library-{n}" for n in range(20))
    )
    done = workshop.run("install", "pandas", "-q")
    assert done.status == 2
    assert "and 34 more" in done.err
    assert all(f"cow-{n} 6.1" in workshop.run("install", "pandas", "-v").err for n in range(20))
    assert len(done.err.splitlines()) < 10
    advice = [line for line in done.err.splitlines() if "--replace" in line]
    assert "Run it again with --replace: without them" in advice[0]
    assert "nvidia" not in advice[1]
    assert "cow-0==6.1" in advice[1]


@pytest.mark.heavy
def test_every_refusal_that_is_pasted_with_its_advice_goes_on(workshop):
    (workshop.folder / ".venv").mkdir()
    (workshop.folder / ".venv" / "mine.txt").write_text("mine", encoding="utf-8")
    done = workshop.run("install", "torch", *CPU)
    assert done.status == 2
    assert "Run it again with --replace" in done.err
    assert workshop.run("install", "torch", *CPU, "--replace").status == 0


@pytest.mark.heavy
def test_a_rehearsed_sync_changes_nothing(workshop):
    workshop.document("lock", "torch", *CPU)
    before = workshop.entries()
    done = workshop.run("sync", "--dry-run")
    assert done.status == 0, done.err
    assert "nothing was changed" in done.out
    assert workshop.entries() == before


def test_quiet_is_silent_where_nothing_is_wrong(workshop):
    done = workshop.run("install", "torch", *CPU, "-q")
    assert (done.status, done.out, done.err) == (0, "", "")
    done = workshop.run("install", "trch", "-q")
    assert (done.status, done.out) == (4, "")
    assert "Write torch in place of trch" in done.err


def test_a_lock_beside_others_names_the_targets_as_the_reason_and_no_program(
    workshop,
):
    for target in ("cu126", "cpu"):
        workshop.document("lock", "torch", "--target", target, "--python", PYTHON)
    done = workshop.run("lock", "pandas")
    assert done.status == 0, done.err
    assert "pandas" not in "".join(line for line in done.err.splitlines() if "torch" in line)


@pytest.mark.heavy
def test_a_machine_that_does_not_say_its_glibc_gets_what_an_old_one_runs(workshop, stand_in_folder):
    make_wheel(stand_in_folder / "simple", "engine", "1.0", requires=["torch<2.14"])
    make_wheel(
        stand_in_folder / "simple",
        "engine",
        "2.0",
        "py3-none-manylinux_2_31_x86_64",
        requires=["torch<2.14"],
    )
    machine = ("--gpu", "RTX 4090", "--driver", "580.95.05", "--python", "3.12")
    done = workshop.run("lock", "engine", *machine)
    assert 'name = "engine"\nversion = "1.0"' in locked(workshop)
    done = workshop.run("lock", "engine", "--upgrade", *machine, "--glibc", "2.35")
    assert done.status == 0, done.err
    assert 'name = "engine"\nversion = "2.0"' in locked(workshop)


def locked(workshop):
    names = [name for name in workshop.entries() if name.startswith("pylock")]
    return "".join((workshop.folder / name).read_text() for name in names)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("words", "version", "floor"),
    [
        (("--gpu", "RTX 4090", "--driver", "580.95.05", "--glibc", "2.35"), "2.0", "2.31"),
        (("--target", "cu126"), "1.0", "2.28"),
    ],
)
def test_the_glibc_of_a_known_machine_counts_and_the_old_floor_is_for_targets(
    workshop,
    stand_in_folder,
    words,
    version,
    floor,
):
    simple = stand_in_folder / "simple"
    make_wheel(simple, "viewer", "1.0", requires=["torch", "renderer"])
    make_wheel(simple, "renderer", "1.0", "py3-none-manylinux_2_17_x86_64")
    make_wheel(simple, "renderer", "2.0", "py3-none-manylinux_2_31_x86_64")
    done = workshop.run("lock", "viewer", *words, "--python", "3.12")
    assert done.status == 0, done.err
    [name] = [name for name in workshop.entries() if name.startswith("pylock")]
    lock = workshop.lock(name)
    assert f'name = "renderer"\nversion = "{version}"' in lock
    assert f'glibc = "{floor}"' in lock


def test_offline_advises_no_other_index(workshop):
    for words in (("install", "torch", *CPU), ("lock", "torch", "--target", "cpu")):
        done = workshop.run(*words, "--offline")
        assert done.status == 4
        assert "this run is offline" in done.err
        assert "the other sources are used" not in done.err
        assert "--torch-index" not in done.err
        assert "do    Run it again without --offline\n" in done.err


@pytest.fixture
def three_gigabytes(workshop: Workshop, stand_in: StandInIndex, stand_in_folder: Path) -> Workshop:
    """The torch index is down, and the default index says that its build for GPUs has 3 GB."""
    make_wheel(stand_in_folder / "simple", "torch", "2.14.1", "cp311-cp311-manylinux_2_28_x86_64")
    respond = stand_in.default.respond

    def large(path: str, headers: dict[str, str]) -> Answer:
        answer = respond(path, headers)
        said = (
            re.sub(rb'"size": \d+', b'"size": 2900000000', answer.body)
            if path == "/simple/torch/"
            else answer.body
        )
        return replace(answer, body=said)

    stand_in.default.respond = large
    stand_in.torch.close()
    return workshop


@pytest.mark.heavy
def test_gigabytes_that_only_an_unreachable_index_costs_are_refused_unless_they_are_wanted(
    three_gigabytes,
):
    done = three_gigabytes.run("install", "torch", "--python", "3.11")
    assert done.status == 2, done.err
    assert "is a download of 2.9 GB: the index of the CPU build, 127.0.0.1" in " ".join(
        done.err.split()
    )
    assert "Run it again with --yes: it is downloaded all the same" in done.err
    assert three_gigabytes.entries() == set()
    assert (
        three_gigabytes.run("install", "torch", "--python", "3.11", "--yes").status == 4
    )  # it is not 2.9 GB


def test_a_proxy_that_is_set_wrongly_is_named_and_not_to_be_set(workshop):
    wrong = {"HTTP_PROXY": "http://ann:s3cret@127.0.0.1:9", "NO_PROXY": "", "no_proxy": ""}
    done = replace(workshop, variables={**workshop.variables, **wrong}).run(
        "lock", "numpy", "--target", "cpu"
    )
    assert done.status == 4
    assert "the proxy cannot be reached" in done.err
    assert "do    Check the proxy: HTTP_PROXY is http://127.0.0.1:9\n" in done.err
    assert "Behind a proxy" not in done.err
    assert "s3cret" not in done.err


def test_a_plan_that_is_refused_names_the_option_to_run_it_again_with(workshop):
    words = ("plan", "--gpu", "GTX 980", "--driver", "590.44.01")
    done = workshop.run(*words)
    assert done.status == 8
    assert "Run it again with --backend cpu: the CPU build instead" in done.err
