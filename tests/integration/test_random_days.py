"""Tests of random actions by a user and tools, which must lose no user file.

User files are identified by content. After each command, a file is at its place, or the
command has printed the folder where it is now. A modified package file may be in the
journal if the command has reported it, until the next change.
"""

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import hypothesis
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from gpuinstall.base import process, uv
from tests.lab.cases import mostly_heavy
from tests.lab.driver import NO_GPU
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

SPECIFIERS = st.sampled_from(
    ("alpha==1.0", "alpha==2.0", "beta", "torch==2.13.0", "torch==2.14.1")
)
EDITED = st.sampled_from(["alpha/__init__.py", "alpha/page.html"])
KEPT = re.compile(r"\.venv\.previous|.*gpuinstall/edited-[0-9a-f]{8}")
"""The folders with moved files, which messages print."""
IN_JOURNAL = re.compile(r".*gpuinstall/last/before/(.*)")
"""Replaced files, which messages print relative to the environment."""


class Days(RuleBasedStateMachine):
    """A folder with a managed environment.

    Rules have no preconditions, because a kill is not reproducible.
    """

    make: Callable[[], Workshop]
    """A function that creates a workshop with the environment."""

    def __init__(self):
        super().__init__()
        self.workshop: Workshop = self.make()
        self.numbers = count()
        self.days: list[str] = []
        self.mine: dict[str, str] = {}
        """The contents of user files, by path below the folder."""
        self.places: dict[str, set[str]] = {}
        """The known paths of each user file, by content."""
        self.said = ""
        """The output of gpuinstall since all user files had their paths."""
        self.is_killed = False

    @property
    def folder(self):
        return self.workshop.folder

    @property
    def venv(self):
        return self.folder / ".venv"

    @property
    def site(self):
        return next(self.venv.glob("lib/python*/site-packages"))

    # gpuinstall

    @rule(specifier=SPECIFIERS)
    def install(self, specifier):
        self.ours("install", specifier)

    @rule(name=st.sampled_from(["alpha", "beta"]))
    def remove(self, name):
        self.ours("remove", name)

    @rule()
    def sync(self):
        self.ours("sync")

    @rule()
    def roll_back(self):
        self.ours("env", "rollback")

    @rule(
        specifier=SPECIFIERS,
        seconds=st.floats(0.3, 1.6),
        is_group=st.booleans(),
    )
    def kill(self, specifier, seconds, is_group):
        self.days.append(f"kill install {specifier} after {seconds:.2f}")
        running = self.workshop.start("install", specifier, "--offline")
        time.sleep(seconds)
        if running.poll() is None:
            self.is_killed = True
        if is_group:
            for child in children(running.pid):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        running.kill()
        out, err = running.communicate()
        self.said += out + err

    def ours(self, *words):
        """Run a command of gpuinstall, which may reject some packages."""
        done = self.workshop.run(*words)
        self.days.append(f"{' '.join(words)} -> {done.status}")
        assert done.status in {0, 2, 3, 4, 6}, self.told(done.out + done.err)
        assert "Traceback" not in done.err, self.told(done.err)
        self.said += done.out + done.err
        # A rejection can precede the rollback.
        self.is_killed &= (self.folder / ".venv.gpuinstall" / "changing").exists()

    # Other tools

    @rule(
        words=st.sampled_from(["install beta", "install alpha==2.0", "uninstall alpha"])
    )
    def use_uv(self, words):
        self.theirs([uv.uv(), "pip", *words.split(), "--python", self.venv])

    @rule(words=st.sampled_from(["install alpha==1.0", "uninstall -y beta"]))
    def use_pip(self, words):
        python = self.venv / "bin" / "python"
        self.theirs([python, "-m", "pip", *words.split(), "--quiet"])

    def theirs(self, command):
        """Run another tool, which may delete edited packages."""
        index = self.workshop.environment["UV_DEFAULT_INDEX"]
        variables = {"UV_INDEX_URL": index, "PIP_INDEX_URL": index, "UV_OFFLINE": ""}
        process.run(command, env={**self.workshop.environment, **variables})
        self.days.append(" ".join(map(str, command[-4:])))
        for path in list(self.mine):
            if not self.holds(path):
                del self.mine[path]

    # The user

    @rule(
        place=st.sampled_from(
            [
                "",
                "share/",
                "bin/",
                "{site}/",
                "{site}/alpha/",
                "{site}/alpha/__pycache__/",
            ]
        )
    )
    def write(self, place):
        number = next(self.numbers)
        self.put(f".venv/{place}mine-{number}.txt", number)

    @rule(
        name=st.sampled_from(
            ["alpha/__init__.py", "alpha/page.html", "beta/__init__.py"]
        )
    )
    def edit(self, name):
        path = self.site / name
        if path.is_file():
            path.unlink()
            self.put(f".venv/{{site}}/{name}", next(self.numbers))

    @rule(name=EDITED, goes=st.booleans())
    def edit_and_change(self, name, goes):
        """Edit a package, then remove or replace it."""
        other = self.other_alpha()
        self.edit(name)
        self.ours(*(("remove", "alpha") if goes else ("install", other)))

    def other_alpha(self):
        """Return the version of alpha that is not installed."""
        is_old = any(self.site.glob("alpha-1.0.dist-info"))
        return "alpha==2.0" if is_old else "alpha==1.0"

    def placed(self, name):
        """Return the path of a file; {site} is the folder of packages."""
        return self.folder / name.format(site=self.site.relative_to(self.venv))

    def put(self, name, number):
        path, text = self.placed(name), f"mine {number}\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        name = path.relative_to(self.folder).as_posix()
        self.mine[name] = text
        self.places.setdefault(text, set()).add(name)
        self.days.append(f"write {path}: {number}")

    # Invariants

    def holds(self, path):
        file = self.folder / path
        return file.is_file() and file.read_text() == self.mine[path]

    @invariant()
    def nothing_of_the_users_is_lost(self):
        lost = [path for path in self.mine if not self.holds(path)]
        said = "".join(self.said.split())
        for path in lost:
            text = self.mine[path]
            found = [
                file
                for root in self.folder.glob(".venv*")
                for file in root.rglob(path.rpartition("/")[2])
                if file.is_file() and file.read_text() == text
            ]
            assert found, self.told(f"{path} is gone")
            if self.is_killed:
                continue
            names = [file.relative_to(self.folder).as_posix() for file in found]
            now = [name for name in names if self.is_known(name, text, said)]
            assert now, self.told(f"{path} is in {names}, which was not said: {said}")
            del self.mine[path]
            if not IN_JOURNAL.match(now[0]):
                self.mine[now[0]] = text
        for path, text in self.mine.items():
            self.places.setdefault(text, set()).add(path)
        if not self.is_killed:
            self.said = ""

    def is_known(self, name, text, said):
        """Return whether a file is at an expected or printed path."""
        place = KEPT.match(name)
        if place and place[0] in said:
            return True
        replaced = IN_JOURNAL.match(name)
        reported = re.findall(r"Replaced\d+modifiedfiles?:([^;]*);", said)
        # A report lists the first three files.
        if replaced and any(replaced[1] in one or "…" in one for one in reported):
            return True
        return name in self.places.get(text, ())

    def told(self, text):
        return "\n".join([*self.days, text])


def children(process_id):
    """Return the child processes of a process."""
    with suppress(OSError):
        file = Path(f"/proc/{process_id}/task/{process_id}/children")
        return list(map(int, file.read_text("ascii").split()))
    return []


@pytest.fixture
def make(stand_in, play, tmp_path):
    """Return a function that creates workshops with torch and alpha."""
    play(NO_GPU)
    simple = stand_in.folder / "simple"
    for version in ("1.0", "2.0"):
        files = {"__init__.py": version, "page.html": version, f"only-{version}.py": ""}
        modules = {f"alpha/{name}": text for name, text in files.items()}
        make_wheel(simple, "alpha", version, modules=modules)
    make_wheel(simple, "beta", "1.0", modules={"beta/__init__.py": "beta"})
    numbers = count()

    def another():
        folder = tmp_path / str(next(numbers)) / "project"
        folder.mkdir(parents=True)
        made = Workshop(folder, tmp_path / "caches", stand_in.environment())
        made.document("install", "torch==2.14.1", "alpha==1.0")
        return made

    return another


def live(make, seed=None, **counts):
    """Run random actions from a seed, or new ones."""
    machine = type("Days", (Days,), {"make": staticmethod(make)})
    if seed is not None:
        machine = hypothesis.seed(seed)(machine)
    run_state_machine_as_test(
        machine,
        # Shrinking would take hours.
        settings=settings(**counts, phases=[Phase.generate]),
    )


@pytest.mark.parametrize("day", mostly_heavy(range(4), {2}))
def test_random_commands_keep_or_report_user_files(make, day):
    live(make, day, max_examples=1, stateful_step_count=15)


@pytest.mark.heavy
@pytest.mark.parametrize("_week", range(8))
def test_random_command_sequences_keep_user_files(make, _week):
    live(make, max_examples=5, stateful_step_count=50)
