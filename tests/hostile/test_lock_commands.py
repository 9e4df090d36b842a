"""Tests that every command that reads a lock rejects malicious locks."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest
import tomli
import tomli_w

from gpuinstall.cli.commands import COMMANDS
from tests.hostile.test_builds import add_project
from tests.lab.cases import mostly_heavy

LOCK = "pylock.cpu.toml"
READERS = {
    "sync --target cpu": 6,
    "sync --target cpu --dry-run": 6,
    "run --any --install true": 8,
    "lock check": 6,
    "lock download wheels": 6,
    "export requirements": 6,
    "export conda": 6,
    "export constraints": 6,
    "export dockerfile": 6,
    "export uv": 6,
    # These resolve again, or install nothing.
    "install --backend cpu": 0,
    "install --backend cpu --dry-run": 0,
    "lock --target cpu": 0,
    "lock --target cpu --dry-run": 0,
    "plan --backend cpu": 0,
    "export needs": 0,
    "remove filelock": 2,
    "doctor": 0,
}
"""The commands that read the folder's lock file, with exit statuses."""
RESOLVING = {"install --backend cpu", "lock --target cpu"}
OTHERS = {"env", "explain", "hook", "probe", "report", "self", "verify"}
"""The commands that do not read the folder's lock files."""
HASHES = {"sha256": "f" * 64}
ENTRIES: dict[str, dict[str, Any]] = {
    "folder outside": {"directory": {"path": "../outside"}},
    "folder by a link": {"directory": {"path": ".", "subdirectory": "link"}},
    "folder inside": {"directory": {"path": "inside"}},
    "repository": {"vcs": {"type": "git", "url": "HOST/x.git", "commit-id": "a" * 40}},
    "repository at a branch": {
        "vcs": {"type": "git", "url": "HOST/x.git", "commit-id": "main"}
    },
    "archive": {"archive": {"url": "HOST/x.zip", "hashes": HASHES}},
    "archive outside": {"archive": {"path": "../x.zip", "hashes": HASHES}},
    "sdist": {"sdist": {"url": "HOST/x-1.0.tar.gz", "hashes": HASHES}},
    "wheel outside": {
        "wheels": [{"path": "../x-1.0-py3-none-any.whl", "hashes": HASHES}]
    },
    "wheel with a login": {
        "wheels": [
            {"url": "https://u:p@h.example/x-1.0-py3-none-any.whl", "hashes": HASHES}
        ]
    },
}


def test_hostile_lock_test_covers_every_command():
    listed = {words.partition(" ")[0] for words in READERS}
    assert listed | OTHERS == {*COMMANDS}


@pytest.mark.parametrize("name", mostly_heavy(ENTRIES, {"folder outside"}))
def test_commands_reject_malicious_locks(here, stranger, tmp_path, name):
    executed = tmp_path / "executed"
    here.write("requirements.txt", "torch\n")
    assert here.run("lock", "--target", "cpu").ok
    lock = here.folder / LOCK
    document = tomli.loads(lock.read_text("utf-8").replace("HOST", stranger.url))
    entry = tomli.loads(tomli_w.dumps(ENTRIES[name]).replace("HOST", stranger.url))
    document["packages"].append({"name": "x", "version": "1.0", **entry})
    lock.write_text(tomli_w.dumps(document), "utf-8")
    add_project(here.folder, "inside", executed)
    add_project(here.folder.parent, "outside", executed)
    (here.folder / "link").symlink_to("../outside")
    for number, (words, status) in enumerate(READERS.items()):
        folder = here.folder.with_name(f"copy{number}")
        shutil.copytree(here.folder, folder, symlinks=True)
        copy = replace(here.having(GPUINSTALL_TRUST_FOLDER="0"), folder=folder)

        done = copy.run(*words.split())

        # A malformed lock ends every command.
        assert done.status in {status, 6}, (words, done.out + done.err)
        assert not executed.exists(), words
        assert stranger.log == [], words
        if done.ok and words in RESOLVING:
            assert 'name = "x"' not in copy.lock(LOCK)


@pytest.mark.heavy
def test_user_requirement_allows_path_outside_project(here, tmp_path):
    add_project(here.folder.parent, "lib", tmp_path / "executed")
    assert here.run("lock", "torch", "../lib", "--target", "cpu").ok

    refused = here.run("sync", "--target", "cpu")
    here.write("requirements.txt", "torch\n../lib\n")
    done = here.run("sync", "--target", "cpu")

    assert refused.status == 6
    assert "use sync --wheels" in refused.err
    assert done.ok, done.err
