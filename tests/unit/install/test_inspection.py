import json
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.shell import quoted
from gpuinstall.base.values import replace
from gpuinstall.install.state import (
    check_folder,
    check_movable,
    inspect_environment,
    package_change,
)
from gpuinstall.lock.file.lock import parse
from tests.lab.environments import put_package
from tests.unit.install.environments import lock_text, make_environment


@pytest.fixture
def paths(tmp_path):
    return EnvironmentPaths.at(tmp_path / ".venv")


SITE = "lib/python3.12/site-packages"


def test_nothing_an_empty_folder_and_our_own_environment_may_be_replaced(
    paths,
):
    inspect_environment(paths).check_ownership()
    paths.venv.mkdir()
    inspect_environment(paths).check_ownership()
    make_environment(paths.venv, "ours")
    inspect_environment(paths).check_ownership()


def test_what_others_put_there_stops_nothing_and_what_they_moved_is_named(paths):
    site = make_environment(paths.venv, "ours") / SITE
    (site / "cowsay-6.1.dist-info").mkdir()
    existing = inspect_environment(paths)
    existing.check_ownership()
    assert (existing.added, existing.changed_versions) == ({"cowsay"}, {})
    (site / "torch-2.14.1.dist-info").rename(site / "torch-2.13.0.dist-info")
    existing = inspect_environment(paths)
    moved = "torch is 2.13.0 instead of 2.14.1"
    assert (existing.changed_versions, existing.changed_build) == (
        {"torch": moved},
        moved,
    )


def test_a_project_that_is_not_there_as_the_lock_has_it_has_changed(paths, tmp_path):
    project = 'name = "lb"\ndirectory = { path = "my lib", editable = true }'
    lock = parse("pylock.cu126.toml", f"{lock_text()}[[packages]]\n{project}\n")
    make_environment(paths.venv, "ours")
    here = (tmp_path / "my lib").as_uri()
    right = f'{{"url":"{here}","dir_info":{{"editable":true}}}}'
    wrong = [
        f'{{"url": "{here}", "dir_info": {{}}}}',
        f'{{"url":"{here}2","dir_info":{{"editable":true}}}}',
        '{"url":"b:c","dir_info":{}}',
        '{"url":"file:///","dir_info":""}',
        "[]",
        "",
    ]
    record = paths.venv / SITE / "lb-1.0.dist-info"
    assert replace(inspect_environment(paths), lock=lock).changed_projects == {"lb"}
    record.mkdir()
    changed = []
    for text in (right, *wrong):
        (record / "direct_url.json").write_text(text)
        existing = replace(inspect_environment(paths), lock=lock)
        if existing.changed_projects == {"lb"}:
            changed.append(text)
    assert changed == wrong


def test_a_project_is_built_again_when_torch_moves(paths, tmp_path):
    make_environment(paths.venv, "ours")
    site = paths.venv / SITE
    directory = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    put_package(site, "torch", {}, version="2.14.1")
    put_package(site, "lb", {"lb-1.0.dist-info/direct_url.json": json.dumps(directory)})
    project = '[[packages]]\nname = "lb"\ndirectory = {path = ".", editable = true}\n'
    lock, new = (
        parse("pylock.cu126.toml", f"{lock_text(torch)}{project}")
        for torch in ("2.14.1", "2.15.0")
    )
    existing = replace(inspect_environment(paths), lock=lock, made_here=True)
    fit: Any = SimpleNamespace(lock=lock, choice=SimpleNamespace(python="3.12"))
    assert package_change(existing, fit).comes == set()
    fit.lock = new
    assert package_change(existing, fit).comes == {"torch", "lb"}


def test_nothing_starts_by_a_lock_that_an_environment_was_not_made_from(
    paths,
):
    make_environment(paths.venv, "ours")
    inspect_environment(paths).check_unchanged()
    lock = paths.venv / "pylock.cu126.toml"
    for spoil in (lambda: lock.write_text(lock_text("2.13.0")), lock.unlink):
        spoil()
        with pytest.raises(LockError, match="is gone, or is not the lock that it was"):
            inspect_environment(paths).check_unchanged()


def test_a_folder_that_is_not_ours_is_left_alone_and_the_users_files_are_named(paths):
    paths.venv.mkdir()
    whys = []
    for name in ("thesis.txt", "pyvenv.cfg", ".git"):
        (paths.venv / name).touch()
        with pytest.raises(UsageError) as caught:
            inspect_environment(paths).check_ownership()
        assert caught.value.code == "not-ours"
        whys.append(caught.value.why)
    own = "it has files that no installer wrote: "
    assert whys == [f"{own}thesis.txt", f"{own}thesis.txt", f"{own}.git, thesis.txt"]


def test_a_file_in_the_place_of_the_environment_is_never_replaced(paths):
    paths.venv.touch()
    with pytest.raises(UsageError, match="is a file") as refused:
        check_folder(paths.venv)
    # With what was typed.
    assert str(refused.value.hint).startswith("Run it again with --venv ")


@pytest.mark.parametrize("folder", [".", "below/it"])
def test_the_working_folder_and_those_above_it_are_never_replaced(
    paths, folder, monkeypatch
):
    inside = paths.venv / folder
    inside.mkdir(parents=True)
    check_movable(paths)
    refusal = "while you are inside it"
    with pytest.raises(UsageError, match=refusal) as typed:
        check_movable(paths, inside)
    assert typed.value.hint == f"cd {quoted(paths.folder)}   # then run it again"
    monkeypatch.chdir(inside)
    with pytest.raises(UsageError, match=refusal):
        check_movable(paths)


def test_nothing_moves_when_it_is_asked_whether_it_can(paths):
    make_environment(paths.venv, "ours")
    before = sorted(paths.venv.rglob("*"))
    check_movable(paths)
    assert sorted(paths.venv.rglob("*")) == before
    assert list(paths.work.iterdir()) == []
