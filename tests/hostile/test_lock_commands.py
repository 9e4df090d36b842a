"""Tests that every command that reads a lock rejects malicious locks."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
import tomli
import tomli_w

from gpuinstall.cli.commands import COMMANDS
from tests.hostile.test_gate import CASES, fill_entry
from tests.lab.cases import mostly_heavy

LOCK = "pylock.cpu.toml"
BUILD = '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
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
NAMES = (
    "folder outside the repository",
    "folder inside the repository",
    "subdirectory of a folder by a link",
    "repository",
    "repository at a branch",
    "archive",
    "sdist of an index",
    "sdist by a path outside",
    "wheel by a path outside",
)
ENTRIES = {name: CASES[name]["entry"] for name in NAMES}
ENTRIES["wheel with a login"] = (
    'wheels = [{{ url = "https://u:p@h.example/x-1.0-py3-none-any.whl", {hash} }}]'
)


def test_hostile_lock_test_covers_every_command():
    listed = {words.partition(" ")[0] for words in READERS}
    assert listed | OTHERS == {*COMMANDS}


@pytest.mark.parametrize(
    "name", mostly_heavy(ENTRIES, {"folder outside the repository"})
)
def test_commands_reject_malicious_locks(here, stranger, tmp_path, name):
    executed = tmp_path / "executed"
    here.write("requirements.txt", "torch\n")
    assert here.run("lock", "--target", "cpu").ok
    lock = here.folder / LOCK
    entry = re.sub(r"https://(evil|index)\.example", stranger.url, ENTRIES[name])
    document = tomli.loads(lock.read_text("utf-8"))
    # The workshop has no repository above its folder.
    text = fill_entry(entry).replace("../lib", "lib").replace("../../", "../")
    package = tomli.loads(text)
    document["packages"].append({"name": "x", "version": "1.0", **package})
    lock.write_text(tomli_w.dumps(document), "utf-8")
    for place in ("lib", "../x"):
        here.write(f"{place}/pyproject.toml", BUILD)
        here.write(f"{place}/own.py", f"open({str(executed)!r}, 'w').close()\n")
    (here.folder / "link").symlink_to("../x")
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
