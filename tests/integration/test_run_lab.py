"""``gpuinstall run``: a command in the environment, after the check that it still fits this machine."""

import os

import pytest

from tests.lab.driver import NO_GPU, RTX_4090, RTX_5090

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


def test_without_an_environment_nothing_is_run_and_the_way_to_one_is_said(workshop, play):
    play(RTX_4090)
    done = workshop.run("run", "sh", "-c", "echo it ran")
    assert (done.status, done.out) == (2, "")
    assert f"error: there is no environment at {workshop.folder / '.venv'}" in done.err
    assert "do    gpuinstall install" in done.err
    theirs = workshop.folder / "theirs" / "bin"
    theirs.mkdir(parents=True)
    (theirs / "python").symlink_to("/bin/sh")
    assert workshop.run("run", "--venv", "theirs", "sh", "-c", "echo it ran").status == 2


@pytest.mark.heavy
def test_an_environment_that_no_gpu_has_tried_says_so_where_there_are_some(workshop, play):
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
