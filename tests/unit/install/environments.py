"""Small environments in the state after an installation."""

import os
from pathlib import Path

from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import Marker
from gpuinstall.lock.file.lock import parse
from tests.lab.environments import put_package

SITE = "Lib/site-packages" if os.name == "nt" else "lib/python3.12/site-packages"
"""The folder of packages in these environments."""
PYTHON = interpreter(Path("x")).relative_to("x").as_posix()
SCRIPTS = PYTHON.partition("/")[0]

LOCK = """lock-version = "1.0"
requires-python = "==3.12.*"
created-by = "gpuinstall"

[[packages]]
name = "torch"
version = "{version}"

[[packages.wheels]]
url = "https://index.example/torch-{escaped}-cp312-cp312-linux_x86_64.whl"
hashes = {{ sha256 = "1111111111111111111111111111111111111111111111111111111111111111" }}
"""


MARKER = Marker(
    "an-id",
    "pylock.cu126.toml",
    "0" * 64,
    "3.12",
    "2.14.1",
    "cu126",
    "here",
    {"status": "passed"},
)


def lock_text(version="2.14.1"):
    return LOCK.format(version=version, escaped=version.replace("+", "%2B"))


def make_environment(folder, name, version="2.14.1", lock="pylock.cu126.toml"):
    """Create a managed environment with the marker ID ``name``."""
    put_package(folder / SITE, "torch", {}, version=version)
    python = interpreter(folder)
    python.parent.mkdir()
    python.touch()
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n", "utf-8")
    text = lock_text(version)
    (folder / lock).write_text(text, "utf-8", newline="")
    replace(
        MARKER,
        id=name,
        lock=lock,
        lock_sha256=parse(lock, text).sha256,
        torch=version,
        packages={"torch": version},
    ).write(folder)
    return folder


def use_state_folder(monkeypatch, folder):
    """Use another folder for the records of environments."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.setattr(
        "platformdirs.user_state_path", lambda name, **_options: folder / name
    )


def write_files(folder, *names, text="mine"):
    """Write files into a folder. A name with a final slash is a folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_text(text, "utf-8")
    return folder
