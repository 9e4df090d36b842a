"""Detection and repair of damaged files that are linked to uv's cache."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from gpuinstall.base.environment_paths import interpreter, packages_folders
from gpuinstall.environments.damage import find_damage, find_intact_files
from gpuinstall.environments.packages import read_packages
from tests.lab.environments import put_package
from tests.lab.skips import needs_links
from tests.lab.wheels import make_wheel
from tests.unit.diagnose.evidence import doctor_evidence
from tests.unit.install.environments import SITE

MODULES: dict[str, str | bytes] = {"tool/__init__.py": "", "tool/core.so": b"code"}


class Projects:
    """Environments that link the same package from one cache."""

    def __init__(self, folder):
        make_wheel(folder, "tool", "1.0", modules=MODULES)
        if os.name != "nt":
            from tests.lab.workshop import copy_used_cache

            copy_used_cache(folder / "cache")
        self.folder = folder
        self.variables = {
            **os.environ,
            "UV_CACHE_DIR": str(folder / "cache"),
            "UV_FIND_LINKS": str(folder),
            "UV_DEFAULT_INDEX": (folder / "no index").as_uri(),
            "UV_LINK_MODE": "hardlink",
        }

    def run(self, *words):
        done = process.run([uv.uv(), *words], env=self.variables)
        assert done.ok, done.err

    def install(self, venv, *words):
        self.run("pip", "install", "--python", interpreter(venv), *words)

    def environment(self, name):
        venv = self.folder / name
        self.run("venv", "--python", sys.executable, venv)
        self.install(venv, "tool")
        return venv


@pytest.fixture
def projects(tmp_path):
    return Projects(tmp_path)


def damage(venv):
    return list(find_damage(read_packages(packages_folders(venv))))


def library(venv):
    [site] = packages_folders(venv)
    return site / "tool" / "core.so"


EDITED = "was modified after its installation: tool/core.so"
CUT = "is damaged: 1 of 5 files is truncated: tool/core.so"
CASES = {b"CODE": EDITED, b"my code": EDITED, b"": CUT, b"co": CUT}


def test_damaged_cache_file_is_repaired_in_all_environments(projects):
    first = projects.environment("first")
    for number, (content, message) in enumerate(CASES.items()):
        assert damage(first) == []
        second = projects.environment(f"second-{number}")
        library(first).write_bytes(content)
        third = projects.environment(f"third-{number}")
        for venv in (first, second, third):
            assert [one.message for one in damage(venv)] == [f"tool 1.0 {message}"]
        (found,) = damage(first)
        for step in doctor_evidence(venv=first).reinstall(
            found.package, is_in_cache=found.is_in_cache
        ):
            projects.run(*step.arguments)
    assert damage(first) == []
    assert library(projects.environment("fourth")).read_bytes() == b"code"


def test_replaced_file_damages_only_its_environment(projects):
    first, second = projects.environment("first"), projects.environment("second")
    file = library(first)
    file.unlink()
    file.write_bytes(b"mine")
    (found,) = damage(first)
    assert (found.kind, found.is_in_cache) == ("modified", False)
    assert damage(second) == []


def test_copied_environment_is_not_reported_as_edited(projects, tmp_path):
    first = projects.environment("first")
    copy = shutil.copytree(
        first, tmp_path / "copy", symlinks=True, copy_function=shutil.copyfile
    )
    assert damage(copy) == []


def test_appended_certificate_authority_is_not_damage(projects):
    make_wheel(projects.folder, "tool", "1.0", modules={"tool/cacert.pem": "list"})
    venv = projects.environment("one")
    [site] = packages_folders(venv)
    authorities = site / "tool" / "cacert.pem"
    authorities.unlink()
    authorities.write_text("list, and the company's", "utf-8")
    assert damage(venv) == []


def test_file_shared_by_packages_is_not_damaged(projects):
    make_wheel(projects.folder, "other", "1.0", modules={"tool/core.so": b"longer"})
    venv = projects.environment("first")
    for words in (["other"], ["--reinstall-package", "tool", "tool"]):
        projects.install(venv, *words)
        assert damage(venv) == []


def test_missing_truncated_and_modified_files_are_listed_apart(tmp_path):
    site = tmp_path / SITE
    up = "../" * len(Path(SITE).parts)
    files = {"tool/a.py": "a", "tool/b.py": "bb", f"{up}bin/tool": "t"}
    put_package(site, "tool", files)
    (site / "tool/a.py").write_text("A")
    (site / "tool/b.py").write_text("b")
    (tmp_path / "bin/tool").unlink()
    assert [one.message for one in find_damage(read_packages([site]))] == [
        f"tool 1.0 is damaged: 1 of 4 files is missing: {up}bin/tool",
        "tool 1.0 was modified after its installation: tool/a.py",
        "tool 1.0 is damaged: 1 of 4 files is truncated: tool/b.py",
    ]


@needs_links
def test_link_to_an_equal_file_is_unmodified(tmp_path):
    site = tmp_path / SITE
    put_package(site, "tool", {"tool/a.py": "a", "tool/b.py": "b"})
    for name, text in (("a", "a"), ("b", "mine")):
        (tmp_path / name).write_text(text)
        (site / f"tool/{name}.py").unlink()
        (site / f"tool/{name}.py").symlink_to(tmp_path / name)
    packages = read_packages([site])
    assert [one.files for one in find_damage(packages)] == [("tool/b.py",)]
    folder = f"{SITE}/tool"
    names = {f"{folder}/a.py", f"{folder}/b.py"}
    assert find_intact_files(packages, tmp_path, names) == {f"{folder}/a.py"}


@pytest.mark.parametrize("row", ["tool/b.py", '"tool/b.py",,,'])
def test_malformed_row_of_record_is_damage(tmp_path, row):
    put_package(tmp_path, "tool", {"tool/a.py": "a"})
    record = next(tmp_path.glob("*.dist-info/RECORD"))
    record.write_text(f"{row}\n{record.read_text()}")
    [package] = read_packages([tmp_path])
    assert "tool/a.py" in {file.path for file in package.read_record()}
    [found] = find_damage([package])
    assert found.message.endswith("dist-info/RECORD has malformed rows")
