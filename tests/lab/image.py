"""A real image of several locks, built and started here: what ``export dockerfile --any`` writes.

The base is Debian, made by debootstrap; the image is built by buildah. Of its environments the CPU's has the real
torch, the others stand-ins from an index on loopback. A start is that of a container: an ordinary user, a read-only
root, no network, and the driver's libraries, compiled stand-ins, laid over it as the NVIDIA Container Toolkit does. It
needs root, buildah, debootstrap, cc and a wheel of torch for the CPU.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tools.bundle import write_single_files

from tests.lab.driver import FakeDriver, FakeGpu, describe
from tests.lab.index import StandInIndex
from tests.lab.releases import LINUX, catalog_index

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("buildah", "debootstrap", "unshare", "chroot", "cc")
PYTHON = "3.11"
"""That of Debian 12, which is the base."""
WHEEL = "torch-2.13.0+cpu-cp311-*linux*_x86_64.whl"
BASE = f"docker.io/library/python:{PYTHON}-slim-bookworm"
PACKAGES = ("python3", "python3-venv", "ca-certificates")
REAL = (
    "numpy",
    "filelock",
    "fsspec",
    "jinja2",
    "networkx",
    "pip",
    "setuptools",
    "sympy",
    "typing-extensions",
)
"""What both torches need, as the default index has it."""
TARGETS = ("cu118", "cu126", "cu130", "cpu")
LIBRARIES = {"nvml": "libnvidia-ml.so.1", "cuda": "libcuda.so.1"}
FACTS = "import os, torch; print(os.environ['VIRTUAL_ENV'].rpartition('-')[2], torch.__version__)"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Host(NamedTuple):
    """A machine that the image is started on, and what it should come to: a target, or an exit status."""

    name: str
    driver: FakeDriver
    expected: str | int
    variables: tuple[tuple[str, str], ...] = ()


def card(name: str, cc: str, pci: str, memory: int = 24576) -> FakeGpu:
    """A card by its name."""
    return FakeGpu(name, cc=cc, pci=pci, memory_mib=memory)


A800 = card("NVIDIA A800-SXM4-80GB", "8.0", "10de:20f3", 81920)
RTX_3090 = card("NVIDIA GeForce RTX 3090", "8.6", "10de:2204")
RTX_4090 = card("NVIDIA GeForce RTX 4090", "8.9", "10de:2684")
H800 = card("NVIDIA H800", "9.0", "10de:2324", 81559)
GTX_1080 = card("NVIDIA GeForce GTX 1080", "6.1", "10de:1b80")
RTX_5090 = card("NVIDIA GeForce RTX 5090", "12.0", "10de:2b85")
NO_DRIVER = FakeDriver(nvml_missing=True, cu_missing=True)
HOSTS = (
    Host("A800, driver 470.182.03", FakeDriver((A800,), "470.182.03", 11040), "cu118"),
    Host("RTX 3090, driver 515.105.01", FakeDriver((RTX_3090,), "515.105.01", 11070), "cu118"),
    Host("RTX 3090, driver 535.183.01", FakeDriver((RTX_3090,), "535.183.01", 12020), "cu126"),
    Host(
        "RTX 3090 and GTX 1080, driver 550.54.15",
        FakeDriver((RTX_3090, GTX_1080), "550.54.15", 12040),
        "cu126",
    ),
    Host("RTX 4090, driver 580.95.05", FakeDriver((RTX_4090,)), "cu130"),
    Host("H800, driver 610.43.02", FakeDriver((H800,), "610.43.02", 13030), "cu130"),
    Host("GTX 1080, driver 580.95.05", FakeDriver((GTX_1080,)), "cu126"),
    Host("RTX 5090, driver 570.86.10", FakeDriver((RTX_5090,), "570.86.10", 12080), 3),
    Host("RTX 3090, a driver updated and not restarted", FakeDriver((RTX_3090,), nvml_init=18), 8),
    Host("no GPU", NO_DRIVER, 8),
    Host("no GPU, GPUINSTALL_ALLOW_CPU=1", NO_DRIVER, "cpu", (("GPUINSTALL_ALLOW_CPU", "1"),)),
)


class Start(NamedTuple):
    """What a start came to."""

    status: int
    out: str
    err: str


def lack() -> str | None:
    """Return what this machine lacks for an image, None if it has everything."""
    if os.name != "posix" or os.geteuid() != 0:
        return "needs root, for debootstrap, buildah and namespaces"
    path = f"{os.environ['PATH']}:{PATH}"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    return None if real_torch() else f"needs {WHEEL} in PIP_FIND_LINKS"


def real_torch() -> Path | None:
    """The wheel of torch for the CPU."""
    return next(Path(os.environ.get("PIP_FIND_LINKS", "/nowhere")).glob(WHEEL), None)


def call(*words: str | Path, folder: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a program; what it prints is returned, and what it says is shown where it fails."""
    done = subprocess.run(
        [*map(str, words)],
        cwd=folder,
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        sys.exit(
            f"{words[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    return done.stdout


@dataclass(frozen=True)
class Yard:
    """A folder with everything that images are made of, the index on loopback among it."""

    folder: Path
    index: StandInIndex

    @property
    def variables(self) -> dict[str, str]:
        """Where packages come from, for pip and for gpuinstall."""
        return {**self.index.environment(), "PIP_INDEX_URL": self.index.default_index}

    def make_base(self):
        """Make the base image of Debian's packages, with ``python``, and the settings of the index."""
        root = self.folder / "debian"
        if not root.exists():
            call(
                "debootstrap",
                "--variant=minbase",
                f"--include={','.join(PACKAGES)}",
                "bookworm",
                root,
            )
            (root / "usr" / "local" / "bin" / "python").symlink_to("/usr/bin/python3")
        name = call("buildah", "from", "scratch").strip()
        call("buildah", "add", "--quiet", name, root, "/")
        settings = [
            word for pair in self.variables.items() if pair[1] for word in ("--env", "=".join(pair))
        ]
        call("buildah", "config", *settings, "--env", f"PATH={PATH}", name)
        call("buildah", "commit", "--quiet", "--rm", name, BASE)

    def make_locks(self):
        """Lock each target with its own newest torch."""
        targets = [word for target in TARGETS for word in ("--target", target)]
        words = ["lock", "torch", "numpy", "--python", PYTHON, *targets]
        text = '[tool.gpuinstall]\nper-target = "newest"\n'
        (self.folder / "pyproject.toml").write_text(text, encoding="utf-8")
        own = {
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        environ = {
            **os.environ,
            **self.variables,
            **own,
            "UV_CACHE_DIR": str(self.folder / "cache" / "uv"),
        }
        call(sys.executable, "-m", "gpuinstall", *words, folder=self.folder, env=environ)

    def make_image(self, name: str):
        """Build an image of the locks."""
        context = self.folder / name
        context.mkdir()
        for target in TARGETS:
            shutil.copy(self.folder / f"pylock.{target}.toml", context)
        words = ("export", "dockerfile", "--any", "-o", "Dockerfile")
        call(sys.executable, "-m", "gpuinstall", *words, folder=context)
        shutil.copy(self.folder / "bootstrap.py", context)
        flags = ("--isolation=chroot", "--network=host", "--pull-never", "--layers", "--quiet")
        call("buildah", "build", *flags, "--tag", name, context)


@dataclass(frozen=True)
class Container:
    """An image that can be started: its files at ``root``, its settings in ``config``; ``work`` is for overlays."""

    name: str
    root: Path
    config: dict[str, list[str]]
    work: Path
    libraries: Path

    @classmethod
    def of(cls, image: str, work: Path, libraries: Path) -> Container:
        """Mount an image."""
        name = call("buildah", "from", "--pull-never", image).strip()
        shown = json.loads(call("buildah", "inspect", "--type", "image", image))
        return cls(
            name,
            Path(call("buildah", "mount", name).strip()),
            shown["OCIv1"]["config"],
            work,
            libraries,
        )

    def start(self, host: Host, *words: str, volume: Path) -> Start:
        """Start it on a host as an ordinary user, its root read-only, without a network, with a volume at ~/.cache."""
        driver = self.work / "driver"
        merged = self.work / "merged"
        script = self.work / "start.sh"
        shutil.rmtree(driver, ignore_errors=True)
        place = driver / "usr" / "lib" / "x86_64-linux-gnu"
        place.mkdir(parents=True)
        merged.mkdir(exist_ok=True)
        for room, missing in (("nvml", host.driver.nvml_missing), ("cuda", host.driver.cu_missing)):
            if not missing:
                shutil.copy(self.libraries / room / LIBRARIES[room], place)
        (driver / "lab-gpus.txt").write_text(describe(host.driver), encoding="utf-8")
        script.write_text(
            f"set -e\nmount -t overlay overlay -o ro,lowerdir={driver}:{self.root} {merged}\n"
            f"cd {merged}\nmount -t tmpfs tmpfs tmp\nmount -t proc proc proc\n"
            f"mount --bind /dev dev\nmount --bind {volume} home/app/.cache\n"
            f'exec chroot --userspec=1000:1000 {merged} /bin/sh -c \'cd /home/app && exec "$@"\' start "$@"\n',
            encoding="utf-8",
        )
        environ = dict(setting.split("=", 1) for setting in self.config["Env"])
        environ |= {"HOME": "/home/app", "LAB_GPUS": "/lab-gpus.txt", **dict(host.variables)}
        namespaces = ("/usr/bin/unshare", "--mount", "--net", "--pid", "--fork")
        done = subprocess.run(
            [*namespaces, "/bin/sh", script, *self.config["Entrypoint"], *words],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        return Start(done.returncode, done.stdout.strip(), done.stderr.strip())

    def remove(self):
        """Take it away."""
        call("buildah", "rm", self.name)


def open_yard(folder: Path) -> Yard:
    """Fill an index, start it, make the base, the locks and bootstrap.py."""
    index, wheel = folder / "index", real_torch()
    catalog_index(
        index, ["2.7.1", "2.13.0"], platforms=[LINUX], pythons=[PYTHON], default_torch=False
    )
    for stub in (index / "whl" / "cpu").glob("torch-2.13.0+cpu-*"):
        stub.unlink()
    shutil.copy(str(wheel), index / "whl" / "cpu")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--only-binary",
        ":all:",
        "--python-version",
        PYTHON,
    )
    real = folder / "real"
    call(*pip, "--dest", real, *REAL)
    call(
        *pip,
        "--dest",
        real,
        "--no-deps",
        "--require-hashes",
        "--requirement",
        ROOT / "lockfiles" / "tool.txt",
    )
    names = {file.name.partition("-")[0].lower() for file in real.iterdir()}
    for stub in (index / "simple").glob("*.whl"):
        if stub.name.partition("-")[0].lower() in names:
            stub.unlink()
    shutil.copytree(real, index / "simple", dirs_exist_ok=True)
    write_single_files(folder)
    return Yard(folder, StandInIndex(index))


def started(container: Container, volumes: Path) -> Iterator[tuple[Host, Start]]:
    """Start on every host, each with a volume of its own."""
    for number, host in enumerate(HOSTS):
        yield (
            host,
            container.start(host, "python", "-c", FACTS, volume=volume_in(volumes, str(number))),
        )


def volume_in(folder: Path, name: str) -> Path:
    """An empty volume of the ordinary user's."""
    volume = folder / name
    shutil.rmtree(volume, ignore_errors=True)
    volume.mkdir(parents=True)
    os.chown(volume, 1000, 1000)
    return volume
