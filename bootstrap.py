#!/usr/bin/env python3
"""Get uv, make gpuinstall's own environment, and hand over: to `gpuinstall install`, or to the command that is given.

Needs Python 3.8 and nothing else. Runs from a file or from stdin, asks nothing, needs no administrator, touches no
other environment, and does nothing before its last line.
"""

import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[
        0
    ]  # the folder of this file, or the working folder: what lies there is no module of Python's
try:
    import base64
    import hashlib
    import io
    import json
    import os
    import platform
    import re
    import shlex
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
    from configparser import ConfigParser, Error
    from contextlib import contextmanager, suppress
    from functools import lru_cache
    from html import unescape
    from importlib.util import find_spec
    from pathlib import Path
    from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple
    from urllib.parse import SplitResult, unquote, urldefrag, urljoin, urlsplit
except ImportError as missing:
    sys.stderr.write(
        f"error: this Python has no module {missing.name}, which is part of the standard library\n"
    )
    sys.stderr.write(
        "  do    sudo apt-get install python3   # or another complete Python 3.8 or newer\n"
    )
    sys.exit(2)

PAYLOAD = ""
OLDEST_PYTHON: Tuple[int, int] = (3, 8)  # needs Python 3.8 or newer: python3 bootstrap.py
WINDOWS = os.name == "nt"
TOOL_PYTHON = (3, 10)
KEPT_ENVIRONMENTS = 3
TOOL_NAME = re.compile(r"\d[\w.]*-[0-9a-f]{12}")
UV_NAME = re.compile(r"uv-\d+\.\d+\.\d+")
LEFTOVER_NAME = re.compile(r"\.new-\w{8}")
ANSWER_S = 15.0
PINS = ("uv.txt", "uv-programs.txt", "tool.txt")
ARCHIVES = "https://github.com/astral-sh/uv/releases/download"
NOT_TRUSTED = "the server's certificate is not trusted (SSL_CERT_FILE names a file of certificates)"
UNTRUSTED = ("CERTIFICATE_VERIFY_FAILED", "UnknownIssuer", "unable to get local issuer")
SYSTEM_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
)
FROM_PIP = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE", "find-links": "UV_FIND_LINKS"}
OUR_DEFAULTS = {"UV_HTTP_RETRIES": "1", "UV_NO_PROGRESS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
PIP_SECTIONS = ("global", "install", "download")
SET = "set" if WINDOWS else "export"
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")
NO_SPACE = re.compile(
    r"No space left on device|os error 28|Errno 28|Disk quota exceeded", re.IGNORECASE
)
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


class Screen(NamedTuple):
    """Where steps are reported: one line each, with its time, on stderr."""

    quiet: bool

    def step(
        self,
        label: str,
        text: str,
        began: Optional[float] = None,
    ) -> None:
        """Report one step; ``began`` is when it did, by the monotonic clock."""
        if self.quiet:
            return
        took = "" if began is None else f"{time.monotonic() - began:.1f} s"
        say(f"  {label:<19} {text:<46} {took:>10}".rstrip())


class Job(NamedTuple):
    """One run: what to build, where it is being built, where it will lie, and where to report it."""

    kit: Kit
    stage: Path
    data: Path
    screen: Screen


# The kit


def read_kit() -> Kit:
    """Read what this file carries, or else the clone that it lies in; raise BootstrapError if it is alone."""
    if PAYLOAD:
        return kit_from_payload(base64.b85decode("".join(PAYLOAD.split())))
    here = Path(globals().get("__file__", "/nonexistent/bootstrap.py")).resolve().parent
    has_pins = (here / "lockfiles/tool.txt").is_file()
    if has_pins and (here / "src/gpuinstall").is_dir():
        return kit_from_clone(here)
    raise BootstrapError(
        2,
        "this bootstrap.py works only in a clone of gpuinstall",
        do=[
            "Run the bootstrap.py of a clone of gpuinstall",
            "make bootstrap   # in a clone: one file, dist/bootstrap.py",
        ],
    )


def kit_from_payload(payload: bytes) -> Kit:
    """Unpack what ``make bootstrap`` packed: the pins and the tool's wheel."""
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    wheel = next(name for name in files if name.endswith(".whl"))
    return Kit(wheel.split("-")[1], files, None, hashlib.sha256(files[wheel]).hexdigest())


def kit_from_clone(clone: Path) -> Kit:
    """Read a clone's pins, and digest what its wheel would be built from."""
    settings = (clone / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.+)"', settings, re.MULTILINE)
    files = {name: (clone / "lockfiles" / name).read_bytes() for name in PINS}
    return Kit(
        version.group(1) if version else "0",
        files,
        clone,
        digest=digest_of(clone),
    )


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


def run(
    argv: Sequence[object],
    cwd: Optional[Path] = None,
    seconds: Optional[float] = None,
    env: Optional[Dict[str, str]] = None,
) -> str:
    """Run a program with nothing on its stdin; return its output, raise PassedOverError with the reason it gives."""
    words = [str(word) for word in argv]
    if env is None:
        env = environment()
    try:
        done = subprocess.run(
            words,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PassedOverError(f"no answer in {seconds:.0f} s") from error
    except OSError as error:
        raise PassedOverError(str(error)) from error
    out = done.stdout.decode("utf-8", "replace")
    err = done.stderr.decode("utf-8", "replace")
    if done.returncode:
        raise PassedOverError(reason(err or out) or f"{words[0]} ended with {done.returncode}")
    return out.strip()


def reason(output: str) -> str:
    """Return the lines that tell why, and for missing CA certificates just that; without passwords in addresses."""
    if any(mark in output for mark in UNTRUSTED):
        return NOT_TRUSTED
    if NO_SPACE.search(output):
        return "no space left on device"
    unreachable = re.search(r"connection broken by .*>[:,] '?([^']+)'", output)
    if unreachable:
        lines = [unreachable.group(1)]
    else:
        lines = list(filter(None, map(str.strip, output.splitlines())))
    causes = [line for line in lines if re.match(r"error|cause", line, re.IGNORECASE)]
    message = "; ".join(causes[:3] or lines[-1:])
    return re.sub(r"://[^/\s]+@", "://****@", message)[:300]


@lru_cache(maxsize=None)
def pip_listing() -> Optional[str]:
    """Ask pip for its settings; None if the Python that runs this has no pip that works."""
    with suppress(PassedOverError):
        return run(
            [sys.executable, "-m", "pip", "config", "list"],
            cwd=Path(sys.prefix),
            env=dict(os.environ),
        )
    return None


def pip_files() -> Dict[str, str]:
    """Read the settings of pip's usual files, for a Python that has no pip to ask."""
    places = [Path("/etc/pip.conf"), home() / ".pip/pip.conf", home() / ".config/pip/pip.conf"]
    places += [below("APPDATA", "pip/pip.ini"), below("XDG_CONFIG_HOME", "pip/pip.conf")]
    own_file = os.environ.get("PIP_CONFIG_FILE")
    if own_file == os.devnull:
        return {}
    if own_file:
        places.append(Path(own_file))
    files = ConfigParser(interpolation=None)
    try:
        files.read(places, encoding="utf-8")
    except (Error, UnicodeDecodeError):
        return {}
    settings: Dict[str, str] = {}
    for section in PIP_SECTIONS:
        if section in files:
            settings.update(files[section])
    return settings


def pip_settings() -> Dict[str, str]:
    """Read pip's own settings, those of its files and then its variables, by pip's option names."""
    listing = pip_listing()
    settings = {}
    if listing is None:
        settings = pip_files()
    for section in PIP_SECTIONS:
        line = rf"^{section}\.([a-z-]+)=(.+)$"
        for name, value in re.findall(line, listing or "", re.MULTILINE):
            settings[name] = str(literal_eval(value))
    for name in (*FROM_PIP, "no-index"):
        variable = "PIP_" + name.upper().replace("-", "_")
        value = os.environ.get(variable)
        if value:
            settings[name] = value
    return settings


def home() -> Path:
    """Return the user's home; a folder that is not there for a user who has none."""
    with suppress(RuntimeError, KeyError):
        return Path.home()
    return Path("/nonexistent")


def below(variable: str, name: str) -> Path:
    """Return a folder below the one that a variable names; below nowhere if it names none."""
    return Path(os.environ.get(variable) or "/nonexistent") / name


def environment() -> Dict[str, str]:
    """Return the environment of pip and uv: the user's own, where to find packages filled in from pip's settings."""
    settings = pip_settings()
    if "REQUESTS_CA_BUNDLE" in os.environ:
        settings["cert"] = os.environ["REQUESTS_CA_BUNDLE"] or settings.get("cert", "")
    settings["find-links"] = ",".join(settings.get("find-links", "").split())
    if uv_names_an_index():
        settings["index-url"] = ""
    env = dict(OUR_DEFAULTS)
    for name, variable in FROM_PIP.items():
        value = settings.get(name)
        if value:
            env[variable] = value
    env.update(os.environ)
    for name in NOT_FOR_CHILDREN.split():
        env.pop(name, None)
    env["PIP_REQUIRE_VIRTUALENV"] = "0"
    env["PIP_NO_INPUT"] = "1"
    return env


def uv_names_an_index() -> bool:
    """Whether uv has an index from the user already."""
    if "UV_INDEX_URL" in os.environ:
        return True
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or home() / ".config")
    settings = folder / "uv/uv.toml"
    return settings.is_file() and "index" in settings.read_text(encoding="utf-8")


def search_path() -> List[Path]:
    """Return the folders of PATH that a stranger cannot write to; version managers' shims are no programs."""
    folders = []
    for name in os.environ.get("PATH", "").split(os.pathsep):
        folder = Path(name)
        if folder.is_absolute() and folder.name != "shims" and is_private(folder):
            folders.append(folder)
    return folders


def is_private(folder: Path) -> bool:
    """Whether only its owner puts programs into a folder."""
    try:
        status = folder.stat()
    except OSError:
        return False
    if WINDOWS or not status.st_mode & stat.S_IWOTH:
        return True
    is_sticky = bool(status.st_mode & stat.S_ISVTX)
    return is_sticky and status.st_uid == os.getuid()


# uv


def get_uv(job: Job) -> Path:
    """Find uv or fetch the pinned one; raise BootstrapError with the reason that each way was passed over."""
    reasons = []
    for name, way in UV_WAYS.items():
        began = time.monotonic()
        try:
            uv = way(job)
        except PassedOverError as passed:
            reasons.append(f"{name}: {passed}")
        else:
            job.screen.step(f"uv {version_of(uv)}", name, began)
            return uv
    if any(map(NO_SPACE.search, reasons)):
        raise BootstrapError(4, "a disk is full", reasons, ways_to_room())
    message = f"uv {job.kit.uv_version} is not here and could not be downloaded"
    raise BootstrapError(4, message, reasons, ways_to_uv(job))


def uv_at_hand(job: Job) -> Path:
    """Take the first uv, on PATH or fetched by an earlier run, that is as new as the pinned one."""
    programs = [folder / program_name("uv") for folder in search_path()]
    reasons = []
    for program in (*programs, kept_uv(job)):
        if os.access(str(program), os.X_OK):
            reason_against = too_old(program, job.kit.uv_version)
            if reason_against is None:
                return program
            reasons.append(reason_against)
    raise PassedOverError(", ".join(reasons) or "none")


def too_old(uv: Path, oldest: str) -> Optional[str]:
    """Return why a uv will not do, or None."""
    try:
        version = version_of(uv)
    except PassedOverError as passed:
        return f"{uv} does not run ({passed})"
    if numbers(version) < numbers(oldest):
        return f"{uv} is {version}"
    return None


def uv_by_pip(job: Job) -> Path:
    """Fetch the pinned wheel by the pip of the Python that runs this."""
    if pip_listing() is None:
        raise PassedOverError("this Python has no working pip")
    return uv_from_wheel(job, sys.executable)


def uv_by_venv(job: Job) -> Path:
    """Fetch the pinned wheel by the pip that a virtual environment brings along."""
    if pip_listing() is not None:
        raise PassedOverError("skipped, as it would fail like pip itself")
    if not find_spec("ensurepip"):
        raise PassedOverError(
            "this Python has no ensurepip (in the package python3-venv of Debian and Ubuntu)"
        )
    run([sys.executable, "-m", "venv", job.stage / "venv"])
    return uv_from_wheel(job, python_of(job.stage / "venv"))


def uv_from_wheel(job: Job, python: object) -> Path:
    """Let pip fetch the pinned wheel and check its hash, and keep the program inside."""
    wheels = job.stage / "wheels"
    command = [
        python,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--retries",
        "1",
        "--timeout",
        "8",
        "--require-hashes",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--requirement",
        job.stage / "uv.txt",
        "--dest",
        wheels,
    ]
    run(command, cwd=job.stage)
    wheel = next(wheels.iterdir())
    return keep(job, extract_uv(wheel.read_bytes()))


def uv_from_index(job: Job) -> Path:
    """Fetch the pinned wheel from the index that is configured, without any pip, and check its hash."""
    index = environment().get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL", "")
    if not index:
        raise PassedOverError("no index is configured (UV_DEFAULT_INDEX names one)")
    page = index.rstrip("/") + "/uv/"
    text = download(page).decode("utf-8", "replace")
    for link in re.findall(r"""href\s*=\s*["']([^"']+)""", text):
        address = urljoin(page, unescape(link))
        if is_for_here(address, job):
            break
    else:
        raise PassedOverError(
            f"{without_login(index)} has no uv {job.kit.uv_version} for this machine"
        )
    wheel = download(urldefrag(address).url, login=urlsplit(index))
    digest = hashlib.sha256(wheel).hexdigest()
    if f"sha256:{digest}" not in job.kit.files["uv.txt"].decode():
        raise PassedOverError(f"{wheel_name(address)} is not the pinned one")
    return keep(job, extract_uv(wheel))


def is_for_here(address: str, job: Job) -> bool:
    """Whether an address is that of the pinned uv's wheel for this machine."""
    target = archive_target()
    systems = {
        "msvc": "win",
        "darwin": "macosx",
        "gnu": "manylinux",
        "musl": "musllinux|manylinux_2_28|manylinux2014",
    }
    architectures = {
        "x86_64": "x86_64|amd64",
        "aarch64": "aarch64|arm64",
    }
    system = systems[target.rsplit("-", 1)[1]]
    architecture = architectures.get(target.split("-", 1)[0], "none")
    version = re.escape(job.kit.uv_version)
    form = rf"uv-{version}-py3-none-(any|.*({system}).*({architecture}).*)\.whl"
    return re.fullmatch(form, wheel_name(address)) is not None


def wheel_name(address: str) -> str:
    """Return the name of the file at an address."""
    path = urlsplit(address).path
    return unquote(path.rsplit("/", 1)[-1])


def uv_from_archive(job: Job) -> Path:
    """Fetch uv's own release archive, and keep the program inside if it is, bit by bit, the one pinned."""
    archive = download(archive_url(job))
    program = extract_uv(archive)
    own_digest = os.environ.get("GPUINSTALL_UV_SHA256", "").lower()
    is_pinned = pinned_program(job) == hashlib.sha256(program).hexdigest()
    if is_pinned or own_digest == hashlib.sha256(archive).hexdigest():
        return keep(job, program)
    raise PassedOverError(f"{archive_url(job)} is not the pinned uv {job.kit.uv_version}")


def archive_url(job: Job) -> str:
    """Return the release archive for this machine, on GitHub or on the mirror that GPUINSTALL_UV_MIRROR names."""
    base = os.environ.get("GPUINSTALL_UV_MIRROR") or ARCHIVES
    form = "zip" if WINDOWS else "tar.gz"
    return f"{base.rstrip('/')}/{job.kit.uv_version}/uv-{archive_target()}.{form}"


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


def pinned_program(job: Job) -> Optional[str]:
    """Return the sha256 of this machine's uv program: that of the hash-pinned wheel, which the archive shares."""
    for line in job.kit.files["uv-programs.txt"].decode().splitlines():
        target, _, digest = line.partition(" ")
        if target == archive_target():
            return digest.strip()
    return None


def without_login(url: str) -> str:
    """Return an address without the user's name and password."""
    parts = urlsplit(url)
    host = parts.netloc.rsplit("@", 1)[-1]
    return parts._replace(netloc=host).geturl()


def download(url: str, login: Optional[SplitResult] = None) -> bytes:
    """Fetch one file, with the login of the address or of ``login`` if that is its host; raise PassedOverError."""
    import urllib.request

    headers = {"User-Agent": "gpuinstall-bootstrap"}
    request = urllib.request.Request(without_login(url), headers=headers)  # noqa: S310
    parts = urlsplit(url)
    if login and login.hostname == parts.hostname and not parts.username:
        parts = login
    if parts.username:
        words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        encoded = base64.b64encode(words.encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {encoded}")
    try:
        import ssl

        trust = ssl.create_default_context(cafile=environment().get("SSL_CERT_FILE"))
        with urllib.request.urlopen(request, timeout=8, context=trust) as answer:  # noqa: S310
            return bytes(answer.read())
    except (ImportError, OSError, ValueError) as error:
        raise PassedOverError(reason(f"{without_login(url)}: {error}")) from error


def extract_uv(archive: bytes) -> bytes:
    """Take the uv program out of a wheel, a zip or a tar archive."""
    content = io.BytesIO(archive)
    try:
        if zipfile.is_zipfile(content):
            with zipfile.ZipFile(content) as folder:
                name = next(filter(is_uv, folder.namelist()))
                return folder.read(name)
        content.seek(0)
        with tarfile.open(fileobj=content) as tape:
            name = next(filter(is_uv, tape.getnames()))
            file = tape.extractfile(name)
            return file.read() if file else b""
    except (tarfile.TarError, zipfile.BadZipFile, StopIteration, EOFError) as error:
        raise PassedOverError("the download is not an archive of uv") from error


def is_uv(name: str) -> bool:
    """Whether a member of an archive is the uv program, not the Python module of that name."""
    return name.rsplit("/", 1)[-1] == program_name("uv")


def keep(job: Job, program: bytes) -> Path:
    """Put a uv that runs into its own folder, complete or not at all."""
    fresh = job.stage / program_name("uv")
    fresh.write_bytes(program)
    fresh.chmod(0o755)
    version_of(fresh)
    kept_uv(job).parent.mkdir(exist_ok=True)
    return fresh.replace(kept_uv(job))


def kept_uv(job: Job) -> Path:
    """Return where a fetched uv lies."""
    return job.data / f"uv-{job.kit.uv_version}" / program_name("uv")


def version_of(uv: Path) -> str:
    """Ask a uv for its version."""
    output = run([uv, "--version"], seconds=ANSWER_S)
    version = re.search(r"\d+\.\d+\.\d+", output)
    if not version:
        raise PassedOverError(f"{uv} does not report its version")
    return version.group()


def numbers(version: str) -> Tuple[int, ...]:
    """Return a version as it is compared."""
    return tuple(int(part) for part in version.split("."))


def ways_to_uv(job: Job) -> List[str]:
    """Return what a person can do if there is no uv."""
    ways = []
    if pip_listing() is None and not find_spec("ensurepip") and shutil.which("apt-get"):
        ways.append("sudo apt-get install python3-venv   # then run this again")
    _, version, file = archive_url(job).rsplit("/", 2)
    return [
        *ways,
        *ways_to_network(),
        f"{SET} GPUINSTALL_UV_MIRROR=https://mirror.example/uv   # a mirror of uv's releases that has {version}/{file}",
        "Or install uv as https://docs.astral.sh/uv says, then run this again",
    ]


def ways_to_environment(seen: str) -> List[str]:
    """Return what a person can do if an environment could not be made, by what was seen."""
    if NO_SPACE.search(seen):
        return ways_to_room()
    ways = ways_to_network()
    if seen == NOT_TRUSTED:
        return ways[-1:]
    if sys.version_info < TOOL_PYTHON and "python" in seen.lower():
        mirror = "UV_PYTHON_INSTALL_MIRROR=https://mirror.example"
        ways.insert(0, f"Install Python 3.10 or newer, or say where uv gets one: {mirror}")
    return ways


def ways_to_network() -> List[str]:
    """Return the settings that most often stand between a person and an index: a proxy, another index, certificates."""
    proxy = f"{SET} HTTPS_PROXY=http://proxy.example:3128   # behind a proxy"
    for name in PROXIES:
        if os.environ.get(name):
            proxy = f"Check the proxy: {name} is {without_login(os.environ[name])}"
            break
    index = f"{SET} PIP_INDEX_URL=https://index.example/simple   # for an index of your own"
    file = os.environ.get("SSL_CERT_FILE")
    if file:
        certificates = f"Check the file of certificates: SSL_CERT_FILE is {file}"
    else:
        # uv has certificates of its own, and does not look at those that a network has added to the system's.
        present = filter(os.path.isfile, SYSTEM_CERTIFICATES)
        file = next(present, "/path/to/certificates.pem")
        certificates = f"{SET} SSL_CERT_FILE={file}   # for certificates of your own"
    return [proxy, index, certificates]


def ways_to_room() -> List[str]:
    """Return what a person can do if a disk is full or a folder cannot be written: write everything elsewhere."""
    if WINDOWS:
        variables = ["LOCALAPPDATA", "UV_CACHE_DIR", "TEMP"]
    else:
        variables = ["XDG_DATA_HOME", "UV_CACHE_DIR", "TMPDIR"]
    elsewhere = " ".join(f"{variable}=/path/to/folder" for variable in variables)
    return [
        "df -h   # which disk is full",
        f"{SET} {elsewhere}   # another disk, a folder of your own; run this again",
    ]


UV_WAYS: Dict[str, Callable[[Job], Path]] = {
    "on PATH or kept": uv_at_hand,
    "pinned wheel, by pip": uv_by_pip,
    "pinned wheel, by a venv's pip": uv_by_venv,
    "pinned wheel, from the index": uv_from_index,
    "release archive": uv_from_archive,
}


# Python


def python_to_build_with() -> str:
    """Return the Python that the tool is to run on: this one if it will do, else any that uv finds or fetches."""
    if sys.implementation.name == "cpython" and sys.version_info >= TOOL_PYTHON:
        if sys.executable:
            return sys.executable
    return "cpython>={}.{}".format(*TOOL_PYTHON)


def python_folders() -> Iterator[Path]:
    """Yield the folders in which uv is to look: those of PATH, then pyenv's and conda's, which it does not know."""
    yield from search_path()
    condas = [
        home() / "miniforge3",
        home() / "mambaforge",
        home() / "miniconda3",
        home() / "anaconda3",
        Path("/opt/conda"),
        below("CONDA_PREFIX", "."),
    ]
    folders = [
        below("PYENV_ROOT", "versions"),
        home() / ".pyenv/versions",
        home() / ".pyenv/pyenv-win/versions",
        *(conda / "envs" for conda in condas),
    ]
    roots = list(condas)
    for folder in folders:
        roots += folder.glob("*")
    for root in roots:
        yield root if WINDOWS else root / "bin"


# The tool's environment


def tool_environment(kit: Kit, screen: Screen) -> Path:
    """Return the tool's environment, which is made if it is not there yet."""
    began = time.monotonic()
    data = data_folder()
    tool = data / kit.name
    check_owners(python_of(tool))
    if python_of(tool).exists():
        screen.step("tool", display_path(tool), began)
    else:
        with private_umask(), staging_folder(data, screen) as stage:
            # Another run may have made it while this one waited.
            if not python_of(tool).exists():
                tool_in_place(Job(kit, stage, data, screen), tool)
    with suppress(OSError):
        os.utime(str(tool))
    return tool


def tool_in_place(job: Job, tool: Path) -> None:
    """Make the tool's environment beside its place and move it there; forget environments of long ago."""
    for name, content in job.kit.files.items():
        (job.stage / name).write_bytes(content)
    uv = get_uv(job)
    began = time.monotonic()
    try:
        build(job, uv)
    except PassedOverError as passed:
        seen = str(passed)
        message = "gpuinstall's own environment could not be made"
        raise BootstrapError(4, message, [seen], ways_to_environment(seen)) from passed
    if tool.exists():
        tool.rename(job.stage / "without its Python")
    (job.stage / "tool").rename(tool)
    point_at(tool)
    remove_old(job.data, kept_uv(job).parent)
    job.screen.step("tool", display_path(tool), began)


def build(job: Job, uv: Path) -> None:
    """Make an environment: the pinned dependencies by their hashes, then the tool itself without any network."""
    tool = job.stage / "tool"
    env = environment()
    env["PATH"] = os.pathsep.join(map(str, python_folders()))
    venv = [
        uv,
        "venv",
        "--quiet",
        "--relocatable",
        "--no-project",
        "--python",
        python_to_build_with(),
        tool,
    ]
    run(venv, cwd=job.stage, env=env)
    into = [
        "pip",
        "install",
        "--quiet",
        "--compile-bytecode",
        "--python",
        python_of(tool),
    ]
    for wheel in job.stage.glob("wheels/*.whl"):
        run([uv, *into, "--no-deps", "--no-index", wheel], cwd=job.stage)
    if pip_settings().get("no-index", "").lower() in {"1", "true", "yes", "on"}:
        index = ["--no-index"]
    else:
        index = []
    dependencies = [
        uv,
        *into,
        "--no-build",
        "--require-hashes",
        *index,
        "--requirements",
        job.stage / "tool.txt",
    ]
    run(dependencies, cwd=job.stage)
    own_uv = python_of(tool).with_name(program_name("uv"))
    source = job.kit.clone or next(job.stage.glob("*.whl"))
    run([own_uv, *into, "--offline", "--no-cache", "--no-deps", source], cwd=job.stage)


def point_at(tool: Path) -> None:
    """Let `gpuinstall` in the data folder's bin start this environment's."""
    launcher = tool.parent / "bin" / "gpuinstall"
    launcher.parent.mkdir(exist_ok=True)
    if WINDOWS:
        command = f'@"{python_of(tool)}" -I -m gpuinstall %*\n'
        launcher.with_suffix(".cmd").write_text(command, encoding="utf-8")
        return
    links = {
        launcher: "bin/gpuinstall",
        # man looks beside bin.
        tool.parent / "share": "share",
    }
    for link, target in links.items():
        fresh = link.with_name(f".{os.getpid()}")
        fresh.symlink_to(os.path.relpath(str(tool / target), str(link.parent)))
        fresh.replace(link)


def remove_old(data: Path, current_uv: Path) -> None:
    """Remove all but the environments used last, and uv of other versions."""
    tools = []
    uvs = []
    for folder in data.iterdir():
        if TOOL_NAME.fullmatch(folder.name):
            tools.append(folder)
        elif UV_NAME.fullmatch(folder.name) and folder != current_uv:
            uvs.append(folder)
    tools.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in (*tools[KEPT_ENVIRONMENTS:], *uvs):
        shutil.rmtree(str(folder), ignore_errors=True)


def check_owners(path: Path) -> None:
    """Raise BootstrapError if another user can exchange a path of the data folder, or anything on the way to it.

    A sticky folder is safe to pass through, as only the owner of an entry can exchange it, but not to hold the tool,
    whose name can be foreseen: whoever makes it first owns it. What a Python that is a link leads to is not ours.
    """
    if WINDOWS:
        return
    # In a user namespace, root is seen as another user.
    owners = {0, os.getuid(), Path("/").stat().st_uid}
    data = data_folder().resolve()
    elsewhere = f"{SET} XDG_DATA_HOME=/path/to/folder   # a folder of your own; then run this again"
    for part in (*way_to(path.parent), path):
        try:
            status = part.lstat()
        except FileNotFoundError:
            return
        if status.st_uid not in owners:
            message = (
                f"{part} belongs to another user (uid {status.st_uid}), "
                "who could change what is run from it"
            )
            ways = [elsewhere]
            if "SUDO_UID" in os.environ:
                ways.insert(0, "Run it without sudo, or with root's own home: sudo -H")
            raise BootstrapError(4, message, do=ways)
        if stat.S_ISLNK(status.st_mode) or not status.st_mode & stat.S_IWOTH:
            continue
        is_sticky = bool(status.st_mode & stat.S_ISVTX)
        place = part.resolve()
        if not is_sticky or data in (place, *place.parents):
            message = f"everyone can write to {part}, and so change what is run from it"
            raise BootstrapError(4, message, do=[f"chmod o-w {shlex.quote(str(part))}", elsewhere])


def way_to(path: Path) -> Iterator[Path]:
    """Yield each folder and each link that a path leads through, the path included, from the root on."""
    for part in (*reversed(path.parents), path):
        yield part
        if part.is_symlink():
            yield from way_to(part.parent / os.readlink(str(part)))


@contextmanager
def private_umask() -> Iterator[None]:
    """Make folders that others cannot write to, also if the user's umask would let them."""
    usual = os.umask(0o022)
    os.umask(usual | 0o022)
    try:
        yield
    finally:
        os.umask(usual)


@contextmanager
def staging_folder(data: Path, screen: Screen) -> Iterator[Path]:
    """Lend an empty folder in the data folder to one run at a time; what is left in it at the end is removed."""
    made = [folder for folder in (data, *data.parents) if not folder.exists()]
    data.mkdir(parents=True, exist_ok=True)
    try:
        with exclusive(data, screen) as certain:
            data.mkdir(parents=True, exist_ok=True)
            # Another user may have been faster.
            for path in (data, *data.glob("*"), *data.glob("uv-*/*")):
                check_owners(path)
            remove_leftovers(data, 0 if certain else 86400)
            stage = Path(tempfile.mkdtemp(prefix=".new-", dir=str(data)))
            try:
                yield stage
            finally:
                shutil.rmtree(str(stage), ignore_errors=True)
    finally:
        with suppress(OSError):
            for folder in made:
                folder.rmdir()


@contextmanager
def exclusive(data: Path, screen: Screen) -> Iterator[bool]:
    """Wait for other runs on the data folder; the value is whether there certainly are none."""
    if WINDOWS:
        yield False
        return
    handle = os.open(str(data), os.O_RDONLY)
    try:
        if not locked(handle, wait=False):
            screen.step("tool", "waiting for another run that makes it")
        yield locked(handle, wait=True)
    finally:
        os.close(handle)


def locked(handle: int, *, wait: bool) -> bool:
    """Lock an open folder until it is closed; return whether that went, as not every file system can."""
    import fcntl

    operation = fcntl.LOCK_EX
    if not wait:
        operation |= fcntl.LOCK_NB
    try:
        fcntl.flock(handle, operation)
    except OSError:
        return False
    return True


def remove_leftovers(data: Path, age: float) -> None:
    """Remove what killed runs left, if it is older than ``age`` in seconds."""
    for folder in list(data.iterdir()):
        if not LEFTOVER_NAME.fullmatch(folder.name):
            continue
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime >= age:
                shutil.rmtree(str(folder), ignore_errors=True)


def data_folder() -> Path:
    """Return the user's data folder for the tool, by each system's rule."""
    variable = "LOCALAPPDATA" if WINDOWS else "XDG_DATA_HOME"
    folder = Path(os.environ.get(variable, ""))
    if not folder.is_absolute():
        usual = {
            "win32": "AppData/Local",
            "darwin": "Library/Application Support",
        }
        folder = home() / usual.get(sys.platform, ".local/share")
    return folder / "gpuinstall"


def python_of(folder: Path) -> Path:
    """Return an environment's Python."""
    programs = folder / ("Scripts" if WINDOWS else "bin")
    return programs / program_name("python")


def program_name(name: str) -> str:
    """Return the name of a program's file on this system."""
    return f"{name}.exe" if WINDOWS else name


def display_path(path: Path) -> str:
    """Return a path the short way."""
    text = str(path)
    start = f"{home()}{os.sep}"
    if text.startswith(start):
        return f"~{os.sep}{text[len(start) :]}"
    return text


# The command


def hand_over(tool: Path, arguments: Sequence[str]) -> int:
    """Become gpuinstall, which installs, or runs the command that was given; on Windows, start it and wait."""
    python = str(python_of(tool))
    argv = [
        python,
        "-I",
        "-m",
        "gpuinstall",
        "bootstrap",
        *arguments,
    ]
    if WINDOWS:
        return subprocess.call(argv)
    return os.execv(python, argv)  # noqa: S606


def give_up(failure: BootstrapError, arguments: Sequence[str]) -> int:
    """Report what happened, why, and the ways out; with ``--json`` as a document too."""
    if "--json" in arguments:
        error = {
            "code": "bootstrap",
            "message": failure.message,
            "hint": "; ".join(failure.do),
        }
        document = {
            "gpuinstall": 1,
            "command": "install",
            "status": "error",
            "exit_code": failure.status,
            "errors": [error],
        }
        print(json.dumps(document, indent=2))
    say(f"error: {failure.message}")
    sections = {"seen": failure.seen, "do": failure.do}
    for label, lines in sections.items():
        for position, line in enumerate(lines):
            say(f"  {'' if position else label:<5} {line}")
    say("Nothing was installed.")
    return failure.status


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
    is_quiet = "-q" in arguments or "--quiet" in arguments
    screen = Screen(is_quiet or bool(os.environ.get("GPUINSTALL_QUIET")))
    try:
        install_handlers()
        tool = tool_environment(read_kit(), screen)
        return hand_over(tool, arguments)
    except BootstrapError as failure:
        return give_up(failure, arguments)
    except (OSError, RuntimeError) as error:
        return give_up(BootstrapError(4, str(error), do=ways_to_room()), arguments)
    except KeyboardInterrupt:
        return give_up(BootstrapError(130, "interrupted"), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
