import json
import shutil
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError, LockError, UsageError
from gpuinstall.base.shell import quote_word
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import read_marker, stamp_records
from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.records import record_environment
from gpuinstall.environments.rights import check_rights
from gpuinstall.install.file_change import find_recorded_files
from gpuinstall.install.state import (
    InstallOptions,
    check_folder,
    check_previous,
    inspect_environment,
    package_change,
)
from gpuinstall.lock.file.lock import parse
from tests.lab.environments import put_package
from tests.unit.install.environments import (
    MARKER,
    lock_text,
    make_environment,
    write_files,
)


@pytest.fixture
def paths(tmp_path):
    return EnvironmentPaths.at(tmp_path / ".venv")


SITE = "lib/python3.12/site-packages"


def test_missing_empty_and_managed_environments_can_be_replaced(
    paths,
):
    inspect_environment(paths).check_ownership()
    paths.venv.mkdir()
    inspect_environment(paths).check_ownership()
    make_environment(paths.venv, "ours")
    inspect_environment(paths).check_ownership()


def test_packages_changed_by_other_tools_are_reported(paths):
    site = make_environment(paths.venv, "ours") / SITE
    write_files(site / "cowsay-6.1.dist-info", "METADATA")
    existing = inspect_environment(paths)
    existing.check_ownership()
    assert (existing.added, existing.changed_packages) == ({"cowsay"}, {})
    (site / "torch-2.14.1.dist-info").rename(site / "torch-2.13.0.dist-info")
    existing = inspect_environment(paths)
    moved = "torch is 2.13.0 instead of 2.14.1"
    assert (existing.changed_packages, existing.find_changed_build()) == (
        {"torch": moved},
        moved,
    )


def test_project_at_wrong_path_is_reported_as_changed(paths, tmp_path):
    project = 'name = "lb"\ndirectory = { path = "my lib", editable = true }'
    lock = parse("pylock.cu126.toml", f"{lock_text()}[[packages]]\n{project}\n")
    make_environment(paths.venv, "ours")
    (paths.venv / lock.name).write_text(lock.text)
    replace(MARKER, lock_sha256=lock.sha256).write(paths.venv)
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
    assert inspect_environment(paths).changed_projects == {"lb"}
    write_files(record, "METADATA")
    changed = []
    for text in (right, *wrong):
        (record / "direct_url.json").write_text(text)
        if inspect_environment(paths).changed_projects == {"lb"}:
            changed.append(text)
    assert changed == wrong


def stray_file(site):
    write_files(site / "alpha-0.9.dist-info", ".DS_Store")


def no_record(site):
    (site / "alpha-1.0.dist-info/RECORD").unlink()


def egg_info(site):
    shutil.rmtree(site / "alpha-1.0.dist-info")
    write_files(site / "alpha-1.0-py3.12.egg-info", "PKG-INFO", "SOURCES.txt")


def two_versions(site):
    put_package(site, "alpha", {"alpha/old.py": ""}, version="0.9")


def missing_file(site):
    (site / "alpha/__init__.py").unlink()


def shorter_file(site):
    (site / "alpha/__init__.py").write_text("al")


def edited_file(site):
    (site / "alpha/__init__.py").write_text("ALPHA")


def linked_folder(site):
    elsewhere = (site / "alpha").rename(site.parents[3] / "elsewhere")
    (elsewhere / "__init__.py").unlink()
    (site / "alpha").symlink_to(elsewhere)


def another_build(site):
    put_package(site, "alpha", {"alpha/__init__.py": "ALPHA"}, version="1.0")


def copied_record(site):
    rows = site / "alpha-1.0.dist-info/RECORD"
    rows.write_text(rows.replace(rows.with_name("old")).read_text())


FAULTS: dict[str, tuple[Any, set[str]]] = {
    "nothing": (lambda _site: None, set()),
    "a stray file": (stray_file, set()),
    "no RECORD": (no_record, {"alpha"}),
    "an egg-info": (egg_info, {"alpha"}),
    "two versions": (two_versions, {"alpha"}),
    "a missing file": (missing_file, set()),
    "a link instead of its folder": (linked_folder, set()),
    "a shorter file": (shorter_file, set()),
    "an edited file": (edited_file, set()),
    "another tool's build of the version": (another_build, {"alpha"}),
    "a copied RECORD": (copied_record, set()),
}


@pytest.mark.parametrize("name", FAULTS)
def test_only_a_package_without_its_record_is_reinstalled(paths, name):
    fault, reinstalled = FAULTS[name]
    make_environment(paths.venv, "ours")
    site = paths.venv / SITE
    put_package(site, "alpha", {"alpha/__init__.py": "alpha"}, version="1.0")
    wheel = 'url = "https://index.example/alpha-1.0-py3-none-any.whl"'
    hashes = f'hashes = {{ sha256 = "{"2" * 64}" }}'
    entry = f'[[packages]]\nname = "alpha"\nversion = "1.0"\n[[packages.wheels]]\n{wheel}\n{hashes}\n'
    lock = parse("pylock.cu126.toml", f"{lock_text()}{entry}")
    (paths.venv / lock.name).write_text(lock.text)
    versions = {"torch": "2.14.1", "alpha": "1.0"}
    records = stamp_records(read_packages([site]), {})
    marker = replace(MARKER, lock_sha256=lock.sha256, packages=versions)
    replace(marker, records=records).write(paths.venv)
    fault(site)
    existing = inspect_environment(paths)
    assert set(existing.faults) == reinstalled
    fit: Any = SimpleNamespace(lock=lock, choice=SimpleNamespace(python="3.12"))
    change = package_change(existing, fit, InstallOptions())
    assert set(change.comes) == reinstalled
    assert not change.is_rebuild
    again = InstallOptions(reinstalled=("Alpha",))
    assert package_change(existing, fit, again).comes == {"alpha"}


def test_package_without_record_has_its_metadata_files(tmp_path):
    put_package(tmp_path / SITE, "alpha", {"alpha.py": ""})
    info = f"{SITE}/alpha-1.0.dist-info"
    (tmp_path / info / "RECORD").unlink()
    (tmp_path / info / "notes.md").touch()

    files = find_recorded_files(read_packages([tmp_path / SITE]), tmp_path)

    assert files == {f"{info}/METADATA"}


@pytest.mark.parametrize("name", ["pyvenv.cfg", "bin/python"])
def test_broken_environment_is_rebuilt(paths, name):
    make_environment(paths.venv, "ours")
    (paths.venv / name).unlink()
    existing = inspect_environment(paths)
    lock = parse("pylock.cu126.toml", lock_text())
    fit: Any = SimpleNamespace(lock=lock, choice=SimpleNamespace(python="3.12"))
    assert package_change(existing, fit, InstallOptions()).is_rebuild


def test_all_packages_are_reinstalled_without_an_intact_lock(paths):
    make_environment(paths.venv, "ours")
    put_package(
        paths.venv / SITE, "torch", {"torch/__init__.py": "torch"}, version="2.14.1"
    )
    (paths.venv / "pylock.cu126.toml").write_text("changed")
    lock = parse("pylock.cu126.toml", lock_text())
    fit: Any = SimpleNamespace(lock=lock, choice=SimpleNamespace(python="3.12"))
    change = package_change(inspect_environment(paths), fit, InstallOptions())
    assert (change.comes, change.is_rebuild) == (lock.names, False)


def test_script_replacing_python_is_rejected(paths):
    make_environment(paths.venv, "ours")
    record_environment(paths.venv, "ours", is_created=True)
    python = paths.venv / "bin" / "python"
    python.chmod(0o755)
    check_rights(paths)
    python.write_text("#!/bin/sh\necho mine\n")
    with pytest.raises(InstallationError) as refused:
        check_rights(paths)
    assert refused.value.message == f"{python} is a script, not a Python interpreter"
    aside = quote_word(f"{python}.old")
    assert (refused.value.hint or "").startswith(f"mv {quote_word(python)} {aside}")


def test_previous_environment_requires_discard_previous(paths):
    make_environment(paths.venv, "ours")
    check_previous(paths, discards=False)
    make_environment(paths.previous, "ours")
    check_previous(paths, discards=True)
    with pytest.raises(UsageError) as refused:
        check_previous(paths, discards=False)
    assert refused.value.hint == "Run it again with --discard-previous"
    assert str(paths.previous) in refused.value.message


@pytest.mark.parametrize("discards", [True, False])
def test_user_directory_at_previous_path_is_rejected(paths, discards):
    make_environment(paths.venv, "ours")
    write_files(paths.previous, "thesis.tex")
    with pytest.raises(UsageError) as refused:
        check_previous(paths, discards=discards)
    assert refused.value.code == "path-taken"


def test_pip_is_missing_only_if_it_was_installed(paths):
    make_environment(paths.venv, "ours")
    assert not inspect_environment(paths).lacks_pip
    marker = read_marker(paths.venv)
    assert marker
    replace(marker, has_pip=True).write(paths.venv)
    assert inspect_environment(paths).lacks_pip
    put_package(paths.venv / SITE, "pip", {}, version="26.3")
    assert not inspect_environment(paths).lacks_pip


def test_project_is_rebuilt_if_torch_changes(paths, tmp_path):
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
    existing = replace(inspect_environment(paths), lock=lock)
    fit: Any = SimpleNamespace(lock=lock, choice=SimpleNamespace(python="3.12"))
    assert package_change(existing, fit, InstallOptions()).comes == set()
    fit.lock = new
    assert package_change(existing, fit, InstallOptions()).comes == {"torch", "lb"}


def test_changed_or_missing_environment_lock_is_rejected(
    paths,
):
    make_environment(paths.venv, "ours")
    inspect_environment(paths).check_unchanged()
    lock = paths.venv / "pylock.cu126.toml"
    for spoil in (lambda: lock.write_text(lock_text("2.13.0")), lock.unlink):
        spoil()
        with pytest.raises(LockError, match="is missing or differs from the installed"):
            inspect_environment(paths).check_unchanged()


def test_unmanaged_folder_is_rejected_with_the_users_files(paths):
    paths.venv.mkdir()
    whys = []
    for name in ("thesis.txt", "pyvenv.cfg", ".git"):
        (paths.venv / name).touch()
        with pytest.raises(UsageError) as caught:
            inspect_environment(paths).check_ownership()
        assert caught.value.code == "not-ours"
        whys.append(caught.value.why)
    own = "it contains files that no installer wrote: "
    assert whys == [f"{own}thesis.txt", f"{own}thesis.txt", f"{own}.git, thesis.txt"]


def test_file_at_the_environments_path_is_rejected(paths):
    paths.venv.touch()
    with pytest.raises(UsageError, match="is a file") as refused:
        check_folder(paths.venv)
    # The hint repeats the typed command.
    assert str(refused.value.hint).startswith("Run it again with --venv ")


@pytest.mark.parametrize("folder", [".", "below/it"])
def test_environment_containing_working_directory_is_not_replaced(
    paths, folder, monkeypatch
):
    inside = paths.venv / folder
    inside.mkdir(parents=True)
    paths.check_working_folder(None, "replaced")
    refusal = "while you are inside it"
    with pytest.raises(UsageError, match=refusal) as typed:
        paths.check_working_folder(inside, "replaced")
    assert typed.value.hint == f"cd {quote_word(paths.folder)}   # then run it again"
    monkeypatch.chdir(inside)
    with pytest.raises(UsageError, match=refusal):
        paths.check_working_folder(None, "replaced")
