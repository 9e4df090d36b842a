"""Custom nodes that bring packages by pip and uv, as ComfyUI-Manager calls them: the build stays, and all is undone."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest
import uv as uv_package

from gpuinstall.base import process
from gpuinstall.base.uv import uv as uv_program
from gpuinstall.install.stage import carried_pip
from tests.integration.test_into_lab import conda_like, plain_venv
from tests.lab import windows
from tests.lab.driver import RTX_4090
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

MANAGER = """
import subprocess, sys
alone = ["-s"] if "python_embeded" in sys.executable else []
sys.exit(subprocess.call([sys.executable, *alone, "-m", *sys.argv[1:]]))
"""
"""How a manager of custom nodes runs an installer from its own process."""


class Application(NamedTuple):
    """An application with an environment and one custom node."""

    workshop: Workshop
    default_index: str
    environment: Path
    node: Path

    @property
    def python(self):
        """The interpreter of its environment."""
        embedded = self.environment / "python.exe"
        return embedded if embedded.exists() else self.environment / "bin" / "python"

    def manager(self, installer, *words, past=False):
        """Run an installer in the folder of the node, as a manager does for a line of its requirements.

        Args:
            installer: The words after ``python -m``.
            words: What to install.
            past: Whether the installer reads no settings.
        """
        variables = {**self.workshop.environment, "PIP_INDEX_URL": self.default_index}
        # With the settings of no user, pip reads none at all.
        variables["PIP_CONFIG_FILE"] = os.devnull if past else ""
        if past:
            variables["UV_NO_CONFIG"] = "1"
        command = [self.python, "-s", "-c", MANAGER, *installer.split(), "install", *words]
        return process.run(list(map(str, command)), env=variables, cwd=self.node)

    def torch(self):
        """The version of torch that runs."""
        code = "import torch; print(torch.__version__)"
        return process.run([self.python, "-s", "-c", code]).out.strip()

    def contents(self, passed=()):
        """Every file of the application, but what Python compiles, an undo keeps, and belongs to some packages."""
        contents = {}
        for path in self.workshop.folder.rglob("*"):
            name = str(path.relative_to(self.workshop.folder))
            if path.is_symlink() or not path.is_file() or path.suffix == ".pyc":
                continue
            if not any(part in name for part in (".gpuinstall", *passed)):
                contents[name] = path.read_bytes()
        return contents


@pytest.fixture
def application(stand_in, play, tmp_path, request):
    """A clone with its environment, a node beside a prefix of conda's, or the portable one of Windows; with pip and uv."""
    play(RTX_4090)
    folder = tmp_path / "project"
    variables = stand_in.environment()
    is_portable = request.param == "portable"
    if is_portable:
        variables = {**variables, windows.FOLDER: str(tmp_path)}
    application = folder / "ComfyUI" if is_portable else folder
    node = application / "custom_nodes" / "painter"
    for path in (node, application / "comfy"):
        path.mkdir(parents=True)
    (application / "main.py").touch()
    workshop = Workshop(folder, tmp_path / "caches", variables)
    if request.param == "conda":
        environment = conda_like(workshop)
    elif is_portable:
        environment = embedded_like(workshop)
    else:
        environment = plain_venv(workshop).rename(folder / "venv")
    pip = carried_pip(Path(sys.base_prefix, "bin", "python3"))
    assert pip
    target = ("--python", str(environment / "bin" / "python"))
    done = process.run([uv_program(), "pip", "install", "--no-index", *target, str(pip)])
    assert done.ok, done.err
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "uv").symlink_to(Path(uv_package.__file__).parent)
    (environment / "bin" / "uv").symlink_to(uv_program())
    if is_portable:
        look_for_pip_ini(site)
    simple = stand_in.folder / "simple"
    make_wheel(simple, "painter-models", "1.0", requires=["torch>=2"])
    make_wheel(simple, "painter-of-old", "1.0", requires=["torch<2.13"])
    return Application(workshop, stand_in.default_index, environment, node)


def embedded_like(workshop):
    """An embedded Python with the names of Windows: python.exe, its ._pth, Scripts and Lib beside those of Linux."""
    prefix = conda_like(workshop).rename(workshop.folder / "python_embeded")
    (prefix / "conda-meta").rmdir()
    shutil.copy2(prefix / "bin" / "python", prefix / "python.exe")
    version = sysconfig.get_config_var("py_version_nodot")
    (prefix / f"python{version}._pth").write_text("../ComfyUI\nimport site\n", "utf-8")
    (prefix / "Scripts").symlink_to("bin")
    library = next(prefix.glob("lib/python*"))
    (prefix / "Lib").symlink_to(library.relative_to(prefix))
    return prefix


def look_for_pip_ini(site):
    """Let a pip look for its settings by the name that they have on Windows."""
    file = site / "pip" / "_internal" / "configuration.py"
    text = file.read_text("utf-8")
    line = 'CONFIG_BASENAME = "pip.ini" if WINDOWS else "pip.conf"'
    assert line in text
    # It is a link to the file in uv's cache.
    file.unlink()
    file.write_text(text.replace(line, 'CONFIG_BASENAME = "pip.ini"'), "utf-8")


def into(application, *words):
    """Run ``install --into`` for the environment of the application."""
    python = str(application.python)
    return application.workshop.run("install", *words, "--into", "--python", python)


def rolled_back(application):
    """Run ``env rollback --into`` for the environment of the application."""
    python = str(application.python)
    return application.workshop.run("env", "rollback", "--into", "--python", python)


CLONE_BY_PIP = pytest.param("clone", "pip", id="pip")
CLONE_BY_UV = pytest.param("clone", "uv pip", id="uv")
CONDA_BY_PIP = pytest.param("conda", "pip", id="conda's pip")
PORTABLE_BY_PIP = pytest.param("portable", "pip", id="pip on Windows")
PORTABLE_BY_UV = pytest.param("portable", "uv pip", id="uv on Windows")
MANAGERS = pytest.mark.parametrize(
    ("application", "installer"),
    [CLONE_BY_PIP, CLONE_BY_UV, CONDA_BY_PIP, PORTABLE_BY_PIP, PORTABLE_BY_UV],
    indirect=["application"],
)


@pytest.mark.heavy
@MANAGERS
def test_lines_of_a_node_keep_the_build_and_its_guard_is_undone_to_the_byte(application, installer):
    before = application.contents()
    done = into(application, "torch==2.13.0")
    assert done.status == 0, done.out + done.err

    for line in ("torch==2.12.0", "torch!=2.13.0", "painter-of-old"):
        refused = application.manager(installer, line)
        assert not refused.ok, line
        assert "torch==2.13.0+cu126" in refused.out + refused.err
    for line in ("torch", "torch>=2.0", "painter-models", "cowsay"):
        installed = application.manager(installer, line)
        assert installed.ok, installed.out + installed.err
    assert application.torch() == "2.13.0+cu126"
    undone = rolled_back(application)
    assert undone.status == 0, undone.out + undone.err
    assert application.contents(passed=("painter_models", "cowsay")) == before


@pytest.mark.heavy
@MANAGERS
def test_a_build_that_was_replaced_past_the_guard_is_repaired_and_the_repair_undone_to_the_byte(
    application, installer
):
    assert into(application, "torch==2.13.0").status == 0
    replaced = application.manager(installer, "torch!=2.13.0", "cowsay", past=True)
    assert replaced.ok, replaced.out + replaced.err
    before = application.contents()
    other = application.torch()
    assert other != "2.13.0+cu126"

    repaired = into(application, "--repair")
    assert repaired.status == 0, repaired.out + repaired.err
    assert application.torch() == "2.13.0+cu126"
    assert not application.manager(installer, "torch!=2.13.0").ok

    undone = rolled_back(application)
    assert undone.status == 0, undone.out + undone.err
    assert application.torch() == other
    assert application.contents() == before
