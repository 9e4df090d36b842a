"""A script with inline metadata: ``run`` makes or finds the proven environment of exactly what it requires."""

import sys
from pathlib import Path

import pytest

from tests.lab.driver import RTX_4090, RTX_5090
from tests.lab.environments import put_package

PYTHON = ".".join(map(str, sys.version_info[:2]))
METADATA = f'# /// script\n# requires-python = "=={PYTHON}.*"\n# dependencies = [\n#   "torch<2.14",\n# ]\n# ///\n'
CODE = "import sys, torch\nprint(torch.__version__, sys.argv[1:], sys.prefix)\n"


@pytest.fixture
def workshop(workshop, play):
    play(RTX_4090)
    (workshop.folder / "train.py").write_text(METADATA + CODE)
    return workshop


def test_a_script_runs_in_an_environment_of_its_own_which_is_there_the_second_time(
    workshop, stand_in, play
):
    first = workshop.run("run", "train.py", "--epochs", "3")
    torch, arguments, prefix = (
        first.out.rstrip("\n").split(" ", 1)[0],
        first.out,
        Path(first.out.split()[-1]),
    )
    assert (first.status, torch) == (0, "2.13.0+cu126"), first.err
    assert "['--epochs', '3']" in arguments
    assert prefix.is_relative_to(workshop.caches / "xdg" / "gpuinstall" / "scripts")
    assert workshop.entries() == {"train.py"}, "nothing comes into the folder"

    stand_in.forget()
    second = workshop.run("run", "train.py")
    assert (second.status, second.err, second.out.split()[0]) == (0, "", torch)
    assert stand_in.log == [], "and no server is asked"

    listed = workshop.document("env", "list")["data"]["environments"]
    assert [row["path"] for row in listed] == [str(prefix)]
    play(RTX_5090)
    assert "+cu130" in workshop.run("run", "train.py").out, (
        "another card: another build, and a proof"
    )
    workshop.document("env", "remove", "--venv", str(prefix), "--yes")
    assert workshop.document("env", "list")["data"]["environments"] == []


@pytest.mark.heavy
def test_the_locks_beside_a_script_say_what_it_runs_with(workshop):
    locked = workshop.document(
        "lock", "--script", "train.py", "--target", "cu126", "--target", "cpu"
    )["data"]["locks"]
    assert {Path(lock["path"]).parent.name for lock in locked} == {"train.py.locks"}
    assert {lock["torch"] for lock in locked} == {"2.13.0+cu126", "2.13.0+cpu"}
    lock = workshop.folder / "train.py.locks" / "pylock.cu126.toml"
    before = lock.read_bytes()
    done = workshop.run("run", "train.py")
    assert done.status == 0, done.err
    assert lock.read_bytes() == before
    assert (Path(done.out.split()[-1]).parent / lock.name).read_bytes() == before


@pytest.mark.heavy
def test_what_is_the_users_in_a_script_s_environment_stays_until_told(workshop, play):
    venv = Path(workshop.run("run", "train.py").out.split()[-1])
    [site] = venv.glob("lib/*/site-packages")
    play(RTX_5090)  # which the environment is not for
    put_package(site, "cowsay", {"cowsay/__init__.py": ""}, version="6.1")
    refused = workshop.run("run", "train.py", "--epochs", "3")
    assert refused.status == 2
    assert f"mv {venv} {venv}.other   # then run it again" in refused.err
    more = workshop.run("run", "--with", "cowsay==6.1", "train.py", "--epochs", "3")
    assert (more.status, more.out.split()[0]) == (0, "2.13.0+cu130"), more.err
    removing = ("env", "remove", "--venv", str(venv), "--yes")
    assert workshop.run(*removing).status == 0
    assert workshop.run("run", "train.py").out.split()[0] == "2.13.0+cu130"

    (venv / "gpuinstall.json").unlink()
    refused = workshop.run("run", "train.py")
    assert f"mv {venv} {venv}.other   # then run it again" in refused.err


@pytest.mark.heavy
def test_any_script_and_command_runs_in_the_environment_of_the_folder(workshop):
    (workshop.folder / "-c.py").write_text(CODE)
    workshop.document("install", "torch==2.13.0")
    own = workshop.folder / ".venv"
    for words in (("--", "-c.py"), ("./-c.py",)):
        done = workshop.run("run", *words, "--epochs", "3")
        assert done.out == f"2.13.0+cu126 ['--epochs', '3'] {own}\n", done.err
    before = {path.name: path.read_bytes() for path in workshop.folder.glob("pylock.*")}
    more = workshop.run("run", "--with", "cowsay", "python", "-c", f"import cowsay\n{CODE}")
    assert more.out.split()[0] == "2.13.0+cu126", more.err
    assert not Path(more.out.split()[-1]).is_relative_to(workshop.folder)
    assert before == {path.name: path.read_bytes() for path in workshop.folder.glob("pylock.*")}
    assert workshop.run("run", "python", "-c", "import cowsay").status == 1, (
        "for that command alone"
    )
    script = workshop.run("run", "--with", "cowsay", "--", "-c.py")
    assert script.out == more.out.replace("['-c']", "[]"), script.err
