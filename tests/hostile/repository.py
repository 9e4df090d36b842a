"""A repository as a stranger would craft it, in the home of somebody who has things to lose."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from tests.unit.install.environments import lock_text, make_environment

LOCK = "pylock.cpu.toml"


@dataclass(frozen=True)
class Repository:
    """A clone in a home; everything in the home beside the clone is the victim, ``executed`` shows that code ran."""

    home: Path

    @property
    def folder(self):
        """The clone."""
        return self.home / "src" / "clone"

    @property
    def executed(self):
        """A file that the stranger's code would write."""
        return self.home / "executed"

    @property
    def venv(self):
        """The environment that the clone brings along."""
        return self.folder / ".venv"

    @property
    def work(self):
        """The folder of transactions that the clone brings along."""
        return self.folder / ".venv.gpuinstall"

    @property
    def code(self):
        """Python that shows that it ran."""
        return f"open({str(self.executed)!r}, 'w').close()\n"

    def prepare(self):
        """Fill the home: a folder of the person's, and an environment of ours that belongs to another project."""
        self.folder.mkdir(parents=True)
        thesis = self.home / "thesis"
        thesis.mkdir()
        (thesis / "chapter.tex").write_text("years of work", "utf-8")
        for place in (self.home, self.folder.parent):
            (place / "bashrc").write_text("export PATH", "utf-8")
        project = self.home / "project"
        make_environment(project / ".venv", "other", version="2.13.0", lock=LOCK)

    def victims(self):
        """What is to stay as it is: every entry outside the clone, with its content or where it leads."""
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
        """Write a file into the clone."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text, "utf-8")

    def link(self, path, target):
        """Put a link into the clone."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).symlink_to(target)

    def fifo(self, path):
        """Put a pipe into the clone, on which a reader waits for ever."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(self.folder / path)

    def environment(self, **marker):
        """Bring an environment along that has our marker, altered as ``marker`` says, and a replaced one."""
        make_environment(self.venv, "mine", lock=LOCK)
        replaced = self.work / "last" / "environment"
        make_environment(replaced, "before", version="2.13.0", lock=LOCK)
        for venv in (self.venv, replaced):
            path = venv / "gpuinstall.json"
            path.write_text(
                json.dumps(json.loads(path.read_text("utf-8")) | marker), "utf-8"
            )

    def begun(self, name):
        """Bring an environment along, and the folder of a change that somebody is said to have begun."""
        self.environment()
        self.write(f".venv.gpuinstall/{name}/bin/activate", self.code)

    def lock(self, address):
        """Bring a lock along whose torch comes from ``address``."""
        text = lock_text().replace(
            'url = "https://index.example/torch-2.14.1-cp312-cp312-linux_x86_64.whl"',
            f"url = {address}\n",
        )
        self.write(LOCK, text)


def _content(path):
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
