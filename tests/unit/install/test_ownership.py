from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuinstall.environments.contents import foreign, installed
from gpuinstall.environments.paths import EnvironmentPaths
from gpuinstall.errors import UsageError
from gpuinstall.install.ownership import check_ownership, check_place, own_lock
from tests.unit.install.environments import make_environment

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> EnvironmentPaths:
    return EnvironmentPaths.at(tmp_path / ".venv")


def refused(place: EnvironmentPaths) -> UsageError:
    with pytest.raises(UsageError) as caught:
        check_ownership(place)
    return caught.value


def test_nothing_an_empty_folder_and_our_own_environment_may_be_replaced(place: EnvironmentPaths) -> None:
    check_ownership(place)
    place.venv.mkdir()
    check_ownership(place)
    make_environment(place.venv, "ours")
    check_ownership(place)


def test_a_package_of_the_users_is_named(place: EnvironmentPaths) -> None:
    make_environment(place.venv, "ours")
    (place.venv / "lib/python3.12/site-packages/cowsay-6.1.dist-info").mkdir()
    error = refused(place)
    assert error.code == "users-packages"
    assert "cowsay 6.1" in error.message
    assert "--replace" in (error.hint or "")


def test_a_version_that_was_changed_by_hand_is_the_users(place: EnvironmentPaths) -> None:
    make_environment(place.venv, "ours")
    packages = place.venv / "lib/python3.12/site-packages"
    (packages / "torch-2.14.1.dist-info").rename(packages / "torch-2.13.0.dist-info")
    assert "torch 2.13.0" in refused(place).message


def test_everything_is_the_users_where_the_environments_lock_is_gone(place: EnvironmentPaths) -> None:
    (make_environment(place.venv, "ours") / "pylock.cu126.toml").unlink()
    assert own_lock(place.venv) is None
    assert refused(place).code == "users-packages"


@pytest.mark.parametrize("file", ["thesis.txt", "pyvenv.cfg"])
def test_a_folder_that_is_not_ours_is_left_alone(place: EnvironmentPaths, file: str) -> None:
    place.venv.mkdir()
    (place.venv / file).touch()
    assert refused(place).code == "not-ours"


def test_a_file_in_the_place_of_the_environment_is_never_replaced(place: EnvironmentPaths) -> None:
    place.venv.touch()
    with pytest.raises(UsageError, match="is a file"):
        check_place(place)


@pytest.mark.parametrize("folder", [".", "below/it"])
def test_the_working_folder_and_those_above_it_are_never_replaced(
    place: EnvironmentPaths, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.venv / folder).mkdir(parents=True)
    check_place(place)
    monkeypatch.chdir(place.venv / folder)
    with pytest.raises(UsageError, match="working folder"):
        check_place(place)


def test_installed_packages_are_read_whatever_their_spelling(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in ("typing_extensions-4.15.0.dist-info", "torch-2.14.1+cu126.dist-info", "Old.Egg-1.0-py3.12.egg-info"):
        (packages / name).mkdir(parents=True)
    assert installed(tmp_path) == {"typing-extensions": "4.15.0", "torch": "2.14.1+cu126", "old-egg": "1.0"}


def test_equal_versions_in_another_spelling_are_the_same() -> None:
    assert foreign({"a": "1.0", "b": "2"}, {"a": "1.0.0"}) == ("b 2",)
