"""``python -m tools.image``: an image of several locks, built and started here, as docs/evidence/image.md has it.

The base is Debian, made by debootstrap; the image is built by buildah from what ``export dockerfile --any`` writes. Of
its environments the CPU's has the real torch, the others stand-ins from an index on loopback. A start is that of a
container: an ordinary user, a read-only root, no network, and the driver's libraries, compiled stand-ins, laid over it
as the NVIDIA Container Toolkit does. It needs root, buildah, debootstrap, cc and a wheel of torch for the CPU.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from tests.lab.driver import FakeDriver, FakeGpu, build, describe
from tests.lab.index import StandInIndex
from tests.lab.releases import LINUX, catalog_index

from tools.bundle import write_single_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "evidence" / "image.md"
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


KINDS = (
    "the bare command",
    "`--no-proof`",
    "proven on this host before",
    "the first on a host, or without a volume",
)
"""The kinds of start that are timed."""


class Host(NamedTuple):
    """A machine that the image is started on, and what it should come to: a target, or an exit status."""

    name: str
    driver: FakeDriver
    expected: str | int
    variables: tuple[tuple[str, str], ...] = ()


def card(name: str, cc: str, pci: str, memory: int = 24576) -> FakeGpu:
    """A card by its name."""
    return FakeGpu(name, cc=cc, pci=pci, memory_mib=memory)


A800, RTX_3090 = (
    card("NVIDIA A800-SXM4-80GB", "8.0", "10de:20f3", 81920),
    card("NVIDIA GeForce RTX 3090", "8.6", "10de:2204"),
)
RTX_4090, H800 = (
    card("NVIDIA GeForce RTX 4090", "8.9", "10de:2684"),
    card("NVIDIA H800", "9.0", "10de:2324", 81559),
)
GTX_1080, RTX_5090 = (
    card("NVIDIA GeForce GTX 1080", "6.1", "10de:1b80"),
    card("NVIDIA GeForce RTX 5090", "12.0", "10de:2b85"),
)
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
    """What a start came to, and how many seconds it took."""

    status: int
    out: str
    err: str
    seconds: float


def lack() -> str | None:
    """What this machine lacks for an image, None where it has everything."""
    if os.name != "posix" or os.geteuid() != 0:
        return "needs root, for debootstrap, buildah and namespaces"
    if missing := [
        name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:{PATH}") is None
    ]:
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

    def make_base(self) -> None:
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

    def make_locks(self) -> None:
        """Lock each target with its own newest torch."""
        targets = [word for target in TARGETS for word in ("--target", target)]
        words = ["lock", "torch", "numpy", "--per-target", "newest", "--python", PYTHON, *targets]
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

    def make_image(self, name: str, targets: Sequence[str], *options: str) -> float:
        """Build an image of some of the locks; return the seconds."""
        context = self.folder / name
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir()
        for target in targets:
            shutil.copy(self.folder / f"pylock.{target}.toml", context)
        words = ("export", "dockerfile", "--any", *options, "-o", "Dockerfile")
        call(sys.executable, "-m", "gpuinstall", *words, folder=context)
        shutil.copy(self.folder / "bootstrap.py", context)
        start = monotonic()
        flags = ("--isolation=chroot", "--network=host", "--pull-never", "--layers", "--quiet")
        call("buildah", "build", *flags, "--tag", name, context)
        return monotonic() - start


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

    @property
    def bytes(self) -> int:
        """The bytes of its files, each file once, whatever the links to it."""
        files = {
            (at.lstat().st_dev, at.lstat().st_ino): at.lstat().st_size
            for at in self.root.rglob("*")
        }
        return sum(files.values())

    def start(
        self,
        host: Host,
        *words: str,
        volume: Path | None = None,
        bare: bool = False,
        network: bool = False,
    ) -> Start:
        """Start it on a host as an ordinary user, its root read-only, without a network; ``bare``: the words alone."""
        driver, merged, script = self.work / "driver", self.work / "merged", self.work / "start.sh"
        shutil.rmtree(driver, ignore_errors=True)
        place = driver / "usr" / "lib" / "x86_64-linux-gnu"
        place.mkdir(parents=True)
        merged.mkdir(exist_ok=True)
        for room, missing in (("nvml", host.driver.nvml_missing), ("cuda", host.driver.cu_missing)):
            if not missing:
                shutil.copy(self.libraries / room / LIBRARIES[room], place)
        (driver / "lab-gpus.txt").write_text(describe(host.driver), encoding="utf-8")
        bind = f"mount --bind {volume} home/app/.cache\n" if volume else ""
        script.write_text(
            f"set -e\nmount -t overlay overlay -o ro,lowerdir={driver}:{self.root} {merged}\n"
            f"cd {merged}\nmount -t tmpfs tmpfs tmp\nmount -t proc proc proc\n"
            f"mount --bind /dev dev\n{bind}"
            f'exec chroot --userspec=1000:1000 {merged} /bin/sh -c \'cd /home/app && exec "$@"\' start "$@"\n',
            encoding="utf-8",
        )
        environ = dict(setting.split("=", 1) for setting in self.config["Env"]) | {
            "HOME": "/home/app"
        }
        environ |= {"LAB_GPUS": "/lab-gpus.txt", **dict(host.variables)}
        command = [*([] if bare else self.config["Entrypoint"]), *words]
        begin = monotonic()
        done = subprocess.run(
            [
                "/usr/bin/unshare",
                "--mount",
                *([] if network else ["--net"]),
                "--pid",
                "--fork",
                "/bin/sh",
                script,
                *command,
            ],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1200,  # a first start that installs took 131 s at a load of 20
            check=False,
        )
        return Start(done.returncode, done.stdout.strip(), done.stderr.strip(), monotonic() - begin)

    def remove(self) -> None:
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


def quickest(container: Container, host: Host, python: str, volumes: Path) -> tuple[float, ...]:
    """The seconds of the quickest of five starts of each kind, the kinds in turn, as a row of ``KINDS`` each."""
    kept, times = volume_in(volumes, "timed"), tuple[list[float], ...]([] for _ in KINDS)
    for _ in range(5):
        starts = (
            container.start(host, f"/opt/torch/.venv-{python}/bin/python", "-c", "pass", bare=True),
            container.start(host, "--no-proof", "python", "-c", "pass"),
            container.start(host, "python", "-c", "pass", volume=kept),
            container.start(host, "python", "-c", "pass", volume=volume_in(volumes, "new")),
        )
        for taken, start in zip(times, starts, strict=True):
            taken.append(start.seconds)
    return tuple(map(min, times))


def main() -> None:
    """Build, start, measure; write the page."""
    if missing := lack():
        sys.exit(missing)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(
            *sys.argv[1:2] or [place]
        )  # one that is named keeps its base for the next time
        for part in ("index", "real", "libraries", "work", "volumes"):
            shutil.rmtree(folder / part, ignore_errors=True)
        yard = open_yard(folder)
        with yard.index:
            yard.make_base()
            yard.make_locks()
            PAGE.write_text("\n".join(page(yard, folder)), encoding="utf-8")


def page(yard: Yard, folder: Path) -> Iterator[str]:
    """The lines of the page."""
    libraries, work, volumes = build(folder / "libraries"), folder / "work", folder / "volumes"
    work.mkdir()
    yield HEAD.format(date=call("date", "+%Y-%m-%d").strip(), locks=", ".join(TARGETS))
    seconds = yard.make_image("torch-any", TARGETS)
    image = Container.of("torch-any", work, libraries)
    load = f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} processors"
    yield f"Built in {seconds:.0f} s, the base and the tool's packages at hand. The machine's load was then {load}: the"
    yield "seconds compare with each other, and are longer than on a machine that has nothing else to do.\n"
    yield "| host | taken | exit | said |\n|---|---|---|---|"
    for host, start in started(image, volumes):
        said = next((line for line in start.err.splitlines() if line.startswith("error:")), "")
        if not said and "no kernel" not in start.err:
            said = next(
                (line for line in start.err.splitlines() if line.startswith("Verified")), ""
            )
        yield f"| {host.name} | {start.out} | {start.status} | {' '.join(said.split())} |"
    yield "\n## What a start costs\n\nThe quickest of five, in seconds, with `python -c pass` as the command.\n"
    yield "| start | a stand-in, RTX 4090 | the real torch, CPU |\n|---|---|---|"
    hosts = (HOSTS[4], HOSTS[10])
    columns = [
        quickest(image, host, python, volumes)
        for host, python in zip(hosts, ("cu130", "cpu"), strict=True)
    ]
    for label, *row in zip(KINDS, *columns, strict=True):
        yield f"| {label} | {' | '.join(f'{seconds:.2f}' for seconds in row)} |"
    image.remove()
    yield "\n## Sizes\n\nMB of files, each once; the base and the tool are in each.\n"
    yield "| image | MB | build, s |\n|---|---|---|"
    thin = []
    for name, targets, options in (
        ("cu126 and cu130", ("cu126", "cu130"), ()),
        ("cu126", ("cu126",), ()),
        ("cu130", ("cu130",), ()),
        ("cpu (the real torch)", ("cpu",), ()),
        ("cpu, cu126 and cu130", ("cpu", "cu126", "cu130"), ()),
        ("the same, `--at-start`", ("cpu", "cu126", "cu130"), ("--at-start",)),
        ("the same, `--wheels`", ("cpu", "cu126", "cu130"), ("--wheels",)),
    ):
        seconds = yard.make_image("torch-size", targets, *options)
        container = Container.of("torch-size", work, libraries)
        yield f"| {name} | {container.bytes / 1e6:.0f} | {seconds:.0f} |"
        if options:
            volume, network = volume_in(volumes, "thin"), options == ("--at-start",)
            first, later = (
                container.start(hosts[1], "python", "-c", FACTS, volume=volume, network=network)
                for _ in range(2)
            )
            where = "from the index on loopback" if network else "without a network"
            thin.append(
                f"- `{options[0]}`, {where}: {first.seconds:.1f} s, then {later.seconds:.1f} s: {later.out}"
            )
        container.remove()
    yield "\nThe first start on a host without a GPU, which installs and proves the CPU's environment, and the next:\n"
    yield from thin
    yield ""


HEAD = """# One image, started on eleven hosts

What `python -m tools.image` wrote on {date}. The Dockerfile is what `gpuinstall export dockerfile --any` writes of
the locks {locks}; Debian is the base, made by debootstrap, and buildah builds it. The CPU's environment has the
real torch 2.13.0+cpu, the others have stand-ins of torch, which answer the checks as a lab file says: what is shown
here is the choice, its seconds and its refusals, not that a kernel runs on such a card. Drivers and cards are compiled
stand-ins of libcuda and NVML, laid over the image as the NVIDIA Container Toolkit does. Each start is that of user
1000, with a read-only root, no network, and a volume at `~/.cache`.
"""


if __name__ == "__main__":
    main()
