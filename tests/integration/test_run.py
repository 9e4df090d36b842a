"""``gpuinstall run``: a command in the environment, after the check that it still fits this machine."""

import os
import sys
from pathlib import Path

import pytest

from tests.lab.driver import NO_GPU, RTX_4090, RTX_5090
from tests.lab.environments import put_package

UNTRIED = "warning: this environment is not proven on a GPU yet; run gpuinstall sync"


def test_a_command_runs_as_in_the_activated_environment_but_not_on_a_card_that_it_is_not_for(
    workshop, play
):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    code = "import os, sys, torch; print(torch.__version__, os.environ['VIRTUAL_ENV'], sys.argv[1:]); sys.exit(7)"
    done = workshop.run("run", "python", "-c", code, "--venv", "-h")

    assert (done.status, done.err) == (7, "")
    assert done.out == f"2.13.0+cu126 {workshop.folder / '.venv'} ['--venv', '-h']\n"
    (workshop.folder / "-c.py").write_text("print('a script')", "utf-8")
    assert workshop.run("run", "--", "-c.py").out == "a script\n", (
        "its name is no option of Python's"
    )
    missing = workshop.run("run", "no-such-program")
    assert missing.status == 2
    assert (
        "error: no-such-program cannot be run: no such program in the environment or on PATH"
        in missing.err
    )
    assert "gpuinstall install NAME" in missing.err
    play(RTX_5090)
    refused = workshop.run("run", "sh", "-c", "echo it ran")
    assert (refused.status, refused.out) == (6, "")
    assert "does not fit this machine" in refused.err
    assert "sm_120" in refused.err
    assert "do    gpuinstall sync" in refused.err


def test_without_an_environment_nothing_is_run_and_the_way_to_one_is_said(
    workshop, play
):
    play(RTX_4090)
    done = workshop.run("run", "sh", "-c", "echo it ran")
    assert (done.status, done.out) == (2, "")
    assert f"error: there is no environment at {workshop.folder / '.venv'}" in done.err
    assert "do    gpuinstall install" in done.err
    theirs = workshop.folder / "theirs" / "bin"
    theirs.mkdir(parents=True)
    (theirs / "python").symlink_to("/bin/sh")
    assert (
        workshop.run("run", "--venv", "theirs", "sh", "-c", "echo it ran").status == 2
    )


@pytest.mark.heavy
def test_an_environment_that_no_gpu_has_tried_says_so_where_there_are_some(
    workshop, play
):
    play(NO_GPU)
    workshop.document("install", "torch==2.13.0", "--backend", "cu126")
    on_cpu = "warning: torch 2.13.0+cu126 runs on the CPU: no GPU can be used here, none was found"
    for _ in range(2):
        done = workshop.run("run", "true")
        assert (done.status, done.err.splitlines()) == (0, [on_cpu])
    refused = workshop.run("run", "--require-gpu", "sh", "-c", "echo it ran")
    assert (refused.status, refused.out) == (8, "")
    assert "error: no GPU can be used here: none was found" in refused.err
    play(RTX_4090)
    assert workshop.run("run", "true").err.splitlines() == [UNTRIED]
    workshop.document("sync")
    assert workshop.run("run", "--require-gpu", "true").err == ""
    assert workshop.run("run", "true").err == ""


@pytest.mark.heavy
def test_torch_that_an_installer_left_half_done_starts_nothing(workshop, play):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    [site] = (workshop.folder / ".venv").glob("lib/*/site-packages")
    assert workshop.run("run", "true").status == 0

    (site / "torch" / "__init__.py").write_text("")
    os.utime(next(site.glob("torch-*.dist-info/RECORD")))

    refused = workshop.run("run", "true")
    assert (refused.status, "torch 2.13.0+cu126 is damaged" in refused.err) == (6, True)


PYTHON = ".".join(map(str, sys.version_info[:2]))
METADATA = f'# /// script\n# requires-python = "=={PYTHON}.*"\n# dependencies = [\n#   "torch<2.14",\n# ]\n# ///\n'
CODE = "import sys, torch\nprint(torch.__version__, sys.argv[1:], sys.prefix)\n"


@pytest.fixture
def scripts(workshop, play):
    play(RTX_4090)
    (workshop.folder / "train.py").write_text(METADATA + CODE)
    return workshop


def test_a_script_runs_in_an_environment_of_its_own_which_is_there_the_second_time(
    scripts, stand_in, play
):
    first = scripts.run("run", "train.py", "--epochs", "3")
    torch, arguments, prefix = (
        first.out.rstrip("\n").split(" ", 1)[0],
        first.out,
        Path(first.out.split()[-1]),
    )
    assert (first.status, torch) == (0, "2.13.0+cu126"), first.err
    assert "['--epochs', '3']" in arguments
    assert prefix.is_relative_to(scripts.caches / "xdg" / "gpuinstall" / "scripts")
    assert scripts.entries() == {"train.py"}, "nothing comes into the folder"

    stand_in.forget()
    second = scripts.run("run", "train.py")
    assert (second.status, second.err, second.out.split()[0]) == (0, "", torch)
    assert stand_in.log == [], "and no server is asked"

    listed = scripts.document("env", "list")["data"]["environments"]
    assert [row["path"] for row in listed] == [str(prefix)]
    play(RTX_5090)
    assert "+cu130" in scripts.run("run", "train.py").out, (
        "another card: another build, and a proof"
    )
    scripts.document("env", "remove", "--venv", str(prefix), "--yes")
    assert scripts.document("env", "list")["data"]["environments"] == []


@pytest.mark.heavy
def test_the_locks_beside_a_script_say_what_it_runs_with(scripts):
    locked = scripts.document(
        "lock", "--script", "train.py", "--target", "cu126", "--target", "cpu"
    )["data"]["locks"]
    assert {Path(lock["path"]).parent.name for lock in locked} == {"train.py.locks"}
    assert {lock["torch"] for lock in locked} == {"2.13.0+cu126", "2.13.0+cpu"}
    lock = scripts.folder / "train.py.locks" / "pylock.cu126.toml"
    before = lock.read_bytes()
    done = scripts.run("run", "train.py")
    assert done.status == 0, done.err
    assert lock.read_bytes() == before
    assert (Path(done.out.split()[-1]).parent / lock.name).read_bytes() == before


@pytest.mark.heavy
def test_what_is_the_users_in_a_script_s_environment_stays_until_told(scripts, play):
    venv = Path(scripts.run("run", "train.py").out.split()[-1])
    [site] = venv.glob("lib/*/site-packages")
    play(RTX_5090)  # which the environment is not for
    put_package(site, "cowsay", {"cowsay/__init__.py": ""}, version="6.1")
    refused = scripts.run("run", "train.py", "--epochs", "3")
    assert refused.status == 2
    assert f"mv {venv} {venv}.other   # then run it again" in refused.err
    removing = ("env", "remove", "--venv", str(venv), "--yes")
    assert scripts.run(*removing).status == 0
    assert scripts.run("run", "train.py").out.split()[0] == "2.13.0+cu130"

    (venv / "gpuinstall.json").unlink()
    refused = scripts.run("run", "train.py")
    assert f"mv {venv} {venv}.other   # then run it again" in refused.err


@pytest.mark.heavy
def test_any_script_and_command_runs_in_the_environment_of_the_folder(scripts):
    (scripts.folder / "-c.py").write_text(CODE)
    scripts.document("install", "torch==2.13.0")
    own = scripts.folder / ".venv"
    for words in (("--", "-c.py"), ("./-c.py",)):
        done = scripts.run("run", *words, "--epochs", "3")
        assert done.out == f"2.13.0+cu126 ['--epochs', '3'] {own}\n", done.err
