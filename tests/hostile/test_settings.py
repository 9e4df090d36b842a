"""Tests that package sources in project settings are reported before use."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.host import NOT_FOUND, Answer, Host

TORCH = "2.14.1"
TABLES = {"uv.toml": "", "pyproject.toml": "[tool.uv]\n"}
"""The table of uv's settings in each file."""
SPELLINGS = {
    "with a slash": "{0}/",
    "with another case": "HTTP://LOCALHOST{1}/",
    "with a login": "http://me:secret@127.0.0.1{1}/",
    "of a folder with a slash": "file://{2}/",
    "of a folder with dots": "file://{2}/../evil//",
}


@dataclass(frozen=True)
class Evil:
    """A host and a folder that have the only torch of a release."""

    host: Host
    folder: Path

    @classmethod
    def beside(cls, index):
        """Move the wheels of torch from an index to another host."""
        folder = index.folder.parent / "evil"
        folder.mkdir()
        for wheel in (index.folder / "whl" / "cpu").glob(f"torch-{TORCH}*"):
            shutil.move(wheel, folder)

        def respond(path, headers):
            place = folder / path.rpartition("/")[2]
            if place.is_file():
                return Answer(body=place.read_bytes())
            if path.strip("/").partition("/")[2]:
                return index.default.respond(path.replace("/whl/", "/simple/"), headers)
            links = "".join(
                f'<a href="/{each.name}">{each.name}</a>' for each in folder.iterdir()
            )
            return (
                Answer(body=links.encode(), content_type="text/html")
                if path.startswith("/whl")
                else NOT_FOUND
            )

        return cls(Host("evil", respond), folder)

    def choose(self, here, name, spelling="with a slash"):
        """Write a setting in a project file, and return the file."""
        port = self.host.url.rpartition(":")[2]
        address = SPELLINGS[spelling].format(
            f"{self.host.url}/whl", f":{port}/whl", self.folder
        )
        path = here.folder / name
        path.write_text(f'{TABLES[name]}find-links = ["{address}"]\n', "utf-8")
        return path


REFUSED = {"with another case", "of a folder with dots"}
"""Spellings that uv and gpuinstall may read differently."""


@pytest.fixture
def evil(stand_in):
    evil = Evil.beside(stand_in)
    yield evil
    evil.host.close()


@pytest.mark.parametrize(
    "spelling", mostly_heavy(SPELLINGS, {"with a login", "of a folder with dots"})
)
def test_torch_source_is_reported_despite_quiet_option(here, evil, spelling):
    file = evil.choose(here, "pyproject.toml", spelling)
    done = here.run("lock", "-q", "--target", "cpu", f"torch=={TORCH}")
    said = done.err.splitlines()
    assert any(
        line.startswith("Index ") and f"(from {file}): a source of torch" in line
        for line in said
    ), done.err
    assert "secret" not in done.err
    assert done.status == 0 or spelling in REFUSED


@pytest.mark.heavy
def test_sync_reports_project_sources_after_lock(here, evil):
    file = evil.choose(here, "uv.toml")
    assert here.run("lock", "-q", "--target", "cpu", f"torch=={TORCH}").status == 0
    synced = here.run("sync", "-q", "--target", "cpu")
    assert synced.status == 0, synced.err
    assert f"(from {file}): a source of torch" in synced.err
    wary = here.having(GPUINSTALL_TRUST_FOLDER="0")
    evil.host.log.clear()
    for words in (
        ("sync", "--venv", "other"),
        ("install",),
        ("lock", "--upgrade"),
    ):
        assert wary.refusal(*words, exit_code=2)["code"] == "folder-not-trusted", words
    file.unlink()
    assert wary.refusal("sync", "--venv", "other", exit_code=6)["code"] == "lock-source"
    assert evil.host.log == []


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("lock --target cpu", "lock check"),
        ("probe", "doctor"),
    ],
)
def test_every_command_reports_project_sources(here, evil, before, words):
    here.write("pyproject.toml", '[project]\nname = "x"\nversion = "1"\n')
    here.run(*before.split())
    file = evil.choose(here, "uv.toml")
    assert f"(from {file}): a source of torch" in here.run(*words.split(), "-q").err
