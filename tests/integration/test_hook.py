"""``gpuinstall hook``: plain pip and uv, the real ones, take builds that run on the cards that the lab plays."""

import sys
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from tests.lab.driver import RTX_4090, RTX_5090
from tests.lab.workshop import Workshop

PIP_CONF = "[global]\ntimeout = 20\nfind-links = /srv/wheels"
"""Without a line end, as editors leave it."""


@pytest.fixture
def workshop(stand_in, tmp_path):
    """A folder, and a user with settings of their own, where the index is a corporate mirror."""
    (tmp_path / "project").mkdir()
    variables = {
        key: value
        for key, value in stand_in.environment().items()
        if key != "PIP_CONFIG_FILE"
    }
    variables |= {
        "XDG_CONFIG_HOME": str(tmp_path / "settings"),
        "PIP_INDEX_URL": stand_in.default_index,
    }
    variables |= {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_HTTP_RETRIES": "0"}
    return Workshop(tmp_path / "project", tmp_path / "caches", variables)


@pytest.fixture
def venv(workshop):
    """An environment that somebody made, with a package in it."""
    folder = workshop.folder / ".venv"
    assert process.run(
        uv.create(Path(sys.executable), folder), env=workshop.environment
    ).ok
    assert plain_uv(workshop, "pip", "install", "cowsay").ok
    return folder


def plain_uv(workshop, *words):
    return process.run([uv.uv(), *words], env=workshop.environment, cwd=workshop.folder)


def plain_pip(workshop, *words):
    python = workshop.folder / ".venv" / "bin" / "python"
    return process.run(
        [sys.executable, "-m", "pip", "--python", python, *words],
        env=workshop.environment,
    )


def settings(workshop, name):
    return Path(workshop.variables["XDG_CONFIG_HOME"], name)


@pytest.mark.heavy
@pytest.mark.usefixtures("venv")
def test_plain_uv_takes_builds_that_run_here_and_follows_the_driver(workshop, play):
    play(RTX_4090)
    file = settings(workshop, "uv/uv.toml")
    file.parent.mkdir(parents=True)
    file.write_text(mine := "# mine\nnative-tls = false")
    before = plain_uv(workshop, "pip", "install", "--dry-run", "torch")
    assert "torch==2.15.0\n" in before.err, (
        "the build of the default index, which does not run on driver 535"
    )

    assert workshop.document("hook", "uv")["data"]["status"] == "written"
    assert workshop.document("hook", "uv")["data"]["status"] == "unchanged"
    for words in (
        ("torch",),
        ("torch", "torchvision"),
        ("torch", "--extra-index-url", workshop.variables["UV_DEFAULT_INDEX"]),
    ):
        done = plain_uv(workshop, "pip", "install", "--dry-run", *words)
        assert "torch==2.14.1+cu126" in done.err, done.err
    assert (
        "torch==2.13.0+cu126"
        in plain_uv(workshop, "pip", "install", "--dry-run", "torch==2.13.0").err
    )
    assert plain_uv(workshop, "pip", "install", "torch").ok
    assert (
        workshop.python("import torch, cowsay; print(torch.__version__)")
        == "2.14.1+cu126"
    )

    play(RTX_5090)
    assert workshop.document("hook", "uv")["data"]["status"] == "written"
    assert (
        "torch==2.15.0+cu130"
        in plain_uv(workshop, "pip", "install", "--dry-run", "-U", "torch").err
    )
    assert workshop.document("hook", "uv", "--remove")["data"]["status"] == "removed"
    assert file.read_text() == mine


@pytest.mark.heavy
@pytest.mark.usefixtures("venv")
def test_plain_pip_takes_builds_that_run_here_and_keeps_what_it_was_told(
    workshop, play
):
    play(RTX_4090)
    file = settings(workshop, "pip/pip.conf")
    file.parent.mkdir(parents=True)
    file.write_text(PIP_CONF)
    file.chmod(0o600)
    assert "torch-2.15.0 " in plain_pip(workshop, "install", "--dry-run", "torch").out

    workshop.document("hook", "pip")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "/srv/wheels" in file.read_text().partition("[install]")[2]
    done = plain_pip(workshop, "install", "--dry-run", "torch", "torchvision")
    assert "torch-2.14.1+cu126 torchvision-0.29.2+cu126" in done.out, (
        done.out + done.err
    )
    refused = plain_pip(workshop, "install", "--dry-run", "torch==2.15.0")
    assert "The user requested (constraint) torch" in refused.out + refused.err
    assert plain_pip(workshop, "install", "torch").ok
    assert (
        workshop.python("import torch, cowsay; print(torch.__version__)")
        == "2.14.1+cu126"
    )

    workshop.document("hook", "pip", "--remove")
    assert file.read_text() == PIP_CONF
    assert [entry.name for entry in file.parent.iterdir()] == ["pip.conf"]


def test_a_driver_on_which_nothing_runs_writes_no_hook(workshop, play):
    play(RTX_5090.__class__(RTX_5090.gpus, driver="535.183.01", cuda=12020))
    assert workshop.document("hook", "uv", exit_code=8)["status"] == "error"
    assert not settings(workshop, "uv").exists()
