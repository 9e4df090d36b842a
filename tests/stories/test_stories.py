"""Stories: transcripts of commands, run with uv against an index on loopback.

Each paragraph of ``*.txt`` is a story. The steps before the first story of a file run
in all of its stories. The ``#`` lines of a story are its title and comments. A story
with the title ``# heavy: ...`` runs only in ``make test-all``. Steps::

    machine 2 × RTX 4090, driver 535.183.01      ``none`` unless set; facts of the driver or of ``GPU 1``
                                                 may follow
    beside RX 7900 XTX                           also a GPU of another vendor, from this step on
    wheel painter 2.0 TAG on cu126: torch>=2     add to the index ``cu126``, or to the default index
                                                 without ``on``; ``sdist`` likewise, with the traits of
                                                 its build below; cpHERE in a tag is the test Python's,
                                                 and ``Python>=HERE.90`` is a Requires-Python
        painter/o.so  sm_80 compute_86 isa 8.2; needs libcudart.so.12; undefined NAME; opens NAME;
                                                 glibc 2.38; large (5 MB)
                                                 a library in this wheel
    project NAME in FOLDER: REQUIREMENTS         a Python project as source
    torch cu132: sm_80 sm_90                     torch 2.16.0, unknown to every catalog, with code for
                                                 these architectures, on the torch index
    extension flash-attn 2.8.3+cu.12.6.torch.2.10 on cu126: torch>=2
        sm_80; undefined NAME                    add to the index of prebuilt extensions, with this library
    withdraw painter-2.0*                        remove from the default index; ``on BACKEND`` from the
                                                 torch index
    yank painter-2.0*                            yank on the default index
    dated 2023-07-14 painter-1.0* …              set upload times, which the index publishes from then on
    habit ranges                                 toggle a behavior of the index (``tests.lab.index.IndexBehavior``)
    stop torch                                   stop this host
    requests torch by uv                         print the paths that this program, or any program, requested
                                                 from this host since the last such step
    kernel NAME on PLACE: MESSAGE                make this kernel of the fake torch fail on a GPU or build
    python X.Y                                   skip unless another CPython X.Y exists; put it on PATH
    file NAME, remove NAME, copy NAME NAME       in the folder; the indented text is the content
    variable NAME=VALUE                          set for all following commands
    show error:|note:                            print only the lines that begin with this pattern
    hide Build|Ready                             hide the lines that begin with this pattern, unless the
                                                 story expects them
    omit filelock|triton                         omit these packages from locks and environments
    later                                        continue with empty caches
    $ gpuinstall lock painter                    a command, or a line for ``sh``; DEFAULT-HOST is the
                                                 default index, CORP-HOST a company's index with the files
                                                 ``on corp``, TMP the parent of the story's folder

The indented lines below a command are its expected output: ``exit N`` unless the
status is 0, the printed lines, and the changes in the folder (each changed lock
file with its packages and request, the packages of environments, and other added
or removed files).

``pytest tests/stories -k TITLE --accept`` rewrites the expected output. Review the
diff before you commit it. CONTRIBUTING.md shows how to add a story.
"""

import difflib
import json
import os
import platform
import re
import shlex
import shutil
import sys
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
import tomli
from filelock import FileLock

from gpuinstall.base import process, uv
from gpuinstall.base.versions import DriverVersion
from gpuinstall.install.unpack import find_bundled_pip
from tests.frozen import frozen_catalog
from tests.lab.clone import ROOT
from tests.lab.driver import (
    A100,
    H100,
    NO_GPU,
    FakeDriver,
    FakeGpu,
    FakeSlice,
    environment,
)
from tests.lab.elsewhere import write_machine_files
from tests.lab.extension_index import ExtensionIndex
from tests.lab.index import SimulatedIndex
from tests.lab.index_text import native, needs, publish, steps_of
from tests.lab.new_torch import make_new_torch
from tests.lab.projects import make_project
from tests.lab.pythons import interpreter
from tests.lab.recorded import PCI, bus, card
from tests.lab.topology import Node, topology
from tests.lab.workshop import Workshop

OWN = re.compile(r"(?:cd (\S+) && )?((?:\w+=[\w-]* )*)gpuinstall ([^|&]*)")
"""A command with its folder and variables, which runs without ``sh``."""
# A Python without a bundled pip, such as Debian's, causes this warning.
WITHOUT_PIP = (
    "warning: pip was not installed into the environment: "
    if find_bundled_pip(Path(sys.executable)) is None
    else "(?!)"
)
MINOR = "{}.{}".format(*sys.version_info)
CP = f"cp{MINOR.replace('.', '')}"
CARDS = {
    "RTX 4090": FakeGpu(),
    "RTX 5090": FakeGpu(
        "NVIDIA GeForce RTX 5090", cc="12.0", memory_mib=32607, pci="10de:2b85"
    ),
    "RTX 3090": FakeGpu(
        "NVIDIA GeForce RTX 3090", cc="8.6", memory_mib=24576, pci="10de:2204"
    ),
    "GTX 1080": FakeGpu(
        "NVIDIA GeForce GTX 1080", cc="6.1", memory_mib=8192, pci="10de:1b80"
    ),
    "A100": A100,
    "H100": H100,
    "GB10": FakeGpu("NVIDIA GB10", cc="12.1", pci="10de:2e12"),
    "T4": FakeGpu("Tesla T4", cc="7.5", memory_mib=15360, pci="10de:1eb8"),
}
OTHERS = {
    "RX 7900 XTX": topology(Node(110000, 0x744C, 24)),
    "Arc B580": card(3, "8086:e20b", "xe")
    | {
        f"{PCI}/{bus(3)}/drm/renderD130/dev": "226:130\n",
        "/dev/dri/renderD130": "open\n",
    },
}


class Story(NamedTuple):
    """One paragraph of a file, and the steps of all stories of this file."""

    file: Path
    common: str
    text: str


def stories():
    for file in sorted(Path(__file__).parent.glob("*.txt")):
        common, *paragraphs = re.split(
            r"\n\n(?=#)", file.read_text("utf-8").strip("\n")
        )
        if common.startswith("#"):
            common, paragraphs = "", [common, *paragraphs]
        for text in paragraphs:
            name = text.partition("\n")[0].lstrip("# ")
            marks = [pytest.mark.heavy] if name.startswith("heavy:") else []
            story = Story(file, common, text)
            yield pytest.param(story, id=f"{file.stem}: {name}", marks=marks)


@pytest.fixture
def stage(stand_in_folder, tmp_path, libraries, monkeypatch):
    folder = tmp_path / "a project"
    folder.mkdir()
    # Messages abbreviate the home folder to a tilde.
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    extensions = ExtensionIndex()
    with SimulatedIndex(stand_in_folder) as index, closing(extensions.host()) as host:
        variables = {
            **index.environment(),
            "GPUINSTALL_EXTENSION_INDEX": f"{host.url}/simple",
        }
        workshop = Workshop(folder, tmp_path / "caches", variables)
        stage = Stage(workshop, index, extensions, libraries, tmp_path)
        stage.play(NO_GPU)
        yield stage


@pytest.mark.parametrize("story", list(stories()))
def test_story_output_matches_expected_output(story, stage, request, tmp_path_factory):
    for line, below in steps_of(story.common):
        stage.step(line, below)
    happened = []
    printed = []
    for line, below in steps_of(story.text):
        came = stage.step(line, below)
        told = without_hidden(came, below, stage.hidden)
        happened += [line, *(f"    {each}".rstrip() for each in told)]
        if line.startswith("$"):
            printed += told

    if not printed:
        message = "this story shows no output; add `show PATTERN` for its own lines"
        pytest.fail(message, pytrace=False)
    if request.config.getoption("--accept"):
        with FileLock(tmp_path_factory.getbasetemp().with_name("accept.lock")):
            accept(story, "\n".join(happened))
        return
    expected = with_here(story.text)
    happened = with_here("\n".join(happened))
    if happened != expected:
        message = difference(expected, happened, request.node.nodeid)
        pytest.fail(message, pytrace=False)


def test_readme_commands_work_in_order(stage):
    stage.do_machine("RTX 4090, driver 580.95.05", ())
    blocks = re.findall(
        r"(?ms)^```sh\n(.*?)^```", (ROOT / "README.md").read_text("utf-8")
    )
    for line in "".join(blocks[:2]).splitlines():
        program, *words = shlex.split(line, comments=True)
        if program == "python3":
            words = words[1:] or ["install"]
        elif program != "gpuinstall":
            continue
        done = stage.workshop.run(*words)
        assert done.status == 0, f"{line}: {done.out}{done.err}"


def with_here(text):
    """Return a text with this Python's version replaced by HERE."""
    text = text.replace(CP, "cpHERE")
    here = rf"([Pp]ython) ?([<>=]*){MINOR}(\.\d+)?(?!\d)"
    return re.sub(here, r"\1 \2HERE", text)


def accept(story, happened):
    """Replace one story in its file, and nothing else."""
    before, found, after = story.file.read_bytes().decode().partition(story.text)
    assert found, f"{story.file.name} has changed since this run began; run it again"
    story.file.write_bytes(f"{before}{happened}{after}".encode())


def difference(expected, happened, node):
    """Return a unified diff, and the commands to run or accept this story."""
    diff = difflib.unified_diff(
        expected.splitlines(), happened.splitlines(), "expected", "actual", lineterm=""
    )
    alone = f"{sys.executable} -m pytest {shlex.quote(node)}"
    return "\n".join(
        [*diff, "", f"Run it alone:    {alone}", f"If it is right:  {alone} --accept"]
    )


def without_hidden(came, expected, hidden):
    """Return the lines that a story expects or that ``hide`` does not name."""
    known = {*map(with_here, expected)}
    return [
        line
        for line in came
        if line in known or not re.match(rf"({hidden})\b|{WITHOUT_PIP}", line)
    ]


@dataclass
class Stage:
    """The folder, machine, and index of a running story."""

    workshop: Workshop
    index: SimulatedIndex
    extensions: ExtensionIndex
    libraries: Path
    tmp_path: Path
    shown: str = ""
    """Patterns that ``show`` names; only such lines are printed."""
    hidden: str = "(?!)"
    omitted: str = "(?!)"
    seen: dict[str, str] = field(default_factory=dict)
    """The state of the folder after the last step."""

    def step(self, line, below):
        """Run a step of a story, and return its output lines."""
        word, _, rest = line.partition(" ")
        if word == "$":
            return self.command(rest)
        if word == "requests":
            return self.requests(*rest.split(" by "))
        if word in {"wheel", "sdist"}:
            publish(
                self.index.folder,
                line.replace("cpHERE", CP).replace("HERE", MINOR),
                below,
            )
        elif line and word != "#":
            perform = getattr(self, f"do_{word}", None)
            if perform is None:
                message = f"unknown step {word!r}; the docstring of {__file__} lists all steps"
                pytest.fail(message, pytrace=False)
            perform(rest, below)
        self.seen = self.holds()
        return below

    def do_machine(self, words, _below):
        self.play(read_driver(words))

    def do_beside(self, name, _below):
        # The name of Level Zero's loader is enough.
        loader = self.tmp_path / "level-zero" / "libze_loader.so.1"
        loader.parent.mkdir(exist_ok=True)
        loader.touch()
        path = self.workshop.variables["LD_LIBRARY_PATH"]
        self.set("LD_LIBRARY_PATH", f"{loader.parent}{os.pathsep}{path}")
        for variable, folder in write_machine_files(
            self.tmp_path / "machine", OTHERS[name]
        ).items():
            self.set(variable, folder)

    def do_kernel(self, words, _below):
        words, _, message = words.partition(": ")
        name, _, place = words.partition(" on ")
        file = self.tmp_path / "verdict.json"
        file.write_text(json.dumps({place: {"failed": {name: message}}}), "utf-8")
        self.set("LAB_VERDICT", str(file))

    def do_python(self, version, _below):
        if version == ".".join(map(str, sys.version_info[:2])):
            pytest.skip(f"Python {version} runs the tests: needs another")
        python = interpreter(version)
        folder = self.tmp_path / "pythons"
        folder.mkdir(exist_ok=True)
        (folder / f"python{version}").symlink_to(python)
        path = self.workshop.environment["PATH"]
        self.set("PATH", f"{path}{os.pathsep}{folder}")

    def do_show(self, pattern, _below):
        self.shown = pattern

    def do_hide(self, pattern, _below):
        self.hidden = pattern

    def do_omit(self, pattern, _below):
        self.omitted = pattern

    def do_variable(self, words, _below):
        self.set(*self.with_places(words).split("=", 1))

    def do_later(self, _words, _below):
        caches = self.workshop.caches
        self.workshop = replace(
            self.workshop, caches=caches.with_name(f"{caches.name}, later")
        )

    def do_project(self, words, _below):
        words, _, requires = words.partition(":")
        name, *folder = words.split(" in ")
        requires = self.with_places(requires)
        make_project(self.workshop.folder.joinpath(*folder), name, needs(requires))

    def do_torch(self, words, _below):
        backend, _, architectures = words.partition(":")
        code = architectures.replace("sm_", "").strip()
        make_new_torch(self.index.folder, backend, code, python=CP.removeprefix("cp"))

    def do_extension(self, words, below):
        words, _, requires = words.partition(": ")
        words, _, channel = words.partition(" on ")
        package, version = words.split()
        version, _, local = version.partition("+")
        library = self.tmp_path / f"{package}-{version}-{local}.so"
        library.write_bytes(native(library, below[0]))
        self.extensions.add(
            channel,
            package,
            local,
            library,
            version=version,
            requires=requires or None,
            tag="py3-none-manylinux_2_28_x86_64",
        )

    def do_withdraw(self, words, _below):
        pattern, _, backend = words.partition(" on ")
        folder = f"whl/{backend}" if backend else "simple"
        for path in (self.index.folder / folder).glob(pattern):
            path.unlink()

    def do_yank(self, pattern, _below):
        yanked = (*self.index.habits.yanked, pattern)
        self.index.habits = replace(self.index.habits, yanked=yanked)

    def do_dated(self, words, _below):
        date, *patterns = words.split()
        seconds = datetime.fromisoformat(f"{date}T12:00+00:00").timestamp()
        for pattern in patterns:
            for path in filter(Path.is_file, self.index.folder.rglob(pattern)):
                # Another story may have a hard link to the file.
                content = path.read_bytes()
                path.unlink()
                path.write_bytes(content)
                os.utime(path, (seconds, seconds))
        self.index.habits = replace(self.index.habits, dates=True)

    def do_habit(self, name, _below):
        habits = self.index.habits
        other: dict[str, Any] = {name: not getattr(habits, name)}
        self.index.habits = replace(habits, **other)

    def do_stop(self, name, _below):
        next(host for host in self.index.hosts if host.name == name).close()

    def requests(self, name, agent=""):
        """Return and clear the paths that a program requested from a host."""
        (host,) = (host for host in self.index.hosts if host.name == name)
        found = {
            request.path
            for request in host.log
            if request.headers["user-agent"].startswith(agent)
        }
        host.log.clear()
        return sorted(found)

    def do_file(self, name, below):
        file = self.workshop.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{line}\n" for line in below)
        file.write_text(self.with_places(text), "utf-8")

    def do_remove(self, name, _below):
        (self.workshop.folder / name).unlink()

    def do_copy(self, words, _below):
        source, target = (self.workshop.folder / name for name in words.split())
        shutil.copy2(source, target)

    def set(self, name, value):
        variables = {**self.workshop.variables, name: value}
        self.workshop = replace(self.workshop, variables=variables)

    def play(self, driver):
        played = environment(driver, self.libraries, self.tmp_path)
        for name in ("LAB_GPUS", "LD_LIBRARY_PATH"):
            self.set(name, played[name])

    def run(self, line):
        """Run a command line in the folder, without looking at the result."""
        own = OWN.fullmatch(line)
        if own:
            folder, variables, command = own.groups(default="")
            workshop = self.workshop.having(
                **dict(one.split("=") for one in variables.split())
            )
            workshop = replace(workshop, folder=workshop.folder / folder)
            words, _, file = self.with_places(command).partition(" > ")
            done = workshop.run(*shlex.split(words))
            if file:
                (self.workshop.folder / file).write_text(done.out, "utf-8")
                done = done._replace(out="")
            return done
        environment = self.workshop.environment
        # uv creates an environment with the first Python outside environments.
        folders = (Path(sys.executable).parent, Path(sys.base_prefix, "bin"))
        path = os.pathsep.join(map(str, folders))
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
        return process.run(
            ["sh", "-c", line], env=environment, cwd=self.workshop.folder
        )

    def command(self, line):
        done = self.run(line)
        before, self.seen = self.seen, self.holds()
        told = in_short(self.seen)
        lines = [f"exit {done.status}"] if done.status else []
        lines += [line for line in self.printed(done) if re.match(self.shown, line)]
        for name, content in self.seen.items():
            if content != before.get(name):
                lines.append(f"left {name}{told[name] and ': '}{told[name]}")
        lines += [f"gone {name}" for name in before if name not in self.seen]
        return lines

    def with_places(self, words):
        for name, place in (
            ("DEFAULT-HOST", self.index.default.url),
            ("CORP-HOST", self.index.corp.url),
            ("TMP", str(self.tmp_path)),
        ):
            words = words.replace(name, place)
        return words

    def printed(self, done):
        """Return stderr and stdout without values that differ between runs."""
        text = (done.err + done.out).replace(
            quote(str(self.workshop.folder)), str(self.workshop.folder)
        )
        for path, name in (
            (f"{self.workshop.folder}/", ""),
            (self.workshop.folder, "."),
            (self.workshop.caches, "CACHES"),
            (uv.uv(), "uv"),
            (self.tmp_path, "TMP"),
            (self.index.torch_index, "TORCH-INDEX"),
            (self.index.default_index, "DEFAULT-INDEX"),
        ):
            text = text.replace(str(path), name)
        text = re.sub(r"127\.0\.0\.1:\d+(/[\w-]{22}(?=/))?", "HOST", text)
        # uv downloads in parallel, in any order.
        text = re.sub(r"(Downloading \S+ )+", "", text)
        text = re.sub(r"[0-9a-f]{32,}", "HASH", text)
        # The number of variables depends on the developer's shell.
        text = re.sub(r", without \d+ environment variables?\b", "", text)
        text = text.replace(f"{datetime.now(timezone.utc).date()}", "TODAY")
        text = re.sub(r"(?<=/train-|commit )[0-9a-f]{12}", "HASH", text)
        # Replace values of this machine and of the test Python.
        text = text.replace(platform.release(), "KERNEL")
        text = re.sub(r"(?<=[)U]) · \w+ \d+(\.\d+)?$", "", text, flags=re.MULTILINE)
        text = re.sub(r"\bpip \d+(\.\d+)+", "pip", text)
        text = with_here(text)
        text = re.sub(r"\b\d+(\.\d)? ([kM]?B|bytes?)\b", "N B", text)
        lines = (
            re.sub(r" +\d+(\.\d+)? (s|min)$|\s+$", "", line)
            for line in text.splitlines()
        )
        return [
            re.sub(r" {3,}", "  ", line).replace("  ", " ", 1) for line in lines if line
        ]

    def holds(self):
        """Return locks and environments as text, and other files by name."""
        told = {}
        for path in sorted(self.workshop.folder.iterdir()):
            if (path / "pyvenv.cfg").exists():
                told[path.name] = packages_in(path, self.omitted)
            elif path.name.startswith("pylock."):
                told[path.name] = lock_in_words(path, self.omitted)
            elif path.name not in {".venv.gpuinstall", "__pycache__"}:
                told[path.name] = ""
        return told


def in_short(holds):
    """Describe an environment by the lock that has the same packages."""
    locks = {
        text.partition(" of ")[0]: name
        for name, text in holds.items()
        if " of " in text
    }
    return {
        name: f"as {locks[text]}" if text in locks else text
        for name, text in holds.items()
    }


def lock_in_words(path, omitted):
    try:
        lock = tomli.loads(path.read_text("utf-8"))
    except ValueError:
        return "damaged"
    packages = (
        (package["name"], package.get("version", "")) for package in lock["packages"]
    )
    inputs = ", ".join(lock.get("tool", {}).get("gpuinstall", {}).get("inputs", ()))
    inputs = re.sub(r"127\.0\.0\.1:\d+", "HOST", inputs)
    inputs = inputs.replace(str(path.parents[1]), "TMP")
    return f"{in_words(packages, omitted)} of {inputs}"


def packages_in(venv, omitted):
    names = (
        path.name.removesuffix(".dist-info")
        for path in venv.glob("lib/*/*/*.dist-info")
    )
    packages = (name.replace("_", "-").rsplit("-", 1) for name in names)
    return in_words(packages, omitted)


def in_words(packages, omitted):
    named = sorted(f"{name} {version}".strip() for name, version in packages)
    return ", ".join(each for each in named if not re.match(omitted, each)) or "nothing"


def read_driver(words):
    """Read GPUs, a driver, and fields of ``FakeGpu`` and ``FakeDriver``."""
    cards, *rest = words.split(", ")
    if not rest:
        return NO_GPU
    gpus = []
    for model in () if cards == "none" else cards.split(" + "):
        count, _, name = model.rpartition(" × ")
        gpus += [CARDS[name]] * int(count or 1)
    version = rest[0].removeprefix("driver ")
    branch = frozen_catalog().drivers.branch(DriverVersion.parse(version))
    assert branch
    _, cuda = branch
    driver = FakeDriver(driver=version, cuda=cuda.major * 1000 + cuda.minor * 10)
    for fact in rest[1:]:
        if fact.startswith("GPU "):
            _, number, own = fact.split(" ", 2)
            gpus[int(number)] = with_fact(gpus[int(number)], own)
        else:
            driver = with_fact(driver, fact)
    return replace(driver, gpus=tuple(gpus))


def with_fact(value, words):
    name, _, text = words.partition(" ")
    if name == "slice":
        return replace(value, slices=(*value.slices, FakeSlice(text)))
    number = int(text) if text else True
    if hasattr(value, name):
        return replace(value, **{name: number})
    return replace(value, more=(*value.more, (name, number)))
