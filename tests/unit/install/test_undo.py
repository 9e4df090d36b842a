"""The copy of what a change touches, cut at every moment, and a record that a stranger has written."""

import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from gpuinstall.base import process
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.reporter import Reporter
from gpuinstall.environments.guard import write_guard
from gpuinstall.install.foreign import ForeignEnvironment
from gpuinstall.install.undo import (
    begin_change,
    changing,
    find_change,
    find_undo,
    finish_undo,
    roll_back_into,
    undo_folder,
)

TORCH_1 = ("torch/__init__.py", "torch/old.py", "torch-1.dist-info/METADATA")
TORCH_2 = ("torch/__init__.py", "torch/new.py", "torch-2.dist-info/METADATA")
COMMANDS = ("../bin/torchrun", "../bin/TorchX")


@pytest.fixture
def environment(tmp_path, tmp_path_factory, monkeypatch):
    """One with torch 1 in it, whose files its installer wrote down, and a file of the user's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    root = tmp_path / "app"
    site = root / "lib"
    put(site, "torch-1", *TORCH_1)
    (root / "bin").mkdir()
    (site / "app.py").write_text("mine")
    paths = {"purelib": site, "platlib": site, "scripts": root / "bin", "data": root}
    return ForeignEnvironment(
        Path("python"), "3.12", False, root, paths, {"torch": "1"}
    )


def put(site, package, *files):
    """Write the files of a package, and their RECORD."""
    record = f"{package}.dist-info/RECORD"
    for name in files:
        replace_file(site / name, package)
    rows = [f"{name},sha256=x,{len(package)}\n" for name in files]
    replace_file(site / record, "".join([*rows, f"{record},,\n"]))


def replace_file(path, text):
    """Write as installers do: another file in the place of the one that is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)


@pytest.fixture
def wheel(tmp_path_factory):
    return made(tmp_path_factory.mktemp("wheels"))


def made(folder, *further):
    """What uv unpacks of a wheel of torch 2 into one folder, with ``further`` files in it."""
    put(folder, "torch-2", *TORCH_2, "bin/torchrun", "bin/TorchX", *further)
    return folder


def tree(environment):
    """The files of an environment, but the copy."""
    found = {}
    for path in environment.root.rglob("*"):
        name = path.relative_to(environment.root).as_posix()
        if path.is_file() and "/.gpuinstall" not in name:
            found[name] = path.read_text()
    return found


def put_in(environment):
    """What uv makes of the wheel, and Python of that."""
    site = environment.paths["purelib"]
    for name in (*TORCH_1, "torch-1.dist-info/RECORD"):
        (site / name).unlink()
    (site / "torch-1.dist-info").rmdir()
    put(site, "torch-2", *TORCH_2, *COMMANDS)
    (site / "torch" / "__pycache__").mkdir(exist_ok=True)
    (site / "torch" / "__pycache__" / "new.cpython-312.pyc").write_text("compiled")


def begun(environment, wheel):
    return begin_change(environment, Reporter(), ["torch"], wheel)


def changed(environment, wheel):
    """The environment with the new torch, proven; return the record of that as the next run reads it."""
    record = begun(environment, wheel)
    put_in(environment)
    record.keep()
    return found(environment)


def found(environment):
    record = find_undo(environment)
    assert record is not None
    return record


def under_way(environment):
    change = find_change(environment)
    assert change is not None
    return change


def go_back(environment, *, replaces=False):
    found(environment).go_back(Reporter(), replaces=replaces)


def test_what_was_put_in_goes_and_what_was_there_comes_back(environment, wheel):
    before = tree(environment)
    record = begun(environment, wheel)
    assert tree(environment) == before
    put_in(environment)

    record.undo()

    assert tree(environment) == before
    assert not (environment.paths["purelib"] / "torch" / "__pycache__").exists()
    assert not undo_folder(environment).exists()


def test_data_and_headers_that_came_go_too(environment, tmp_path):
    (environment.root / "share").mkdir()
    (environment.root / "include" / "site").mkdir(parents=True)
    before = tree(environment)
    unpacked = made(
        tmp_path / "unpacked", "share/torch/page.1", "etc/torch.conf", "include/t/t.h"
    )
    record = begun(environment, unpacked)
    put_in(environment)
    for name in (
        "share/torch/page.1",
        "etc/torch.conf",
        "include/site/python3.12/t/t.h",
    ):
        replace_file(environment.root / name, "2")

    record.undo()

    assert tree(environment) == before


def test_the_copy_is_of_links_and_of_what_changes_alone(environment, wheel):
    record = begun(environment, wheel)

    old = environment.paths["purelib"] / "torch" / "old.py"
    assert old.samefile(record.copy / "lib" / "torch" / "old.py")
    assert not (record.copy / "lib" / "app.py").exists()


def test_where_no_links_are_to_be_had_it_is_copied(environment, wheel, monkeypatch):
    def refused(*_arguments, **_options):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    before = tree(environment)
    record = begun(environment, wheel)
    put_in(environment)
    record.undo()
    assert tree(environment) == before


def test_a_full_disk_while_the_copy_is_made_changes_nothing(
    environment, wheel, monkeypatch
):
    before = tree(environment)
    changed(environment, wheel)
    go_back(environment)

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(os, "link", full)
        context.setattr(shutil, "copy2", full)
        with pytest.raises(InstallationError, match="No space left"):
            begun(environment, wheel)

    assert tree(environment) == before
    assert not finish_undo(environment)
    go_back(environment)
    assert "lib/torch/new.py" in tree(environment)


def test_what_is_proven_stays_and_goes_back_and_forth(environment, wheel):
    before = tree(environment)
    changed(environment, wheel)
    after = tree(environment)
    assert "lib/torch/new.py" in after
    assert not finish_undo(environment), "nobody died"

    for expected in (before, after, before):
        go_back(environment)
        assert tree(environment) == expected


def test_a_file_edited_in_place_is_in_both_copies(environment, wheel):
    site = environment.paths["purelib"]
    begun(environment, wheel).keep()
    (site / "torch" / "old.py").write_text("edited")

    go_back(environment)

    assert (site / "torch" / "old.py").read_text() == "edited"


def fail():
    raise RuntimeError


def test_a_change_that_fails_puts_back_what_was_there(environment, wheel):
    before = tree(environment)
    begun(environment, wheel)
    put_in(environment)

    with pytest.raises(RuntimeError), changing(environment, Reporter()):
        fail()

    assert tree(environment) == before


def test_without_a_change_there_is_nothing_to_go_back_to(environment):
    with pytest.raises(UsageError) as refused:
        roll_back_into(environment, Reporter())
    assert refused.value.code == "no-previous"


@pytest.mark.parametrize("edited", [False, True])
def test_the_guard_goes_with_the_change_and_an_edited_one_stays(
    environment, wheel, edited
):
    root = environment.root
    write_guard(root, root, "torch==1", ["torch==1"])
    before = tree(environment)
    changed(environment, wheel)
    write_guard(root, root, "torch==2", ["torch==2"])
    if edited:
        with (root / "constraints.txt").open("a") as file:
            file.write("torch==3\n")
        before["constraints.txt"] = (root / "constraints.txt").read_text()

    go_back(environment)

    assert tree(environment) == before


def test_what_came_or_moved_since_is_named_and_goes_only_if_told(environment, wheel):
    """One package was replaced, one shares a folder with torch, one has nothing to do with it."""
    site = environment.paths["purelib"]
    before = tree(environment)
    changed(environment, wheel)
    shutil.rmtree(site / "torch-2.dist-info")
    put(site, "torch-3", *TORCH_2[:2], "torch-3.dist-info/METADATA", *COMMANDS)
    put(site, "beside-1", "torch/beside.py", "beside/__init__.py")
    put(site, "other-1", "other/__init__.py")
    (site / "torch" / "notes.txt").write_text("mine")
    after = tree(environment)

    with pytest.raises(UsageError) as refused:
        go_back(environment)
    error = refused.value
    assert (error.code, error.hint) == ("changed-since", "Run it again with --replace")
    assert error.message.startswith("beside, torch came or changed in")
    assert tree(environment) == after

    go_back(environment, replaces=True)
    others = {
        name: text for name, text in after.items() if "other" in name or "notes" in name
    }
    assert tree(environment) == before | others

    go_back(environment)
    assert tree(environment) == after


def test_bytecode_that_an_import_writes_is_no_change(environment, wheel):
    compiled = (
        environment.paths["purelib"]
        / "torch"
        / "__pycache__"
        / "__init__.cpython-312.pyc"
    )
    compiled.parent.mkdir()
    compiled.write_text("of torch 1")
    before = tree(environment)
    changed(environment, wheel)
    compiled.write_text("of torch 2, by Python")

    go_back(environment)

    names = {name for name in tree(environment) if not name.endswith(".pyc")}
    assert names == {name for name in before if not name.endswith(".pyc")}


def test_a_change_that_fails_leaves_the_one_before_to_be_undone(environment, wheel):
    original = tree(environment)
    changed(environment, wheel)

    begun(environment, wheel).undo()

    go_back(environment)
    assert tree(environment) == original


def test_the_next_change_drops_what_was_kept_for_the_one_before(environment, wheel):
    changed(environment, wheel)
    begin_change(environment, Reporter(), [], wheel).keep()

    site = environment.paths["purelib"]
    assert (found(environment).copy / "lib" / "torch" / "new.py").exists()
    assert not list(site.rglob("old.py"))
    assert [path.name for path in site.glob(".gpuinstall*")] == [".gpuinstall"]


def test_files_of_the_users_in_the_place_of_new_ones_are_kept(environment, wheel):
    """``torch/new.py`` is the user's, ``torchrun`` another package's."""
    site = environment.paths["purelib"]
    (site / "torch" / "new.py").write_text("mine")
    (site.parent / "bin" / "torchrun").write_text("other-1")
    put(site, "other-1", "../bin/torchrun")
    record = begun(environment, wheel)
    put_in(environment)
    record.keep()

    [kept] = site.glob(".gpuinstall.kept-*")
    files = {
        path.relative_to(kept).as_posix(): path
        for path in kept.rglob("*")
        if path.is_file()
    }
    assert list(files) == ["lib/torch/new.py"]
    assert files["lib/torch/new.py"].read_text() == "mine"
    assert (site / "torch" / "new.py").read_text() == "torch-2"


CALLS = ("rename", "replace", "unlink", "rmdir", "mkdir", "link")


def dying(monkeypatch, moment):
    """Let this process die at one of the calls that change a file system; return the counter of them."""
    calls = [0]

    def counted(real):
        def call(*arguments, **options):
            calls[0] += 1
            if calls[0] == moment:
                raise KeyboardInterrupt
            if calls[0] > moment:
                # What is dead cleans nothing up either.
                raise SystemExit
            return real(*arguments, **options)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    return calls


def go_on(environment, part):
    """Take one part of a change, of which the others have been taken before."""
    match part:
        case "begin":
            begin_change(environment, Reporter(), ["torch"])
        case "undo":
            under_way(environment).undo()
        case "keep":
            under_way(environment).keep()
        case "back":
            go_back(environment)


@pytest.mark.parametrize("part", ["begin", "undo", "keep", "back"])
def test_a_run_that_dies_at_any_call_is_finished_by_the_next(
    environment, wheel, tmp_path, monkeypatch, part
):
    """Afterwards all is as it was before, or, once it was proven, as it is after; and one can go back from there."""
    first = tree(environment)
    changed(environment, wheel)
    second = tree(environment)
    if part in ("undo", "keep"):
        go_back(environment)
        begun(environment, wheel)
        put_in(environment)
    allowed = {
        "begin": [second],
        "undo": [first],
        "keep": [first, second],
        "back": [first, second],
    }
    shutil.copytree(environment.root, tmp_path / "start")
    wrong = []
    for moment in range(1, 500):
        shutil.rmtree(environment.root)
        shutil.copytree(tmp_path / "start", environment.root)
        with monkeypatch.context() as context:
            calls = dying(context, moment)
            with suppress(KeyboardInterrupt, SystemExit):
                go_on(environment, part)
        if calls[0] >= moment:
            finish_undo(environment)
            has_record = find_undo(environment) and not find_change(environment)
            if tree(environment) not in allowed[part] or not has_record:
                wrong.append(moment)
        else:
            break
    assert moment > 5
    assert wrong == []


def forge(folder, units):
    """Write a record as the environment of a stranger could have it."""
    (folder / "copy").mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_text(json.dumps({"units": units, "packages": {}}))


def test_a_record_that_this_user_did_not_write_undoes_nothing(environment):
    forge(undo_folder(environment), ["lib/app.py"])
    before = tree(environment)
    assert find_undo(environment) is None
    assert not finish_undo(environment)
    undo_folder(environment).rename(
        undo_folder(environment).with_name(".gpuinstall.changing")
    )
    with pytest.raises(
        UsageError, match="which this user did not begin here"
    ) as refused:
        finish_undo(environment)
    assert refused.value.code == "others-change"
    assert tree(environment) == before


def test_a_record_of_ours_with_other_paths_undoes_nothing(environment, wheel):
    record = changed(environment, wheel)
    forge(record.folder, [*record.units, "lib/app.py"])
    assert find_undo(environment) is None


def test_nothing_is_changed_that_could_not_be_put_back(environment, wheel, monkeypatch):
    record = changed(environment, wheel)
    monkeypatch.setenv("XDG_STATE_HOME", str(environment.root / "state"))
    (environment.root / "state").touch()
    before = tree(environment)
    with pytest.raises(InstallationError, match="cannot be written"):
        begin_change(environment, Reporter(), [], wheel)
    assert tree(environment) == before
    assert record.copy.exists()


def test_a_wheel_whose_files_a_link_leads_outside_the_environment_moves_nothing(
    environment, tmp_path
):
    (environment.paths["purelib"] / "linked").symlink_to(tmp_path.parent)
    with pytest.raises(InstallationError, match="would write outside"):
        begin_change(
            environment,
            Reporter(),
            ["torch"],
            made(tmp_path / "unpacked", "linked/victim"),
        )


ON_OVERLAYFS = """
import subprocess, sys
from pathlib import Path
from gpuinstall.base.errors import InstallationError
from gpuinstall.install.foreign import ForeignEnvironment
from gpuinstall.base.reporter import Reporter
from gpuinstall.install.undo import begin_change
room = Path(sys.argv[1])
def mount(*words):
    subprocess.run(["mount", *words], check=True)
mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(room))
lower, upper, work, root = (room / name for name in ("lower", "upper", "work", "app"))
for folder in (lower / "lib/torch", lower / "lib/second", upper, work, root):
    folder.mkdir(parents=True)
for name in ("torch", "second"):
    (lower / "lib" / name / "lib.so").write_bytes(b"1" * 200_000)
    record = lower / "lib" / f"{name}-1.dist-info"
    record.mkdir()
    (record / "RECORD").write_text(f"{name}/lib.so,,200000\\n")
layers = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
mount("-t", "overlay", "-o", layers, "overlay", str(root))
site = root / "lib"
paths = {"purelib": site, "platlib": site, "scripts": root / "bin", "data": root}
environment = ForeignEnvironment(Path("python"), "3.12", False, root, paths, {"torch": "1"})
library = site / "torch/lib.so"
record = begin_change(environment, Reporter(), ["torch"])
library.unlink()
(site / "torch/new.so").write_bytes(b"2" * 300_000)
record.undo()
assert library.read_bytes() == b"1" * 200_000
assert [path.name for path in (site / "torch").iterdir()] == ["lib.so"]
packages = sorted(path.name for path in site.iterdir())
assert packages == ["second", "second-1.dist-info", "torch", "torch-1.dist-info"]
(room / "filled").write_bytes(b"4" * 300_000)
try:
    begin_change(environment, Reporter(), ["second"])
except InstallationError as error:
    print(error.message.rpartition(": ")[2])
print(sorted(path.name for path in site.iterdir()) == packages)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="overlayfs is Linux's")
def test_on_overlayfs_all_comes_back_and_a_full_disk_changes_nothing(tmp_path):
    """As in a container whose image holds the environment: a link copies a file of the lower layer up."""
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or not process.run([*namespace, "true"]).ok:
        pytest.skip("no namespaces here")

    done = process.run([*namespace, sys.executable, "-c", ON_OVERLAYFS, str(tmp_path)])

    assert done.out == "No space left on device\nTrue\n", done.err
