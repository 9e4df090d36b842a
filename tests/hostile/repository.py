"""A malicious repository in the home of a user."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from tests.unit.install.environments import lock_text, make_environment

LOCK = "pylock.cpu.toml"


@dataclass(frozen=True)
class Repository:
    """A clone in a home; files outside the clone are victims.

    The file ``executed`` exists if code of the repository ran.
    """

    home: Path

    @property
    def folder(self):
        """Return the clone's folder."""
        return self.home / "src" / "clone"

    @property
    def executed(self):
        """Return the file that the repository's code would write."""
        return self.home / "executed"

    @property
    def venv(self):
        """Return the environment in the clone."""
        return self.folder / ".venv"

    @property
    def work(self):
        """Return the folder in the clone in which changes are prepared."""
        return self.folder / ".venv.gpuinstall"

    @property
    def code(self):
        """Return code that leaves a trace when it runs."""
        return f"open({str(self.executed)!r}, 'w').close()\n"

    def prepare(self):
        """Create the user's files, and another project's environment."""
        self.folder.mkdir(parents=True)
        thesis = self.home / "thesis"
        thesis.mkdir()
        (thesis / "chapter.tex").write_text("years of work", "utf-8")
        for place in (self.home, self.folder.parent):
            (place / "bashrc").write_text("export PATH", "utf-8")
        project = self.home / "project"
        make_environment(project / ".venv", "other", version="2.13.0", lock=LOCK)

    def victims(self):
        """Return every entry outside the clone, with its content or target."""
        found = {}
        for root, folders, files in os.walk(self.home):
            if Path(root) == self.folder.parent:
                folders.remove(self.folder.name)
            if Path(root) == self.home:
                folders[:] = [name for name in folders if name != "caches"]
            for name in (*folders, *files):
                path = Path(root, name)
                found[str(path)] = _content(path)
        return found

    def write(self, path, text):
        """Write a file in the clone."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text, "utf-8")

    def link(self, path, target):
        """Create a link in the clone."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).symlink_to(target)

    def fifo(self, path):
        """Create a named pipe in the clone, which blocks its readers."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(self.folder / path)

    def environment(self, **marker):
        """Add an environment with a modified marker, and a replaced one."""
        make_environment(self.venv, "mine", lock=LOCK)
        replaced = self.work / "last" / "environment"
        make_environment(replaced, "before", version="2.13.0", lock=LOCK)
        for venv in (self.venv, replaced):
            path = venv / "gpuinstall.json"
            path.write_text(
                json.dumps(json.loads(path.read_text("utf-8")) | marker), "utf-8"
            )

    def begun(self, name):
        """Add an environment with an interrupted change."""
        self.environment()
        self.write(f".venv.gpuinstall/{name}/bin/activate", self.code)

    def lock(self, address):
        """Add a lock file in which torch has this URL."""
        text = lock_text().replace(
            'url = "https://index.example/torch-2.14.1-cp312-cp312-linux_x86_64.whl"',
            f"url = {address}\n",
        )
        self.write(LOCK, text)


def _content(path):
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
