"""What commands answer: a reason only where it is one, commands that can be pasted, no line too many."""

import re
import sys
from dataclasses import replace

import pytest

from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
CPU = ("--backend", "cpu", "--python", PYTHON)


@pytest.fixture
def workshop(stand_in, stand_in_folder, tmp_path):
    for version in ("2.2.6", "2.4.6"):
        make_wheel(stand_in_folder / "simple", "numpy", version)
    make_wheel(stand_in_folder / "simple", "pandas", "2.3.0", requires=["numpy"])
    (tmp_path / "project").mkdir()
    return Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())


def put_in_by_hand(workshop, *packages):
    site = next((workshop.folder / ".venv" / "lib").glob("python*/site-packages"))
    for package in packages:
        name, _, requirement = package.partition(" requires ")
        record = site / f"{name}.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(
            f"Name: x\n{f'Requires-Dist: {requirement}' if requirement else ''}\n"
        )


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


def test_a_lock_beside_others_names_the_targets_as_the_reason_and_no_program(
    workshop,
):
    for target in ("cu126", "cpu"):
        workshop.document("lock", "torch", "--target", target, "--python", PYTHON)
    done = workshop.run("lock", "pandas")
    assert done.status == 0, done.err
    assert "pandas" not in "".join(line for line in done.err.splitlines() if "torch" in line)


@pytest.fixture
def three_gigabytes(workshop, stand_in, stand_in_folder):
    """The torch index is down, and the default index says that its build for GPUs has 3 GB."""
    make_wheel(stand_in_folder / "simple", "torch", "2.14.1", "cp311-cp311-manylinux_2_28_x86_64")
    respond = stand_in.default.respond

    def large(path, headers):
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
