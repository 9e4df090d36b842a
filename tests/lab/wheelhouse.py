"""Wheels for the tool's environment, packed from installed packages."""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from packaging.markers import Marker

from tests.lab.clone import ROOT
from tests.lab.wheels import record

LOCKFILES = ("uv.txt", "tool.txt")
COMPILED = "msgspec"
"""The package that has a compiled library for each Python version."""
OTHER_PYTHONS = ("3.10", "3.12", "3.13")
OTHER_WHEELS = ROOT / ".venv-dev" / "wheels"
"""Wheels for other Pythons that run bootstrap.py."""
LEFT_OUT = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json"}
UNREAD = re.compile(r"pygments/(lexers|styles)/(?!__init__|_mapping)")
"""Half of all lines: rich's languages, unused and slow to compile."""
PIN = re.compile(r"^([\w.-]+)==(\S+)(?: ; (.+))? \\$", re.MULTILINE)
WHEEL = (
    b"Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
)


@dataclass(frozen=True)
class Wheelhouse:
    """A folder of wheels, with pins that have the wheels' hashes."""

    folder: Path

    @property
    def settings(self) -> dict[str, str]:
        """Return variables that limit pip and uv to this folder."""
        return {
            "UV_CACHE_DIR": str(self.folder / "cache"),
            "PIP_NO_CACHE_DIR": "1",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.folder / "wheels"),
        }

    def supply(self, clone: Path) -> Path:
        """Pin the wheels of the wheelhouse in a clone."""
        for name in LOCKFILES:
            shutil.copyfile(self.folder / name, clone / "lockfiles" / name)
        return clone


def make_wheelhouse(folder: Path):
    """Pack the packages of the tool's lock files that this Python has."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    for name in LOCKFILES:
        pins = _pack_pins(ROOT / "lockfiles" / name, wheels)
        (folder / name).write_text("".join(pins))


def fetch_other_wheels():
    """Download wheels for other Pythons, as ``make`` does before tests."""
    locked = (ROOT / "lockfiles" / "tool.txt").read_text("utf-8")
    pin = re.search(rf"^{COMPILED}==(?:.*\\\n)+.*\n", locked, re.MULTILINE)
    assert pin
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(pin[0])
        requirements.flush()
        for python in OTHER_PYTHONS:
            words = ["--no-deps", "--only-binary", ":all:", "--python-version", python]
            words += ["-d", str(OTHER_WHEELS), "-r", requirements.name]
            pip = [sys.executable, "-m", "pip", "download", "-q", "--require-hashes"]
            subprocess.run([*pip, *words], check=True)


def _pack_pins(lockfile: Path, folder: Path) -> Iterator[str]:
    """Pack a lock file's pins for this Python; yield pins with new hashes."""
    for name, version, marker in PIN.findall(lockfile.read_text("utf-8")):
        if marker and not Marker(marker).evaluate():
            continue
        wheel = pack_installed(name, folder)
        assert wheel.name.split("-")[1] == version, f"{wheel.name} is installed"
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        yield f"{name}=={version} \\\n    --hash=sha256:{sha256}\n"


def pack_installed(name: str, folder: Path) -> Path:
    """Write a wheel of an installed package unless it exists."""
    version = distribution(name).version
    wheel = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    if wheel.exists():
        return wheel
    files = dict(_contents(name))
    info = next(file.partition("/")[0] for file in files if ".dist-info/" in file)
    files[f"{info}/WHEEL"] = WHEEL
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD")
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, data in files.items():
            mode = 0o755 if ".data/scripts/" in file else 0o644
            entry = zipfile.ZipInfo(file)
            entry.external_attr = mode << 16
            archive.writestr(entry, data)
    return wheel


def _contents(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield an installed package's files, except for installer files."""
    package = distribution(name)
    generated_scripts = package.entry_points.select(group="console_scripts").names
    for file in package.files or ():
        if "__pycache__" in file.parts or UNREAD.match(str(file)):
            continue
        if file.parent.name.endswith(".dist-info") and file.name in LEFT_OUT:
            continue
        target = str(file)
        if file.parts[0] == "..":
            # Such as pip3.11, next to pip.
            if file.name.rstrip("0123456789.") in generated_scripts:
                continue
            target = f"{name}-{package.version}.data/scripts/{file.name}"
        yield target, Path(str(file.locate())).read_bytes()
    for wheel in OTHER_WHEELS.glob(f"{name}-{package.version}-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.namelist():
                if entry.endswith(".so"):
                    yield entry, archive.read(entry)
