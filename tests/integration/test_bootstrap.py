"""Tests of bootstrap.py with real Pythons, pip, and uv."""

import json
import os
import random
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.clone import Person, copy_project
from tests.lab.index import SimulatedIndex
from tests.lab.pace import within
from tests.lab.processes import succeed
from tests.lab.pythons import interpreter
from tests.lab.releases import LINUX, catalog_index
from tests.lab.uv_mirror import uv_mirror, uv_program

BUNDLE = (sys.executable, "-m", "tools.bundle")
CLOSED = "http://127.0.0.1:9"
UNREACHABLE = {
    "PIP_INDEX_URL": f"{CLOSED}/simple",
    "PIP_NO_INDEX": "",
    "PIP_FIND_LINKS": "",
    "GPUINSTALL_UV_MIRROR": CLOSED,
}


@pytest.fixture(scope="module")
def one_file(tmp_path_factory, wheelhouse):
    tree = wheelhouse.supply(copy_project(tmp_path_factory.mktemp("dist") / "clone"))
    succeed(BUNDLE, cwd=tree)
    return tree / "dist" / "bootstrap.py"


def bootstrap(person, clone, *words, version="3.12", **settings):
    """Run the bootstrap.py of a clone with a Python interpreter."""
    python = interpreter(version)
    return person.run(python, clone / "bootstrap.py", *words, **settings)


@pytest.mark.network
@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13"])
def test_bootstrap_from_clone_works_with_each_python(version, tmp_path):
    (tmp_path / "a home").mkdir()
    person, clone = Person(tmp_path / "a home"), copy_project(tmp_path / "a clone")
    done = bootstrap(person, clone, "--help", version=version, cwd=clone)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: gpuinstall [OPTIONS")
    assert "pinned wheel, by pip" in done.stderr
    [tool] = person.tools
    if version not in {"3.8", "3.9"}:
        assert f"version_info = {version}." in (tool / "pyvenv.cfg").read_text()


@pytest.mark.heavy
def test_second_bootstrap_does_not_reinstall(equipped, clone):
    [before] = equipped.tools

    with within(3):
        done = bootstrap(equipped, clone, "--help", settings=UNREACHABLE)

    assert done.returncode == 0, done.stderr
    assert "uv" not in done.stderr.replace(str(equipped.data), "")
    assert equipped.tools == [before]


@pytest.mark.heavy
def test_bootstrap_reinstalls_after_source_change(equipped, clone, tmp_path):
    person = equipped.copied(tmp_path / "home")
    version = clone / "src" / "gpuinstall" / "__init__.py"
    for change in range(3):
        version.write_text(version.read_text() + f"\nCHANGE = {change}\n")
        assert bootstrap(person, clone, "--help").returncode == 0

    newest = max(person.tools, key=lambda tool: tool.stat().st_mtime)
    said = person.run(
        newest / "bin" / "python", "-c", "import gpuinstall; print(gpuinstall.CHANGE)"
    )
    assert said.stdout == "2\n"
    assert len(person.tools) == 3
    assert (
        person.data / "bin" / "gpuinstall"
    ).resolve() == newest / "bin" / "gpuinstall"


@pytest.mark.heavy
def test_bootstrap_script_runs_from_stdin(person, one_file, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    done = person.run(
        interpreter("3.9"),
        "-",
        "--help",
        cwd=empty,
        stdin=one_file.read_text(),
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: gpuinstall [OPTION")
    assert list(empty.iterdir()) == []


def test_unbundled_bootstrap_script_suggests_make_bootstrap(person, clone):
    done = person.run(
        interpreter("3.12"), "-", stdin=(clone / "bootstrap.py").read_text()
    )

    assert done.returncode == 2
    assert "make bootstrap   # in a clone" in done.stderr
    assert list(person.home.iterdir()) == []


OF_A_CUT_LINE = ("Syntax", "Indentation", "Name", "Attribute", "ModuleNotFound")
"""Errors that a truncated line of Python code can cause."""


@pytest.mark.parametrize("cuts", [6, pytest.param(100, marks=pytest.mark.heavy)])
def test_truncated_bootstrap_script_does_nothing(person, one_file, cuts):
    whole = one_file.read_text()
    code = whole.index('"""\n', whole.index('PAYLOAD = """') + 20)
    chance = random.Random(2)
    places = [chance.randrange(len(whole) - 1) for _ in range(cuts)]
    places += [chance.randrange(code, len(whole) - 1) for _ in range(cuts)]

    def run(place):
        done = person.run(
            sys.executable, "-", stdin=whole[:place], settings=UNREACHABLE
        )
        return done.stdout, done.stderr.strip().rpartition("\n")[2].partition(":")[0]

    with ThreadPoolExecutor(4) as pool:
        seen = set(pool.map(run, places))
    assert seen <= {
        ("", ""),
        *(("", f"{kind}Error") for kind in OF_A_CUT_LINE),
    }
    assert ("", "SyntaxError") in seen
    assert list(person.home.iterdir()) == []


def test_bootstrap_without_network_lists_installation_alternatives(person, clone):
    with within(15):
        done = bootstrap(person, clone, settings=UNREACHABLE)

    assert done.returncode == 4
    for said in (
        "by pip: Failed to establish",
        "release archive: ",
        "HTTPS_PROXY",
        "SSL_CERT_FILE",
        "UV_MIRROR=",
    ):
        assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list(person.data.iterdir()) == []


def test_unusable_data_folder_exits_with_4(person, clone, tmp_path):
    (tmp_path / "file").touch()
    done = bootstrap(
        person,
        clone,
        settings={"XDG_DATA_HOME": str(tmp_path / "file" / "data")},
    )

    assert done.returncode == 4
    assert done.stderr.startswith("error: ")
    assert "XDG_DATA_HOME=" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["json", "zlib"])
def test_missing_standard_module_is_reported(module, person, clone, tmp_path):
    settings = {"PYTHONPATH": str(no_module(tmp_path, module))}
    done = bootstrap(person, clone, settings=settings)

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: this Python has no module {module}, ")
    assert "Traceback" not in done.stderr


def no_module(folder, name):
    """Create a folder in which a standard module is missing."""
    (folder / "without").mkdir(exist_ok=True)
    said = f"raise ModuleNotFoundError('No module named {name}', name={name!r})\n"
    (folder / "without" / f"{name}.py").write_text(said)
    return folder / "without"


@pytest.mark.heavy
def test_changed_uv_archive_is_rejected(person, clone):
    program = bytearray(uv_program().read_bytes())
    program[-1] ^= 1
    with uv_mirror(bytes(program)) as address:
        network = {**UNREACHABLE, "GPUINSTALL_UV_MIRROR": address}
        done = bootstrap(person, clone, settings=network)

    assert done.returncode == 4
    assert "is not the pinned uv" in done.stderr
    assert list(person.data.iterdir()) == []


@pytest.mark.heavy
def test_concurrent_bootstraps_succeed(person, clone):
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(bootstrap, person, clone, "--help") for _ in range(2)]
        both = [one.result() for one in running]

    assert [done.returncode for done in both] == [0, 0], [done.stderr for done in both]
    assert len(person.tools) == 1
    assert not list(person.data.glob(".new-*"))


def started_until(pattern, person, clone):
    """Start bootstrap.py, and wait until a file exists."""
    run = subprocess.Popen(
        [interpreter("3.12"), clone / "bootstrap.py", "--help"],
        env=person.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list(person.data.glob(pattern)):
        time.sleep(0.005)
    return run


@pytest.mark.heavy
def test_next_bootstrap_removes_files_of_killed_run(person, clone):
    run = started_until(".new-*/tool", person, clone)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    assert list(person.data.glob(".new-*"))

    assert bootstrap(person, clone, "--help").returncode == 0
    assert not list(person.data.glob(".new-*"))


@pytest.mark.heavy
def test_interrupted_bootstrap_leaves_no_files(person, clone):
    run = started_until(".new-*/lockfiles", person, clone)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)

    assert (run.returncode, said.splitlines()) == (
        130,
        ["error: interrupted", "Nothing was installed."],
    )
    assert list(person.data.iterdir()) == []


@pytest.mark.parametrize("version", ["3.7", "3.6"])
def test_old_python_is_rejected(version, person, clone):
    done = bootstrap(person, clone, version=version)

    assert done.returncode == 2
    assert done.stderr.startswith(
        f"error: bootstrap.py requires Python 3.8 or newer; this is {version}."
    )
    assert list(person.home.iterdir()) == []


def test_bootstrap_bundle_is_reproducible(one_file):
    before = one_file.read_bytes()
    succeed(BUNDLE, cwd=one_file.parent.parent)

    assert one_file.read_bytes() == before
    assert one_file.stat().st_mode & stat.S_IXUSR


@pytest.mark.heavy
def test_command_name_is_not_installed_as_a_package(equipped, clone):
    run = partial(bootstrap, equipped, clone, settings=UNREACHABLE)
    probe = run("probe", "--json")
    misplaced = run("torch", "doctor")

    assert json.loads(probe.stdout)["command"] == "probe"
    assert misplaced.returncode == 2
    [line] = re.findall("(.+)   # the command$", misplaced.stderr, re.MULTILINE)
    is_program = os.access(shlex.split(line)[-3], os.X_OK)
    assert is_program, "it is run as it is pasted"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = catalog_index(
        tmp_path_factory.mktemp("index"), ["2.14.1", "2.15.0"], platforms=[LINUX]
    )
    with SimulatedIndex(folder) as served:
        yield served


@pytest.mark.parametrize("version", mostly_heavy(["3.8", "3.12"], ["3.8"]))
def test_bootstrap_creates_environment_and_lock(
    version, equipped, clone, tmp_path, index
):
    person = equipped.copied(tmp_path / "home")
    assert bootstrap(person, clone, "--help", version=version).returncode == 0
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        succeed([*git, *command])

    network = index.environment()
    done = bootstrap(person, clone, version=version, cwd=clone, settings=network)

    assert done.returncode == 0, done.stderr
    assert "Ready" in done.stdout
    assert (clone / "pylock.cpu.toml").exists()
    python = clone / ".venv" / "bin" / "python"
    assert person.run(python, "-c", "import torch").returncode == 0
    assert succeed([*git, "status", "--porcelain"]).out == ""


def uninstall(person, *words):
    program = person.data / "bin" / "gpuinstall"
    return person.run(program, "self", "uninstall", *words, cwd=person.data.parent)


def test_uninstall_asks_and_keeps_environments(equipped, tmp_path):
    person = equipped.copied(tmp_path / "home")
    (person.home / "project" / ".venv").mkdir(parents=True)
    (person.home / ".cache/gpuinstall/pages/a").mkdir(parents=True)
    asked = uninstall(person)

    assert asked.returncode == 2
    assert "nothing was removed" in asked.stderr
    assert "gpuinstall self uninstall --yes" in asked.stderr
    assert (person.data / "bin" / "gpuinstall").exists()
    done = uninstall(person, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Removed     gpuinstall, ~/.cache/gpuinstall\n"
    assert not list(person.home.glob(".*/gpuinstall/pages"))
    assert not list(person.home.glob(".local/*/gpuinstall/*"))
    assert (person.home / "project" / ".venv").exists()


def test_uninstall_removes_only_bootstrap_files(equipped, tmp_path):
    person = equipped.copied(tmp_path / "home")
    notes = [
        person.data / name / "mine"
        for name in ("2026-notes", "uv-notes", "uv-0.1.2", "bin", ".new-idea")
    ]
    for file in notes:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine", "utf-8")
    done = uninstall(person, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert {path for path in person.data.rglob("*") if path.is_file()} == set(notes)
