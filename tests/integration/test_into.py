"""Tests of installing torch into unmanaged environments with uv."""

import shutil
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest
import uv as uv_package

from gpuinstall.base import process, uv
from gpuinstall.base.uv import uv as uv_program
from gpuinstall.install.unpack import find_bundled_pip
from tests.lab.driver import NO_GPU, RTX_4090
from tests.lab.environments import link
from tests.lab.processes import succeed
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop


def plain_venv(workshop):
    """Create a virtual environment for an application."""
    venv = workshop.folder / "app"
    succeed(
        [uv.uv(), "venv", "--no-project", "--python", sys.executable, venv],
        env=workshop.environment,
    )
    return venv


def conda_like(workshop):
    """Create a prefix with ``conda-meta`` and without pyvenv.cfg."""
    prefix = workshop.folder / "miniconda"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "conda-meta").mkdir()
    library = Path(sysconfig.get_path("stdlib"))
    passed = shutil.ignore_patterns(
        "site-packages", "test", "EXTERNALLY-MANAGED", "config-*"
    )
    shutil.copytree(
        library,
        prefix / "lib" / version,
        symlinks=True,
        copy_function=link,
        ignore=passed,
    )
    (prefix / "lib" / version / "site-packages").mkdir()
    base = Path(sysconfig.get_config_var("BINDIR")) / version
    shutil.copy2(base, prefix / "bin" / "python")
    for shared in Path(sysconfig.get_config_var("LIBDIR")).glob("libpython*"):
        (prefix / "lib" / shared.name).symlink_to(shared)
    return prefix


def files(environment):
    """Return the files of an environment, without rollback data."""
    folders = [*environment.glob("lib/python*/site-packages"), environment / "bin"]
    found = (
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    )
    return {
        str(path.relative_to(environment)): path.read_bytes()
        for path in found
        if ".gpuinstall" not in path.parts
    }


def test_system_python_is_never_changed(workshop, play):
    play(RTX_4090)
    system = conda_like(workshop)
    into = ("install", "--into", "--venv", str(system))
    managed = next(system.glob("lib/python3*")) / "EXTERNALLY-MANAGED"
    managed.write_text("[externally-managed]\n")
    before = files(system)
    assert workshop.refusal(*into, exit_code=2)["code"] == "system-python"
    managed.unlink()
    (system / "conda-meta").rmdir()
    assert workshop.refusal(*into, exit_code=2)["code"] == "system-python"
    assert files(system) == before


MANAGER = """
import subprocess, sys
alone = ["-s"] if "python_embeded" in sys.executable else []
sys.exit(subprocess.call([sys.executable, *alone, "-m", *sys.argv[1:]]))
"""
"""Script that runs an installer as a manager of custom nodes does."""


class Application(NamedTuple):
    """An application with an environment and one custom node."""

    workshop: Workshop
    default_index: str
    environment: Path
    node: Path

    @property
    def python(self):
        """Return the environment's interpreter."""
        embedded = self.environment / "python.exe"
        return embedded if embedded.exists() else self.environment / "bin" / "python"

    def manager(self, installer, *words, past=False):
        """Run an installer in the node's folder.

        Args:
            installer: The words after ``python -m``.
            words: The requirements to install.
            past: Whether the installer ignores pip's settings.
        """
        variables = {**self.workshop.environment, "PIP_INDEX_URL": self.default_index}
        # Without a user configuration, pip reads no file.
        variables["PIP_CONFIG_FILE"] = ""
        if past:
            variables["UV_NO_CONFIG"] = "1"
            if "uv" not in installer:
                words = ("--isolated", "--index-url", self.default_index, *words)
        command = [
            self.python,
            "-s",
            "-c",
            MANAGER,
            *installer.split(),
            "install",
            *words,
        ]
        return process.run(list(map(str, command)), env=variables, cwd=self.node)

    def succeed(self, *words):
        """Run a gpuinstall command for the application's environment."""
        self.workshop.succeed(*words, "--into", "--python", str(self.python))

    def torch(self):
        """Return the version of torch in the application's environment."""
        code = "import torch; print(torch.__version__)"
        return process.run([self.python, "-s", "-c", code]).out.strip()

    def contents(self, passed=()):
        """Return the application's files except bytecode and undo data."""
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
    """Create a clone or conda application with pip and uv."""
    play(RTX_4090)
    folder = tmp_path / "project"
    node = folder / "custom_nodes" / "painter"
    for path in (node, folder / "comfy"):
        path.mkdir(parents=True)
    (folder / "main.py").touch()
    workshop = Workshop(folder, tmp_path / "caches", stand_in.environment())
    if request.param == "conda":
        environment = conda_like(workshop)
    else:
        environment = plain_venv(workshop).rename(folder / "venv")
    pip = find_bundled_pip(Path(sys.base_prefix, "bin", "python3"))
    if not pip:
        pytest.skip("this Python has no ensurepip")
    target = ("--python", str(environment / "bin" / "python"))
    succeed([uv_program(), "pip", "install", "--no-index", *target, str(pip)])
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "uv").symlink_to(Path(uv_package.__file__).parent)
    (environment / "bin" / "uv").symlink_to(uv_program())
    simple = stand_in.folder / "simple"
    make_wheel(simple, "painter-models", "1.0", requires=["torch>=2"])
    make_wheel(simple, "painter-of-old", "1.0", requires=["torch<2.13"])
    return Application(workshop, stand_in.default_index, environment, node)


def embedded_like(workshop):
    """Create an embedded Python with the file names of Windows."""
    prefix = conda_like(workshop).rename(workshop.folder / "python_embeded")
    (prefix / "conda-meta").rmdir()
    shutil.copy2(prefix / "bin" / "python", prefix / "python.exe")
    version = sysconfig.get_config_var("py_version_nodot")
    (prefix / f"python{version}._pth").write_text("../ComfyUI\nimport site\n", "utf-8")
    (prefix / "Scripts").symlink_to("bin")
    library = next(prefix.glob("lib/python*"))
    (prefix / "Lib").symlink_to(library.relative_to(prefix))
    return prefix


def relocatable_venv(workshop):
    """Create a relocatable virtual environment with uv."""
    venv = workshop.folder / "app"
    words = ("venv", "--no-project", "--relocatable", "--python", sys.executable)
    succeed([uv.uv(), *words, venv], env=workshop.environment)
    return venv


@pytest.mark.parametrize(
    ("make", "python"),
    [
        (plain_venv, "bin/python"),
        (relocatable_venv, "bin/python"),
        (conda_like, "bin/python"),
        (embedded_like, "python.exe"),
    ],
)
def test_installed_scripts_start_the_environments_python(
    workshop, stand_in_folder, play, make, python
):
    play(NO_GPU)
    modules = {
        "tool/__init__.py": "import sys\ndef main(): print(sys.prefix)\n",
        "tool-1.0.dist-info/entry_points.txt": "[console_scripts]\ntool = tool:main\n",
    }
    make_wheel(stand_in_folder / "simple", "tool", "1.0", modules=modules)
    environment = make(workshop)
    into = ("install", "--into", "--python", str(environment / python))
    workshop.succeed(*into, "torch==2.13.0", "tool")
    for folder in (environment, environment.with_name("moved")):
        if make is relocatable_venv or folder == environment:
            environment.rename(folder)
            environment = folder
            # A copy of Debian's Python has its scripts in local/bin.
            asked = (
                folder / python,
                "-c",
                "import sysconfig; print(sysconfig.get_path('scripts'))",
            )
            scripts = process.run(asked).out.strip()
            done = process.run([Path(scripts, "tool")])
            assert (done.out, done.err) == (f"{folder}\n", "")


def test_verify_reports_damage_of_a_portable_python(workshop, play):
    play(NO_GPU)
    environment = embedded_like(workshop)
    site = next(environment.glob("lib/python*/site-packages"))
    record = site / "beside-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.touch()
    done = workshop.run("verify", "--deep", "--python", str(environment / "python.exe"))
    assert "beside 1.0 is damaged" in done.err


CLONE_BY_PIP = pytest.param("clone", "pip", id="pip")
CLONE_BY_UV = pytest.param("clone", "uv pip", id="uv")
CONDA_BY_PIP = pytest.param("conda", "pip", id="conda's pip")
MANAGERS = pytest.mark.parametrize(
    ("application", "installer"),
    [CLONE_BY_PIP, CLONE_BY_UV, CONDA_BY_PIP],
    indirect=["application"],
)


@pytest.mark.heavy
@MANAGERS
def test_comfyui_custom_nodes_keep_torch_build(application, installer):
    before = application.contents()
    application.succeed("install", "torch==2.13.0")

    for line in ("torch==2.12.0", "torch!=2.13.0", "painter-of-old"):
        refused = application.manager(installer, line)
        assert not refused.ok, line
        assert "==2.13.0+cu126" in refused.out + refused.err
    for line in ("torch", "torch>=2.0", "painter-models", "cowsay"):
        installed = application.manager(installer, line)
        assert installed.ok, installed.out + installed.err
    assert application.torch() == "2.13.0+cu126"
    application.succeed("env", "rollback")
    assert application.contents(passed=("painter_models", "cowsay")) == before


@pytest.mark.heavy
@MANAGERS
def test_replaced_build_is_repaired(application, installer):
    application.succeed("install", "torch==2.13.0")
    replaced = application.manager(installer, "torch!=2.13.0", "cowsay", past=True)
    assert replaced.ok, replaced.out + replaced.err
    before = application.contents()
    other = application.torch()
    assert other != "2.13.0+cu126"

    application.succeed("install")
    assert application.torch() == "2.13.0+cu126"
    assert not application.manager(installer, "torch!=2.13.0").ok

    application.succeed("env", "rollback")
    assert application.torch() == other
    assert application.contents() == before
