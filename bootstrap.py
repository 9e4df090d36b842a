#!/usr/bin/env python3
"""Get uv, make gpuinstall's own environment, and hand over: to `gpuinstall install`, or to the command that is given.

Needs Python 3.8 and nothing else. Runs from a file or from stdin, asks nothing, needs no administrator, touches no
other environment, and does nothing before its last line.
"""

import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    # The folder of this file, or the working folder: what lies there is no module of Python's.
    del sys.path[0]
try:
    import base64
    import hashlib
    import io
    import json
    import os
    import platform
    import re
    import shutil
    import signal
    import stat
    import subprocess
    import tarfile
    import tempfile
    import time
    import zipfile
    import zlib  # noqa: F401  archives need it
    from ast import literal_eval
    from contextlib import contextmanager, suppress
    from functools import lru_cache
    from pathlib import Path
    from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple
except ImportError as missing:
    sys.stderr.write(
        f"error: this Python has no module {missing.name}, which is part of the standard library\n"
        "  do    sudo apt-get install python3   # or another complete Python 3.8 or newer\n"
    )
    sys.exit(2)

PAYLOAD = ""
OLDEST_PYTHON: Tuple[int, int] = (3, 8)  # needs Python 3.8 or newer: python3 bootstrap.py
TOOL_PYTHON = (3, 10)
WINDOWS = os.name == "nt"
EXE = ".exe" if WINDOWS else ""
KEPT_ENVIRONMENTS = 3
TOOL_NAME = re.compile(r"\d[\w.]*-[0-9a-f]{12}")
PINS = ("uv.txt", "uv-programs.txt", "tool.txt")
ARCHIVES = "https://github.com/astral-sh/uv/releases/download"
LARGEST_ARCHIVE = 200_000_000
UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED|UnknownIssuer|unable to get local issuer")
NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
SYSTEM_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
)
# Where pip finds packages, and uv's variable for it.
FROM_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "no-index": "",
}
OUR_DEFAULTS = {"UV_HTTP_RETRIES": "1", "UV_NO_PROGRESS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
NOT_FOR_CHILDREN = """
PYTHONHOME PYTHONPATH PIP_CONSTRAINT PIP_PLATFORM PIP_PYTHON_VERSION
UV_CONSTRAINT UV_OVERRIDE UV_EXCLUDE_NEWER UV_NO_BINARY UV_PYTHON
"""


class BootstrapError(Exception):
    """Why bootstrap.py stops: an exit status, what happened, what was seen, what to do."""

    def __init__(
        self, status: int, message: str, seen: Sequence[str] = (), do: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.seen = seen
        self.do = do


class PassedOverError(Exception):
    """Why one way to get something was passed over."""


class Kit(NamedTuple):
    """What the tool is built from: the pins, and either the clone around this file or the wheel inside it."""

    version: str
    files: Dict[str, bytes]
    clone: Optional[Path]
    digest: str

    @property
    def uv_version(self) -> str:
        """The pinned uv, which is also the oldest that will do."""
        pin = self.files["uv.txt"].decode()
        return pin.split("==", 1)[1].split()[0]

    @property
    def name(self) -> str:
        """A name made of all that goes into the tool's environment, the Python that asks for it included."""
        python = None
        if sys.version_info >= TOOL_PYTHON:
            python = sys.version_info[:2]
        digest = hashlib.sha256(f"{self.digest} {python}".encode() + self.files["tool.txt"])
        return f"{self.version}-{digest.hexdigest()[:12]}"


class Job(NamedTuple):
    """One run: what to build, where it is being built, and the data folder where it will lie."""

    kit: Kit
    stage: Path
    data: Path


# The kit


def read_kit() -> Kit:
    """Read what this file carries, or else the clone that it lies in; raise BootstrapError if it is alone."""
    if PAYLOAD:
        # What tools/bundle.py packed.
        with zipfile.ZipFile(io.BytesIO(base64.b85decode("".join(PAYLOAD.split())))) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        wheel = next(name for name in files if name.endswith(".whl"))
        return Kit(wheel.split("-")[1], files, None, hashlib.sha256(files[wheel]).hexdigest())
    clone = Path(globals().get("__file__", "/nonexistent/bootstrap.py")).resolve().parent
    try:
        files = {name: (clone / "lockfiles" / name).read_bytes() for name in PINS}
        settings = (clone / "pyproject.toml").read_text(encoding="utf-8")
    except OSError as error:
        message = "this bootstrap.py works only in a clone of gpuinstall"
        ways = ["make bootstrap   # in a clone: one file, dist/bootstrap.py"]
        raise BootstrapError(2, message, do=ways) from error
    version = re.search(r'^version = "(.+)"', settings, re.MULTILINE)
    return Kit(version.group(1) if version else "0", files, clone, digest_of(clone))


def digest_of(clone: Path) -> str:
    """Digest the files that make the tool, by path and content."""
    digest = hashlib.sha256()
    for path in sorted((*clone.glob("src/**/*"), clone / "pyproject.toml")):
        if "__pycache__" in path.parts or not path.is_file():
            continue
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(clone).as_posix()} {content}\n".encode())
    return digest.hexdigest()


# Other programs


def run(argv: Sequence[object], cwd: Path, seconds: Optional[float] = None) -> str:
    """Run a program with nothing on its stdin; return its output, raise PassedOverError with the reason it gives."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            env=environment(),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise PassedOverError(str(error)) from error
    out = done.stdout.decode("utf-8", "replace")
    err = done.stderr.decode("utf-8", "replace")
    if done.returncode:
        raise PassedOverError(reason(err or out) or f"{words[0]} ended with {done.returncode}")
    return out.strip()


def reason(output: str) -> str:
    """Return the lines that tell why, and for missing CA certificates just that; without passwords in addresses."""
    if UNTRUSTED.search(output):
        return (
            "the server's certificate is not trusted (SSL_CERT_FILE names a file of certificates)"
        )
    if NO_SPACE.search(output):
        return "no space left on device"
    # pip's last line says that there is no such package, whatever kept it from asking.
    unreachable = re.search(r"connection broken by .*>[:,] '?([^']+)'", output)
    if unreachable:
        return unreachable.group(1)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"error|cause", line, re.IGNORECASE)]
    message = "; ".join(causes[:3] or lines[-1:])
    # urllib names the password alone, as a port.
    return re.sub(r"[^/\s']+@", "****@", message)[:300]


@lru_cache(maxsize=None)
def pip_listing() -> Optional[str]:
    """Ask pip for the settings of its files; None if the Python that runs this has no pip that works."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    with suppress(OSError, subprocess.CalledProcessError):
        return subprocess.check_output(
            command, cwd=sys.prefix, stderr=subprocess.DEVNULL, universal_newlines=True
        )
    return None


def pip_settings() -> Dict[str, str]:
    """Read where pip finds packages, from its files and then its variables, by pip's option names."""
    settings = {}
    for section in ("global", "install", "download"):
        line = rf"^{section}\.([a-z-]+)=(.+)$"
        for name, value in re.findall(line, pip_listing() or "", re.MULTILINE):
            settings[name] = str(literal_eval(value))
    for name in FROM_PIP:
        value = os.environ.get("PIP_" + name.upper().replace("-", "_"))
        if value:
            settings[name] = value
    return settings


def environment() -> Dict[str, str]:
    """Return the environment of pip and uv: the user's own, where to find packages filled in from pip's settings."""
    settings = pip_settings()
    settings["cert"] = os.environ.get("REQUESTS_CA_BUNDLE") or settings.get("cert", "")
    settings["find-links"] = ",".join(settings.get("find-links", "").split())
    env = dict(OUR_DEFAULTS)
    for name, variable in FROM_PIP.items():
        if variable and settings.get(name):
            env[variable] = settings[name]
    env.update(os.environ)
    for name in NOT_FOR_CHILDREN.split():
        env.pop(name, None)
    env["PATH"] = os.pathsep.join(map(str, search_path()))
    env["PIP_NO_INPUT"] = "1"
    env["PIP_REQUIRE_VIRTUALENV"] = "0"
    return env


def search_path() -> List[Path]:
    """Return the folders of PATH that a stranger cannot change; version managers' shims are no programs."""
    folders = []
    for name in os.environ.get("PATH", "").split(os.pathsep):
        folder = Path(name)
        if (
            folder.is_absolute()
            and folder.name != "shims"
            and not changeable_by_others(folder / "uv", folder)
        ):
            folders.append(folder)
    return folders


# uv


def get_uv(job: Job) -> Path:
    """Find uv or fetch the pinned one; raise BootstrapError with the reason that each way was passed over."""
    reasons = []
    for name, way in UV_WAYS.items():
        began = time.monotonic()
        try:
            uv = way(job)
            step(f"uv {version_of(uv)}", name, began)
        except PassedOverError as passed:
            reasons.append(f"{name}: {passed}")
        else:
            return uv
    message = f"uv {job.kit.uv_version} is not here and could not be downloaded"
    ways = [
        *ways_out("\n".join(reasons)),
        f"export GPUINSTALL_UV_MIRROR=https://mirror.example   # a mirror that has {archive_path(job)}",
        "Or install uv as https://docs.astral.sh/uv says, then run this again",
    ]
    raise BootstrapError(4, message, reasons, ways)


def uv_at_hand(job: Job) -> Path:
    """Take the first uv, on PATH or in an environment of the tool, that is as new as the pinned one."""
    programs = [folder / f"uv{EXE}" for folder in search_path()]
    programs += job.data.glob(f"[0-9]*/*/uv{EXE}")
    reasons = []
    for program in programs:
        if not os.access(program, os.X_OK):
            continue
        try:
            version = version_of(program)
        except PassedOverError as passed:
            reasons.append(f"{program} does not run ({passed})")
            continue
        if numbers(version) >= numbers(job.kit.uv_version):
            return program
        reasons.append(f"{program} is {version}")
    raise PassedOverError(", ".join(reasons) or "none")


def uv_by_pip(job: Job) -> Path:
    """Let the pip of this Python fetch the pinned wheel and check its hash, and take the program out of it."""
    if pip_listing() is None:
        raise PassedOverError("this Python has no working pip")
    wheels = job.stage / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--retries", "1", "--timeout", "8"]
    which = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
    run([*pip, *which, "--requirement", job.stage / "uv.txt", "--dest", wheels], job.stage)
    with zipfile.ZipFile(next(wheels.iterdir())) as wheel:
        program = wheel.read(f"uv-{job.kit.uv_version}.data/scripts/uv{EXE}")
    return runnable(job, program)


def uv_from_archive(job: Job) -> Path:
    """Fetch uv's own release archive, and take the program out if it is, bit by bit, the one pinned."""
    base = os.environ.get("GPUINSTALL_UV_MIRROR") or ARCHIVES
    content = io.BytesIO(download(f"{base.rstrip('/')}/{archive_path(job)}"))
    try:
        if WINDOWS:
            program = zipfile.ZipFile(content).read("uv.exe")
        else:
            with tarfile.open(fileobj=content) as archive:
                member = archive.extractfile(f"uv-{archive_target()}/uv")
                program = member.read() if member else b""
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, KeyError) as error:
        raise PassedOverError("the download is not an archive of uv") from error
    row = [archive_target(), hashlib.sha256(program).hexdigest()]
    pinned = job.kit.files["uv-programs.txt"].decode().splitlines()
    if row not in [line.split() for line in pinned]:
        raise PassedOverError(f"what it holds is not the pinned uv {job.kit.uv_version}")
    return runnable(job, program)


def archive_path(job: Job) -> str:
    """Return where this machine's archive lies, below the address of uv's releases or of a mirror."""
    form = "zip" if WINDOWS else "tar.gz"
    return f"{job.kit.uv_version}/uv-{archive_target()}.{form}"


def archive_target() -> str:
    """Return this machine as uv's releases call it."""
    machine = platform.machine().lower()
    names = {"amd64": "x86_64", "arm64": "aarch64"}
    arch = names.get(machine, machine)
    if sys.platform == "win32":
        return f"{arch}-pc-windows-msvc"
    if sys.platform == "darwin":
        return f"{arch}-apple-darwin"
    # On aarch64 the wheel, too, holds the static program of the musl archive.
    if arch == "x86_64" and platform.libc_ver()[0] == "glibc":
        return f"{arch}-unknown-linux-gnu"
    return f"{arch}-unknown-linux-musl"


def download(url: str) -> bytes:
    """Fetch one file; raise PassedOverError."""
    try:
        import ssl
        import urllib.request

        trust = ssl.create_default_context(cafile=environment().get("SSL_CERT_FILE"))
        with urllib.request.urlopen(url, timeout=8, context=trust) as answer:  # noqa: S310
            return bytes(answer.read(LARGEST_ARCHIVE))
    except (ImportError, OSError, ValueError) as error:
        raise PassedOverError(reason(f"{url}: {error}")) from error


def runnable(job: Job, program: bytes) -> Path:
    """Write a program into the stage, where it can be run."""
    path = job.stage / f"uv{EXE}"
    path.write_bytes(program)
    path.chmod(0o755)
    return path


def version_of(uv: Path) -> str:
    """Ask a uv for its version."""
    output = run([uv, "--version"], uv.parent, seconds=15)
    version = re.search(r"\d+\.\d+\.\d+", output)
    if not version:
        raise PassedOverError("it does not report its version")
    return version.group()


def numbers(version: str) -> Tuple[int, ...]:
    """Return a version as it is compared."""
    return tuple(int(part) for part in version.split("."))


UV_WAYS = {
    "on PATH or kept": uv_at_hand,
    "pinned wheel, by pip": uv_by_pip,
    "release archive": uv_from_archive,
}


# The tool's environment


def tool_environment(kit: Kit) -> Path:
    """Return the tool's environment, which is made if it is not there yet."""
    began = time.monotonic()
    tool = data_folder() / kit.name
    check_owners(python_of(tool))
    # Folders that others cannot write to, also if the user's umask would let them.
    usual = os.umask(0o022)
    os.umask(usual | 0o022)
    try:
        if not python_of(tool).exists():
            with staging_folder(tool.parent) as stage:
                # Another run may have made it while this one waited.
                if not python_of(tool).exists():
                    make_tool(Job(kit, stage, tool.parent), tool)
    finally:
        os.umask(usual)
    step("tool", str(tool), began)
    with suppress(OSError):
        os.utime(tool)
    return tool


def make_tool(job: Job, tool: Path) -> None:
    """Make the tool's environment beside its place and move it there; forget environments of long ago."""
    for name, content in job.kit.files.items():
        (job.stage / name).write_bytes(content)
    uv = get_uv(job)
    try:
        build(job, uv)
    except PassedOverError as passed:
        message = "gpuinstall's own environment could not be made"
        raise BootstrapError(4, message, [str(passed)], ways_out(str(passed))) from passed
    if tool.exists():
        tool.rename(job.stage / "without its Python")
    (job.stage / "tool").rename(tool)
    point_at(tool)
    remove_old(job.data)


def build(job: Job, uv: Path) -> None:
    """Make an environment: the pinned dependencies by their hashes, then the tool itself without any network."""
    tool = job.stage / "tool"
    python = "cpython>={}.{}".format(*TOOL_PYTHON)
    if sys.implementation.name == "cpython" and sys.version_info >= TOOL_PYTHON:
        python = sys.executable or python
    options = ["--quiet", "--relocatable", "--no-project"]
    run([uv, "venv", *options, "--python", python, tool], job.stage)
    install = ["pip", "install", "--quiet", "--compile-bytecode", "--python", python_of(tool)]
    for wheel in job.stage.glob("wheels/*.whl"):
        # uv itself, which pip has downloaded.
        run([uv, *install, "--no-deps", "--no-index", wheel], job.stage)
    pinned = ["--no-build", "--require-hashes", "--requirements", job.stage / "tool.txt"]
    if pip_settings().get("no-index", "").lower() in {"1", "true", "yes", "on"}:
        pinned.append("--no-index")
    run([uv, *install, *pinned], job.stage)
    own_uv = python_of(tool).with_name(f"uv{EXE}")
    source = job.kit.clone or next(job.stage.glob("*.whl"))
    run([own_uv, *install, "--offline", "--no-cache", "--no-deps", source], job.stage)


def point_at(tool: Path) -> None:
    """Let `gpuinstall` in the data folder's bin start this environment's."""
    launcher = tool.parent / "bin" / "gpuinstall"
    launcher.parent.mkdir(exist_ok=True)
    if WINDOWS:
        command = f'@"{python_of(tool)}" -I -m gpuinstall %*\n'
        launcher.with_suffix(".cmd").write_text(command, encoding="utf-8")
        return
    # man looks beside bin.
    links = {
        launcher: f"../{tool.name}/bin/gpuinstall",
        tool.parent / "share": f"{tool.name}/share",
    }
    for link, target in links.items():
        fresh = link.with_name(f".{os.getpid()}")
        fresh.symlink_to(target)
        fresh.replace(link)


def remove_old(data: Path) -> None:
    """Remove all but the environments used last."""
    tools = [folder for folder in data.iterdir() if TOOL_NAME.fullmatch(folder.name)]
    tools.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in tools[KEPT_ENVIRONMENTS:]:
        shutil.rmtree(folder, ignore_errors=True)


def check_owners(path: Path) -> None:
    """Raise BootstrapError if another user can exchange a path of the data folder, or anything on the way to it."""
    part = changeable_by_others(path, data_folder())
    if part:
        raise BootstrapError(
            4,
            f"another user can change {part}, and so what is run from it",
            do=["export XDG_DATA_HOME=/path/to/folder   # of your own; run this again"],
        )


def changeable_by_others(path: Path, closed: Path) -> Optional[Path]:
    """Return the first part of the way to a path that another user can exchange; None if there is none.

    A sticky folder is safe to pass through, as only the owner of an entry can exchange it, but not to hold programs:
    ``closed`` and all below it belong to their owner alone. What a last link leads to is not looked at.
    """
    if WINDOWS:
        return None
    # In a user namespace, root is seen as another user.
    owners = {0, os.getuid(), Path("/").stat().st_uid}
    closed = closed.resolve()
    for part in (*way_to(path.parent), path):
        try:
            status = part.lstat()
        except FileNotFoundError:
            return None
        is_open = bool(status.st_mode & stat.S_IWOTH) and not stat.S_ISLNK(status.st_mode)
        if is_open and status.st_mode & stat.S_ISVTX:
            place = part.resolve()
            is_open = closed in (place, *place.parents)
        if is_open or status.st_uid not in owners:
            return part
    return None


def way_to(path: Path) -> Iterator[Path]:
    """Yield each folder and each link that a path leads through, the path included, from the root on."""
    for part in (*reversed(path.parents), path):
        yield part
        if part.is_symlink():
            yield from way_to(part.parent / os.readlink(part))


@contextmanager
def staging_folder(data: Path) -> Iterator[Path]:
    """Lend an empty folder in the data folder to one run at a time; what is left in it at the end is removed."""
    made = [folder for folder in (data, *data.parents) if not folder.exists()]
    data.mkdir(parents=True, exist_ok=True)
    handle = None
    is_alone = False
    try:
        # Neither Windows nor every file system can.
        with suppress(ImportError, OSError):
            import fcntl

            handle = os.open(data, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX)
            is_alone = True
        # Another run may have failed and removed it, or another user been faster.
        data.mkdir(parents=True, exist_ok=True)
        for path in (data, *data.glob("*")):
            check_owners(path)
        if is_alone:
            for leftover in data.glob(".new-????????"):
                shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=data) as stage:
            yield Path(stage)
    finally:
        if handle is not None:
            os.close(handle)
        with suppress(OSError):
            for folder in made:
                folder.rmdir()


def data_folder() -> Path:
    """Return the user's data folder for the tool, by each system's rule."""
    folder = Path(os.environ.get("LOCALAPPDATA" if WINDOWS else "XDG_DATA_HOME", ""))
    if not folder.is_absolute():
        usual = {"win32": "AppData/Local", "darwin": "Library/Application Support"}
        folder = Path.home() / usual.get(sys.platform, ".local/share")
    return folder / "gpuinstall"


def python_of(folder: Path) -> Path:
    """Return an environment's Python."""
    return folder / ("Scripts" if WINDOWS else "bin") / f"python{EXE}"


# The command


def hand_over(tool: Path, arguments: Sequence[str]) -> int:
    """Become gpuinstall, which installs, or runs the command that was given; on Windows, start it and wait."""
    python = str(python_of(tool))
    argv = [python, "-I", "-m", "gpuinstall", "bootstrap", *arguments]
    if WINDOWS:
        return subprocess.call(argv)
    return os.execv(python, argv)  # noqa: S606


def ways_out(seen: str) -> List[str]:
    """Return what a person can do, by what was seen: room, or what stands between a person and an index."""
    if NO_SPACE.search(seen) or not seen:
        folders = (
            "LOCALAPPDATA UV_CACHE_DIR TEMP" if WINDOWS else "XDG_DATA_HOME UV_CACHE_DIR TMPDIR"
        )
        elsewhere = " ".join(f"{name}=/path/to/folder" for name in folders.split())
        return [
            "df -h   # which disk is full",
            f"export {elsewhere}   # another disk; run this again",
        ]
    # uv has certificates of its own, and does not look at those that a network has added to the system's.
    certificates = next(filter(os.path.isfile, SYSTEM_CERTIFICATES), "/path/to/certificates.pem")
    return [
        "export HTTPS_PROXY=http://proxy.example:3128   # behind a proxy",
        "export PIP_INDEX_URL=https://index.example/simple   # for an index of your own",
        f"export SSL_CERT_FILE={certificates}   # for certificates of your own",
    ]


def give_up(failure: BootstrapError, arguments: Sequence[str]) -> int:
    """Report what happened, why, and the ways out; with ``--json`` as a document too."""
    ways = failure.do
    if WINDOWS:
        ways = [re.sub("^export ", "set ", way) for way in ways]
    if "--json" in arguments:
        error = {"code": "bootstrap", "message": failure.message, "hint": "; ".join(ways)}
        document = {
            "gpuinstall": 1,
            "command": "install",
            "status": "error",
            "exit_code": failure.status,
            "errors": [error],
        }
        print(json.dumps(document, indent=2))
    say(f"error: {failure.message}")
    for label, lines in {"seen": failure.seen, "do": ways}.items():
        for position, line in enumerate(lines):
            say(f"  {'' if position else label:<5} {line}")
    say("Nothing was installed.")
    return failure.status


def step(label: str, text: str, began: Optional[float] = None) -> None:
    """Report a step on stderr, one line with its time; ``began`` is when it did, by the monotonic clock."""
    if os.environ.get("GPUINSTALL_QUIET") or {"-q", "--quiet"} & set(sys.argv):
        return
    took = "" if began is None else f"{time.monotonic() - began:.1f} s"
    say(f"  {label:<19} {text:<46} {took:>10}".rstrip())


def say(text: str) -> None:
    """Write a line to stderr; if nobody listens, the work goes on."""
    with suppress(OSError, AttributeError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def install_handlers() -> None:
    """End as by Ctrl-C, with everything removed, if a scheduler or a closed terminal ends us."""
    for name in ("SIGTERM", "SIGHUP"):
        # Windows has no SIGHUP.
        number = getattr(signal, name, None)
        if number and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def main(arguments: Sequence[str]) -> int:
    """Do it all; return the exit status."""
    if sys.version_info < OLDEST_PYTHON:
        message = f"bootstrap.py requires Python 3.8 or newer; this is {platform.python_version()}"
        return give_up(BootstrapError(2, message), arguments)
    if "__file__" not in globals():
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        install_handlers()
        return hand_over(tool_environment(read_kit()), arguments)
    except BootstrapError as failure:
        return give_up(failure, arguments)
    except (OSError, RuntimeError) as error:
        return give_up(BootstrapError(4, str(error), do=ways_out("")), arguments)
    except KeyboardInterrupt:
        return give_up(BootstrapError(130, "interrupted"), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
