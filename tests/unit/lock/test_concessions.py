"""Which requirements give way where a request cannot be met: none that could have stayed."""

import json
import random

from gpuinstall.base.errors import InstallationError, NoBuildError
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.lock.concessions import Concessions, fewest_concessions, release_day
from gpuinstall.lock.uv_failure import Conflict, build_conflict
from gpuinstall.sources.web import Page

SEED = 46
DRAWN = 300


def conflict(*names, too_new=frozenset()):
    why = f"Because {' and '.join(sorted(names))} cannot be had together"
    return Conflict(
        NoBuildError("requirements-conflict", "no versions", why=why), too_new
    )


def failed_build(package):
    message = f"{package} has no wheel for this machine, and building it failed"
    return build_conflict(
        InstallationError("build-failed", message, why="Error: pip, numpy and -w")
    )


def attempt_with(obstacles, *in_passing):
    """Resolve in a world where each of ``obstacles`` stands until one of its packages gives way."""

    def attempt(concessions):
        for obstacle in obstacles:
            if obstacle.isdisjoint(concessions.dropped):
                return conflict(*obstacle, *in_passing)
        return []

    return attempt


def made(answer):
    assert isinstance(answer, Concessions)
    return answer


def test_nothing_that_gave_way_could_have_stayed():
    chance = random.Random(SEED)
    wrong = []
    for _ in range(DRAWN):
        packages = [f"package-{number}" for number in range(chance.randint(1, 8))]
        obstacles = [
            frozenset(chance.sample(packages, chance.randint(1, min(3, len(packages)))))
            for _ in range(chance.randint(0, 5))
        ]
        answer = made(fewest_concessions(packages, attempt_with(obstacles)))
        needless = {
            package
            for package in answer.dropped
            if all(obstacle & (answer.dropped - {package}) for obstacle in obstacles)
        }
        if needless:
            wrong.append((obstacles, answer.dropped))

    assert wrong == []


def test_a_package_that_uv_named_in_passing_is_put_back():
    obstacles = [frozenset({"scipy"})]
    packages = ["scipy", "numpy"]

    answer = made(fewest_concessions(packages, attempt_with(obstacles, "numpy")))

    assert answer.dropped == {"scipy"}


def test_of_two_that_exclude_each_other_the_later_one_gives_way():
    obstacles = [frozenset({"numpy", "scipy"})]

    answer = made(fewest_concessions(["numpy", "scipy"], attempt_with(obstacles)))

    assert answer.dropped == {"scipy"}
    assert answer.causes["scipy"] == "Because numpy and scipy cannot be had together"


def test_what_is_newer_than_the_date_is_let_in_before_a_pin_gives_way():
    def attempt(concessions):
        if "sympy" in concessions.undated:
            return []
        return conflict("torch", "numpy", too_new=frozenset({"sympy"}))

    answer = made(fewest_concessions(["numpy"], attempt))

    assert answer == Concessions(frozenset(), frozenset({"sympy"}))


def test_what_gave_way_may_be_newer_than_the_date():
    def attempt(concessions):
        if "numpy" in concessions.dropped & concessions.undated:
            return []
        return conflict("numpy", "scipy") if concessions.dropped else conflict("numpy")

    answer = made(fewest_concessions(["numpy", "scipy"], attempt))

    assert answer == Concessions(frozenset({"numpy"}), frozenset({"numpy"}))


def test_of_pins_the_one_that_cannot_be_built_gives_way():
    def attempt(concessions):
        return [] if "cocoa" in concessions.dropped else failed_build("cocoa==2.0.2")

    answer = made(fewest_concessions(["cocoa", "numpy", "scipy"], attempt))

    assert answer == Concessions(frozenset({"cocoa"}))
    cause = "cocoa==2.0.2 has no wheel for this machine, and building it failed"
    assert answer.causes == {"cocoa": cause}


def test_what_cannot_be_built_may_be_newer_than_the_date():
    def attempt(concessions):
        return [] if "h5py" in concessions.undated else failed_build("h5py==3.1.0")

    answer = made(fewest_concessions(["numpy"], attempt))

    assert answer == Concessions(frozenset(), frozenset({"h5py"}))


def test_a_conflict_of_nothing_that_was_requested_is_the_answer():
    answer = fewest_concessions([], lambda _: conflict("torch"))

    assert isinstance(answer, Conflict)


def test_a_release_is_as_old_as_its_first_file():
    files = [
        {
            "filename": "numpy-1.23.5-cp311-cp311-linux_x86_64.whl",
            "upload-time": "2022-11-20T10Z",
        },
        {"filename": "numpy-1.23.5.tar.gz", "upload-time": "2022-11-19T21:11:03.5Z"},
        {"filename": "numpy-1.24.0.tar.gz", "upload-time": "2022-12-18T00:00:00Z"},
        {"filename": "notes.txt"},
    ]
    text = json.dumps({"files": files})
    page = Page(
        text, "application/vnd.pypi.simple.v1+json", "https://index.example/numpy/"
    )

    day = release_day(page, parse_requirement("numpy==1.23.5"))

    assert day is not None
    assert day.strftime("%Y-%m-%d") == "2022-11-19"
