"""What a stranger's settings choose is named before it is asked, in whatever file and spelling, or refused."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from gpuinstall.base import process
from tests.lab.cases import mostly_heavy
from tests.lab.host import NOT_FOUND, Answer, Host

TORCH = "2.14.1"
FILES = {
    "uv.toml": ("uv.toml", "{key} = {value}\n"),
    "uv.toml above": ("../uv.toml", "{key} = {value}\n"),
    "[pip] of uv.toml": ("uv.toml", "[pip]\n{key} = {value}\n"),
    "[tool.uv]": ("pyproject.toml", "[tool.uv]\n{key} = {value}\n"),
    "[tool.uv.pip]": ("pyproject.toml", "[tool.uv.pip]\n{key} = {value}\n"),
}
KEYS = ("find-links", "index-url")
SPELLINGS = {
    "with a slash": "{0}/",
    "with another case": "HTTP://LOCALHOST{1}/",
    "with a login": "http://me:secret@127.0.0.1{1}/",
    "of a folder with a slash": "file://{2}/",
    "of a folder with dots": "file://{2}/../evil//",
}


@dataclass(frozen=True)
class Evil:
    """A host with the only torch of a release beside the usual packages, and a folder with the same files."""

    host: Host
    folder: Path

    @classmethod
    def beside(cls, index):
        """Take torch from an index and put it on a host of the stranger's."""
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

    def choose(self, here, file, key, spelling):
        """Write the setting into a project, and return its file."""
        port = self.host.url.rpartition(":")[2]
        address = SPELLINGS[spelling].format(
            f"{self.host.url}/whl", f":{port}/whl", self.folder
        )
        name, form = FILES[file]
        path = here.folder / name
        value = f'["{address}"]' if key == "find-links" else f'"{address}"'
        path.write_text(form.format(key=key, value=value), "utf-8")
        return path


REFUSED = {"with another case", "of a folder with dots"}
"""Spellings that uv and we may read otherwise; then nothing is installed."""


@pytest.fixture
def evil(stand_in):
    evil = Evil.beside(stand_in)
    yield evil
    evil.host.close()


@pytest.mark.parametrize(
    "spelling", mostly_heavy(SPELLINGS, {"with a login", "of a folder with dots"})
)
def test_the_source_of_torch_is_named_with_its_file_also_when_nothing_else_is_said(
    here, evil, spelling
):
    file = evil.choose(here, "[tool.uv]", "find-links", spelling)
    done = here.run("lock", "-q", "--target", "cpu", f"torch=={TORCH}")
    said = done.err.splitlines()
    assert any(
        line.startswith("Index ") and f"{file} says: a source of torch" in line
        for line in said
    ), done.err
    assert "secret" not in done.err
    if done.status == 0 or spelling not in REFUSED:
        assert any(
            line.startswith("Torch ") and f"as find-links in {file} says" in line
            for line in said
        ), done.err


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("file", "key", "spelling"), list(product(FILES, KEYS, SPELLINGS))
)
def test_a_source_of_a_stranger_is_named_in_any_file_and_not_asked_without_trust(
    here, evil, file, key, spelling
):
    # The index of the test stands for the user's own, which would come before.
    own = {"UV_DEFAULT_INDEX": ""} if key == "index-url" else {}
    fresh = here.having(**own)
    path = evil.choose(fresh, file, key, spelling)
    words = ("lock", "--upgrade", "-q", "--target", "cpu", f"torch=={TORCH}")

    done = fresh.run(*words)
    evil.host.log.clear()
    wary = fresh.having(GPUINSTALL_TRUST_FOLDER="0")
    refused = wary.run(*words)

    assert any(f"as {name} says" in done.err for name in (path, path.resolve())), (
        done.err
    )
    assert "secret" not in done.err
    assert (refused.status, evil.host.log) == (2, [])


@pytest.mark.heavy
def test_a_lock_that_matches_the_settings_is_no_word_of_the_persons(here, evil):
    file = evil.choose(here, "uv.toml", "find-links", "with a slash")
    assert here.run("lock", "-q", "--target", "cpu", f"torch=={TORCH}").status == 0
    synced = here.run("sync", "-q", "--target", "cpu")
    assert synced.status == 0, synced.err
    assert f"as find-links in {file} says" in synced.err
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


def test_a_package_by_the_address_of_a_stranger_is_named_or_refused(here, stand_in):
    wheel = next((stand_in.folder / "simple").glob("filelock-*.whl")).name
    address = f"{stand_in.default.url}/files/{wheel}"
    project = (
        '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch", "filelock"]\n'
    )
    sources = f'[tool.uv.sources]\nfilelock = {{ url = "{address}" }}\n'
    (here.folder / "pyproject.toml").write_text(project + sources, "utf-8")
    done = here.run("lock", "-q", "--target", "cpu")
    assert done.status == 0, done.err
    assert (
        f"{address}, as {here.folder / 'pyproject.toml'} says: the source of filelock"
        in done.err
    )
    wary = here.having(GPUINSTALL_TRUST_FOLDER="0")
    assert wary.refusal("lock", exit_code=2)["code"] == "folder-not-trusted"


def test_the_code_of_a_folder_that_is_not_trusted_is_not_built(here, tmp_path):
    (here.folder / "mine").mkdir()
    backend = f"open({str(tmp_path / 'executed')!r}, 'w').close()\n"
    (here.folder / "mine" / "backend.py").write_text(backend, "utf-8")
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (here.folder / "mine" / "pyproject.toml").write_text(build, "utf-8")
    (here.folder / "requirements.txt").write_text("torch\n-e ./mine\n", "utf-8")
    wary = here.having(GPUINSTALL_TRUST_FOLDER="0")
    for words in (("lock", "--target", "cpu"), ("install",), ("plan", "--live")):
        refused = wary.refusal(*words, exit_code=2)
        assert refused["code"] == "folder-not-trusted", words
    assert not (tmp_path / "executed").exists()


@pytest.mark.heavy
def test_a_file_outside_the_folder_is_named_or_refused_and_no_secret_is_shown(
    here, tmp_path
):
    requirements = here.folder / "requirements.txt"
    (tmp_path / "base.txt").write_text("filelock\n", "utf-8")
    requirements.write_text("-r ../base.txt\n", "utf-8")
    wary = here.having(GPUINSTALL_TRUST_FOLDER="0")
    process.run([sys.executable, "-m", "venv", "--without-pip", here.folder / "other"])
    commands = (
        ("plan",),
        ("lock", "--target", "cpu"),
        ("install",),
        ("install", "--into", "--venv", "other"),
    )
    for words in commands:
        if "install" not in words:
            named = here.run(*words, "-q").err
            assert (
                f"{tmp_path / 'base.txt'}, as {requirements} says: requirements"
                in named
            ), words
        assert wary.refusal(*words, exit_code=2)["code"] == "folder-not-trusted", words
    secretive = here.having(TOKEN="hunter2 hunter3")
    (tmp_path / "secrets").write_text("hunter2 hunter3\n", "utf-8")
    for line in ("-r /proc/self/environ", "-r ../secrets"):
        requirements.write_text(f"{line}\n", "utf-8")
        for words in commands:
            done = secretive.run(*words)
            assert done.status == 2, words
            logs = [
                path.read_text("utf-8")
                for path in here.caches.rglob("*.log")
                if path.is_file()
            ]
            assert not any("hunter" in text for text in (done.out, done.err, *logs)), (
                words
            )


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("lock --target cpu", "export uv"),
        ("probe", "doctor"),
    ],
)
def test_every_command_that_asks_sources_names_those_of_a_stranger(
    here, evil, before, words
):
    (here.folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\n', "utf-8"
    )
    here.run(*before.split())
    file = evil.choose(here, "uv.toml", "find-links", "with a slash")
    assert f"as {file} says: a source of torch" in here.run(*words.split(), "-q").err
