"""Tests that files of a folder are read only inside its repository."""

import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from gpuinstall.base.errors import GpuInstallError
from gpuinstall.base.files import read_document
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.lock.file.folder import read_folder_locks
from gpuinstall.lock.request import project
from gpuinstall.lock.request.declaration import read_declaration, read_inputs
from tests.lab.host import NOT_FOUND, Answer, Host

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="requires Unix links and pipes"
)

SECRET = "hunter2-hunter3"
PROJECT = '[project]\nname = "lib"\nversion = "1"\n'
WORKSPACE = f'{PROJECT}[tool.uv.workspace]\nmembers = ["lib"]\n'
MEMBER = f"{PROJECT}[tool.uv.sources]\nlib = {{ workspace = true }}\n{WORKSPACE[len(PROJECT) :]}"


def linked(folder, name, text):
    """Write a file behind a link inside one repository."""
    (folder / ".git").mkdir()
    (folder / "shared").mkdir()
    (folder / "shared" / name).write_text(text, "utf-8")
    (folder / "app").mkdir()
    (folder / "app" / name).symlink_to(f"../shared/{name}")
    return folder / "app"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", f'{PROJECT}dependencies = ["einops"]\n'),
        ("requirements.txt", "einops\n"),
        ("environment.yml", "dependencies: [pip: [einops]]\n"),
    ],
)
def test_link_inside_the_repository_is_read(tmp_path, name, text):
    declared = read_declaration(linked(tmp_path, name, text))

    assert [one.name for one in declared.listed.requirements] == ["einops"]


@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
@pytest.mark.parametrize(
    "name", ["pyproject.toml", "requirements.txt", "environment.yml", "pylock.cpu.toml"]
)
def test_text_behind_a_link_is_not_quoted(tmp_path, name, is_folder):
    folder = linked(tmp_path, name, f"password: [{SECRET}\n")
    if is_folder:
        (tmp_path / "linked").symlink_to("shared")
        folder = tmp_path / "linked"

    def read():
        if name.startswith("pylock"):
            return read_folder_locks(folder).check()
        return read_inputs(str(folder / name))

    with pytest.raises(GpuInstallError) as raised:
        read()

    error = raised.value
    assert "behind a symbolic link" in (error.why or "")
    assert SECRET not in f"{error.message} {error.why} {error.hint}"


def test_removal_is_suggested_only_for_a_link(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "requirements.txt").write_text("torch\n", "utf-8")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "sub").symlink_to("../other")

    with pytest.raises(OSError, match="a link points outside"):
        read_document(Path(folder, "sub", "requirements.txt"), folder)
    (folder / "requirements.txt").write_text("-e ./sub\n", "utf-8")
    with pytest.raises(GpuInstallError) as raised:
        (
            read_declaration(folder / "sub").files,
            read_inputs(str(folder / "sub" / "requirements.txt"), folder),
        )
    assert raised.value.hint is None


@pytest.mark.parametrize(
    ("pattern", "owner"), [("../libs/*", 0), ("../libs/lib", 0), ("../*", 12345)]
)
def test_members_outside_need_the_same_owner(here, pattern, owner):
    if owner and os.getuid():
        pytest.skip("only root can change a file's owner")
    member = here.folder.parent / pattern.removeprefix("../").replace("*", "lib")
    member.mkdir(parents=True)
    (member / "pyproject.toml").write_text(PROJECT, "utf-8")
    if owner:
        os.chown(member, owner, -1)
    table = MEMBER.replace('"lib"', '"app"', 1).replace('["lib"]', f'["{pattern}"]')
    table = table.replace("[tool", 'dependencies = ["lib"]\n[tool', 1)
    here.write("pyproject.toml", table)

    done = here.run("lock", "-q", "--target", "cpu")
    refused = here.having(GPUINSTALL_TRUST_FOLDER="0").run("lock", "--target", "cpu")

    assert done.status == (2 if owner else 0), done.err
    reason = "belongs to another user" if owner else "../libs/lib (from "
    assert reason in done.err
    assert refused.status == 2, refused.err


@pytest.mark.parametrize("name", ["lib-1.tar.gz", "lib-1.zip"])
def test_archive_with_too_many_files_is_rejected(tmp_path, monkeypatch, name):
    monkeypatch.setattr(project, "_MAX_MEMBERS", 3)
    if name.endswith(".zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for number in range(4):
                archive.writestr(f"lib-1/{number}", "")
    else:
        with tarfile.open(tmp_path / name, "w:gz") as files:
            for number in range(4):
                files.addfile(tarfile.TarInfo(f"lib-1/{number}"))
    required = [parse_requirement(f"./{name}")]

    with pytest.raises(GpuInstallError, match=f"{name} has more than 3 files"):
        list(project.find_nested_requirements(required, tmp_path, ()))


def test_constraints_by_url_are_read(here):
    def answer(_path, headers):
        login = headers.get("authorization", "")
        return Answer(body=b"torch<2.15\n") if login else NOT_FOUND

    host = Host("constraints", answer)
    url = host.url.replace("//", f"//me:{SECRET}@") + "/limits.txt"
    done = here.run("plan", "-c", url)
    absent = here.run("plan", "-c", f"{host.url}/limits.txt")
    refused = here.run("lock", "--offline", "-c", f"{host.url}/other.txt")
    locked = here.run("lock", "--target", "cpu", "-c", url)
    host.close()

    assert done.status == 0, done.err
    assert "torch 2.14" in done.out
    assert "limits.txt does not exist" in absent.err
    assert refused.status in {2, 4}, refused.err
    assert locked.status == 0, locked.err
    lock = (here.folder / "pylock.cpu.toml").read_text("utf-8")
    assert "torch<2.15" in lock
    assert SECRET not in lock + done.out + done.err + locked.err


@pytest.mark.parametrize("option", ["-r", "-c"])
@pytest.mark.parametrize("words", ["lock --target cpu", "lock --target cpu -r in.txt"])
def test_included_url_is_reported_or_refused(here, option, words):
    texts = Host("texts", lambda *_: Answer(body=b"filelock<3.20.1\n"))
    name = "in.txt" if "in.txt" in words else "requirements.txt"
    url = f"{texts.url}/x.txt"
    here.write(name, f"torch\n{option} {url}\n")

    refused = here.having(GPUINSTALL_TRUST_FOLDER="0").run(*words.split())
    contacted = [*texts.log]
    done = here.run("-q", *words.split())
    texts.close()

    assert (refused.status, contacted) == (2, []), refused.err
    assert "GPUINSTALL_TRUST_FOLDER=1" in refused.err
    assert done.status == 0, done.err
    assert f"Index       {url} (from " in done.err
    assert "filelock<3.20.1" in (here.folder / "pylock.cpu.toml").read_text("utf-8")
