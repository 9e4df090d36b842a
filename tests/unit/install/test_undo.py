"""The record of a change, cut at every moment, and one that a stranger has written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import pytest

from gpuinstall.base.errors import GpuInstallError, InstallationError, UsageError
from gpuinstall.base.files import remove_path
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.environments.guard import write_guard
from gpuinstall.install import undo
from gpuinstall.install.foreign import ForeignEnvironment
from gpuinstall.install.options import Action
from gpuinstall.install.priced_lock import PricedLock
from gpuinstall.install.transaction import ForeignPlace, transact
from gpuinstall.install.undo import (
    UNDO_SCHEMA,
    UndoRecord,
    find_undo,
    finish_undo,
    plan_undo,
    undo_folder,
)
from gpuinstall.lock.fit import Fit
from gpuinstall.lock.lock import parse
from gpuinstall.plan.values import Choice, Plan
from gpuinstall.project import Project, Settings
from tests.frozen import frozen_catalog
from tests.unit.install.environments import lock_text


@pytest.fixture
def environment(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> ForeignEnvironment:
    """One with torch 1 in it, whose files its installer wrote down."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    site, scripts = tmp_path / "lib", tmp_path / "bin"
    (site / "torch").mkdir(parents=True)
    (site / "torch-1.dist-info").mkdir()
    scripts.mkdir()
    files = [
        site / "torch" / "__init__.py",
        site / "torch" / "old.py",
        site / "torch-1.dist-info" / "METADATA",
    ]
    for file in (*files, site / "app.py"):
        file.write_text("1")
    monkeypatch.setattr(ForeignEnvironment, "files_of", lambda _self, _packages: files)
    paths = {"purelib": site, "platlib": site, "scripts": scripts, "data": tmp_path}
    return ForeignEnvironment(Path("python"), "3.12", "venv", tmp_path, paths, {"torch": "1"})


@pytest.fixture
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("wheels"))


def made(folder: Path, *further: str, script: str = "TorchX") -> Path:
    """An unpacked wheel, with ``further`` files in it."""
    wheel = folder / "unpacked"
    contents = dict.fromkeys(
        ("torch/__init__.py", "torch/new.py", "torch-2.data/scripts/torchrun", *further), "2"
    )
    contents["torch-2.dist-info/WHEEL"] = "Root-Is-Purelib: true"
    contents["torch-2.dist-info/entry_points.txt"] = (
        f"[console_scripts]\n{script} = torch:main\n[other]\nno = x"
    )
    for name, text in contents.items():
        (wheel / name).parent.mkdir(parents=True, exist_ok=True)
        (wheel / name).write_text(text)
    return wheel


def tree(environment: ForeignEnvironment) -> dict[str, str]:
    files = (path for path in environment.root.rglob("*") if path.is_file())
    return {path.relative_to(environment.root).as_posix(): path.read_text() for path in files}


def put_in(environment: ForeignEnvironment, wheel: Path):
    """What uv makes of the wheel, and Python of that."""
    site = environment.paths["purelib"]
    shutil.copytree(wheel, site, ignore=shutil.ignore_patterns("*.data"), dirs_exist_ok=True)
    (site / "torch-2.dist-info" / "RECORD").write_text("written last")
    for script in ("torchrun", "TorchX"):
        (environment.paths["scripts"] / script).write_text("2")
    (site / "torch" / "__pycache__").mkdir(exist_ok=True)
    (site / "torch" / "__pycache__" / "new.cpython-312.pyc").write_text("compiled")


def test_what_was_put_in_goes_and_what_was_there_comes_back(environment, wheel):
    before = tree(environment)
    saved = plan_undo(environment, ["torch"], [wheel]).begin().save()
    assert "lib/torch/old.py" not in tree(environment)
    put_in(environment, wheel)
    saved.undo()
    assert tree(environment) == before
    assert not (environment.paths["purelib"] / "torch" / "__pycache__").exists()


def test_what_a_program_that_failed_halfway_has_left_goes_too(environment, wheel):
    before = tree(environment)
    saved = plan_undo(environment, ["torch"], [wheel]).begin().save()
    shutil.copytree(wheel, environment.paths["purelib"], dirs_exist_ok=True)
    saved.undo()
    assert tree(environment) == before


def changed(environment: ForeignEnvironment, wheel: Path) -> UndoRecord:
    """The environment with the new torch, proven; return the record of that as the next run reads it."""
    saved = plan_undo(environment, ["torch"], [wheel]).begin().save()
    put_in(environment, wheel)
    saved.keep(SilentReporter())
    record = find_undo(environment)
    assert record is not None
    return record


def test_what_is_proven_stays_and_is_undone_when_that_is_asked(environment, wheel):
    before = tree(environment)
    record = changed(environment, wheel)

    there = {
        name: text
        for name, text in tree(environment).items()
        if not name.startswith("lib/.gpuinstall")
    }
    assert there["lib/torch/__init__.py"] == "2"
    assert not any(name.startswith("lib/torch-1") or name.endswith("old.py") for name in there)
    assert not finish_undo(environment), "nobody died"
    assert record.is_last_change
    record.undo()
    assert tree(environment) == before


def place_of(environment: ForeignEnvironment) -> ForeignPlace:
    settings = Settings(machine=Machine("linux", "x86_64", "glibc", "2.36"))
    project = Project(environment.root, settings, SilentReporter(), ExitStack())
    return ForeignPlace(environment, project)


def test_a_failing_transaction_puts_back_what_was_there(environment, wheel):
    before = tree(environment)
    plan_undo(environment, ["torch"], [wheel]).begin().save()
    put_in(environment, wheel)
    build = next(build for build in frozen_catalog().builds if build.backend.tag == "cpu")
    choice = Choice(build, "3.12", "https://index.example/whl/cpu", ())
    fit = Fit(parse("pylock.cpu.toml", lock_text()), Plan("cpu", choice))

    with pytest.raises(GpuInstallError):  # there is no such interpreter to run kernels with
        transact(place_of(environment), Action.VERIFY, fit, priced=PricedLock(fit), here=None)

    assert tree(environment) == before


def test_rolling_back_restores_files_once(environment, wheel):
    before = tree(environment)
    changed(environment, wheel)

    place_of(environment).roll_back()
    assert tree(environment) == before

    with pytest.raises(UsageError) as refused:
        place_of(environment).roll_back()
    assert refused.value.code == "no-previous"


@pytest.mark.parametrize("edit", ["", "torch==3\n"])
def test_the_guard_goes_with_the_change_and_an_edit_of_it_is_kept_aside(environment, wheel, edit):
    root, names = environment.root, ("constraints.txt", "pip.conf")
    write_guard(root, root, "torch==1", ["torch==1"])
    before = tree(environment)
    changed(environment, wheel).extend(names)
    write_guard(root, root, "torch==2", ["torch==2"])
    with (root / "constraints.txt").open("a") as file:
        file.write(edit)
    record = find_undo(environment)
    assert record is not None
    kept = record.undo()
    assert {
        name: text for name, text in tree(environment).items() if ".kept-" not in name
    } == before
    if edit:
        assert kept is not None
        assert (kept / "constraints.txt").read_text().endswith("torch==2\ntorch==3\n")
    else:
        assert kept is None


@pytest.mark.parametrize("moment", range(1, 14))
def test_going_back_is_finished_by_the_next_run_if_it_dies(environment, wheel, monkeypatch, moment):
    before = tree(environment)
    record = changed(environment, wheel)
    calls = count(1)

    def dying(path: Path):
        if next(calls) == moment:
            raise KeyboardInterrupt
        remove_path(path)

    with monkeypatch.context() as context:
        context.setattr(undo, "remove_path", dying)
        with suppress(KeyboardInterrupt):
            record.undo()

    if tree(environment) != before:
        assert finish_undo(environment), "the next run says that it put something back"
    assert tree(environment) == before


def test_a_kill_while_the_record_goes_is_no_strangers_change(environment, wheel, monkeypatch):
    before = tree(environment)
    record = changed(environment, wheel)

    def dying(path: Path):
        if path == record.folder:
            (path / "record.json").unlink()
            raise KeyboardInterrupt
        remove_path(path)

    with monkeypatch.context() as context:
        context.setattr(undo, "remove_path", dying)
        with pytest.raises(KeyboardInterrupt):
            record.undo()

    assert not finish_undo(environment), "everything was put back before"
    assert tree(environment) == before


def test_a_change_by_another_program_is_not_undone(environment, wheel):
    record = changed(environment, wheel)
    site = environment.paths["purelib"]
    (site / "app.py").write_text("nothing of torch's")
    assert record.is_last_change

    written = site / "torch-2.dist-info" / "RECORD"
    written.rename(site / "torch-2.dist-info" / "RECORD.old")
    written.write_text("written last")
    assert not record.is_last_change, "installed again"
    shutil.rmtree(site / "torch-2.dist-info")
    assert not record.is_last_change, "uninstalled"


def test_bytecode_that_an_import_writes_is_no_change(environment, wheel, monkeypatch):
    compiled = environment.paths["purelib"] / "torch" / "__pycache__" / "__init__.cpython-312.pyc"
    compiled.parent.mkdir()
    compiled.write_text("of torch 1, by pip")
    recorded = [*environment.files_of(["torch"]), compiled]
    monkeypatch.setattr(ForeignEnvironment, "files_of", lambda _self, _packages: recorded)
    before = tree(environment)
    record = changed(environment, wheel)

    compiled.write_text("of torch 2, by Python")

    assert record.is_last_change
    record.undo()
    assert tree(environment) == before


def test_an_old_version_that_came_back_is_not_overwritten(environment, wheel):
    record = changed(environment, wheel)

    (environment.paths["purelib"] / "torch-1.dist-info").mkdir()
    (environment.paths["purelib"] / "torch-1.dist-info" / "METADATA").write_text("1")

    assert not record.is_last_change


def test_a_change_that_fails_leaves_the_one_before_to_be_undone(environment, wheel):
    original = tree(environment)
    changed(environment, wheel)

    plan_undo(environment, ["torch"], [wheel]).begin().save().undo()

    record = find_undo(environment)
    assert record is not None
    record.undo()
    assert tree(environment) == original


def test_the_next_change_drops_what_was_kept_for_the_one_before(environment, wheel):
    changed(environment, wheel)
    shutil.rmtree(environment.paths["purelib"] / "torch" / "__pycache__")
    changed(environment, wheel)

    kept = [name for name in tree(environment) if name.startswith("lib/.gpuinstall")]
    assert "lib/.gpuinstall/saved/lib/torch/new.py" in kept
    assert not any(name.endswith("old.py") or ".earlier" in name for name in kept)


def test_files_of_the_users_in_the_place_of_new_ones_are_kept(environment, wheel):
    """``torch/new.py`` is the user's; ``torchrun`` and the folder of torch 2 are in the records of packages."""
    site = environment.paths["purelib"]
    (site / "torch" / "new.py").write_text("mine")
    (site / "torch-2.dist-info").mkdir()
    (site / "torch-2.dist-info" / "RECORD").write_text("torch-2.dist-info/RECORD,,\n")
    (site.parent / "bin" / "torchrun").write_text("1")
    (site / "other-1.dist-info").mkdir()
    (site / "other-1.dist-info" / "RECORD").write_text("../bin/torchrun,sha256=x,1\n")
    saved = plan_undo(environment, ["torch"], [wheel]).begin().save()
    put_in(environment, wheel)
    saved.keep(SilentReporter())
    [kept] = site.glob(".gpuinstall.kept-*")
    files = {
        path.relative_to(kept).as_posix(): path.read_text()
        for path in kept.rglob("*")
        if path.is_file()
    }
    assert files == {"lib/torch/new.py": "mine"}
    assert (site / "torch" / "new.py").read_text() == "2"


@pytest.mark.parametrize("moment", range(4))
def test_a_run_that_dies_is_put_back_by_the_next(environment, wheel, moment, monkeypatch):
    before = tree(environment)
    record = plan_undo(environment, ["torch"], [wheel])
    real: Callable[[Path, Path], Path] = Path.rename
    calls = 0

    def dying(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls > moment:
            raise KeyboardInterrupt
        return real(self, target)

    with monkeypatch.context() as context:
        context.setattr(Path, "rename", dying)
        if moment < 3:
            with pytest.raises(KeyboardInterrupt):
                record.begin().save()
        else:
            saved = record.begin().save()
            put_in(environment, wheel)
            with pytest.raises(KeyboardInterrupt):
                saved.undo()
    assert finish_undo(environment)
    assert tree(environment) == before
    assert not finish_undo(environment)


def forge(environment: ForeignEnvironment, state: str, **changes: list[str]):
    """Write a record as the environment of a stranger could have it."""
    folder = undo_folder(environment)
    (folder / "saved").mkdir(parents=True, exist_ok=True)
    document = {
        "schema": UNDO_SCHEMA,
        "state": state,
        "new": [],
        "old": [],
        "users": [],
        "marks": {},
        **changes,
    }
    (folder / "record.json").write_text(json.dumps(document))


@pytest.mark.parametrize("state", ["saving", "saved", "restoring", "proven"])
def test_a_record_that_this_user_did_not_write_undoes_nothing(environment, state):
    forge(environment, state, new=["lib/app.py"])
    before = tree(environment)
    assert find_undo(environment) is None
    if state == "proven":
        assert not finish_undo(environment)
    else:
        with pytest.raises(UsageError, match="which this user did not begin here") as refused:
            finish_undo(environment)
        assert refused.value.code == "others-change"
    assert tree(environment) == before


def test_a_record_of_ours_with_other_paths_undoes_nothing(environment, wheel):
    changed(environment, wheel)
    record = json.loads((undo_folder(environment) / "record.json").read_text())
    lists = {name: record[name] for name in ("new", "old", "users")}
    forge(environment, "proven", **lists)
    assert find_undo(environment) is not None
    for name, paths in lists.items():
        forge(environment, "proven", **{**lists, name: [*paths, "lib/app.py"]})
        assert find_undo(environment) is None, name


def test_nothing_is_changed_that_could_not_be_put_back(environment, wheel, monkeypatch):
    record = changed(environment, wheel)
    monkeypatch.setenv("XDG_STATE_HOME", str(environment.root / "state"))
    (environment.root / "state").touch()
    before = tree(environment)
    with pytest.raises(InstallationError, match="cannot be written"):
        plan_undo(environment, ["torch"], [wheel]).begin()
    assert tree(environment) == before
    assert not record.earlier.exists()


def test_a_run_that_dies_before_its_record_leaves_the_change_before(environment, wheel):
    record = changed(environment, wheel)
    record.folder.rename(record.earlier)
    record.folder.mkdir()
    assert not finish_undo(environment)
    assert find_undo(environment) == record


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside", "link/file", ""])
def test_a_record_that_leads_out_of_the_environment_is_not_one_of_ours(
    environment, name, tmp_path_factory
):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "file").touch()
    (environment.root / "link").symlink_to(outside)
    UndoRecord(environment.root, undo_folder(environment), "saving", (name,), ()).begin().save()
    assert find_undo(environment) is None
    assert not finish_undo(environment)
    assert (outside / "file").exists()


def test_a_wheel_whose_files_a_link_leads_outside_the_environment_moves_nothing(
    environment, tmp_path
):
    (environment.paths["purelib"] / "linked").symlink_to(tmp_path.parent)
    with pytest.raises(InstallationError, match="would write outside"):
        plan_undo(environment, ["torch"], [made(tmp_path, "linked/victim")])


def test_a_wheel_whose_commands_lie_outside_the_environment_moves_nothing(environment, tmp_path):
    with pytest.raises(InstallationError, match="would write outside"):
        plan_undo(environment, ["torch"], [made(tmp_path, script="../../victim")])


@pytest.mark.parametrize("marks", [[], "", None, 1, {"torch": 1}])
def test_a_record_with_malformed_marks_is_refused(environment, marks):
    folder = undo_folder(environment)
    (folder / "saved").mkdir(parents=True)
    record = {
        "schema": UNDO_SCHEMA,
        "state": "saved",
        "new": [],
        "old": [],
        "users": [],
        "marks": marks,
    }
    (folder / "record.json").write_text(json.dumps(record))
    with pytest.raises(UsageError) as refused:
        finish_undo(environment)
    assert refused.value.code == "others-change"
