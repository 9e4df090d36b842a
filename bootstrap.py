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
UNTRUSTED = ("CERTIFICATE_VERIFY_FAILED", "UnknownIssuer", "unable to get local issuer")
FROM_PIP = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE", "find-links": "UV_FIND_LINKS"}
OUR_DEFAULTS = {"UV_HTTP_RETRIES": "1", "UV_NO_PROGRESS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
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
        self.status, self.message, self.seen, self.do = status, message, seen, do


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
        return self.files["uv.txt"].decode().split("==", 1)[1].split()[0]

    @property
    def name(self) -> str:
        """A name made of all that goes into the tool's environment, the Python that asks for it included."""
        python = sys.version_info[:2] if sys.version_info >= TOOL_PYTHON else None
        digest = hashlib.sha256(f"{self.digest} {python}".encode() + self.files["tool.txt"])
        return f"{self.version}-{digest.hexdigest()[:12]}"


class Screen(NamedTuple):
    """Where steps are said: one line each, with its time, on stderr."""

    quiet: bool

    def step(self, label: str, text: str, began: Optional[float] = None) -> None:
        """Say one step; ``began`` is when it did, by the monotonic clock."""
        took = "" if began is None else f"{time.monotonic() - began:.1f} s"
        if not self.quiet:
            say(f"  {label:<19} {text:<46} {took:>10}".rstrip())


class Job(NamedTuple):
    """One run: what to build, where it is being built, where it will lie, and where to say so."""

    kit: Kit
    stage: Path
    data: Path
    screen: Screen


# The kit


def read_kit() -> Kit:
    """Read what this file carries, or else the clone that it lies in; raise BootstrapError where it is alone."""
    if PAYLOAD:
        return kit_from_payload(base64.b85decode("".join(PAYLOAD.split())))
    here = Path(globals().get("__file__", "/nonexistent/bootstrap.py")).resolve().parent
    if (here / "lockfiles" / "tool.txt").is_file() and (here / "src" / "gpuinstall").is_dir():
        return kit_from_clone(here)
    do = [
        "Run the bootstrap.py of a clone of gpuinstall",
        "make bootstrap   # in a clone: one file, dist/bootstrap.py",
    ]
    raise BootstrapError(2, "this bootstrap.py works only in a clone of gpuinstall", do=do)


def kit_from_payload(payload: bytes) -> Kit:
    """Unpack what ``make bootstrap`` packed: the pins and the tool's wheel."""
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    wheel = next(name for name in files if name.endswith(".whl"))
    return Kit(wheel.split("-")[1], files, None, hashlib.sha256(files[wheel]).hexdigest())


def kit_from_clone(clone: Path) -> Kit:
    """Read a clone's pins, and digest what its wheel would be built from."""
    version = re.search(
        r'^version = "(.+)"', (clone / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    files = {name: (clone / "lockfiles" / name).read_bytes() for name in PINS}
    return Kit(version.group(1) if version else "0", files, clone, digest_of(clone))


def digest_of(clone: Path) -> str:
    """Digest the files that make the tool, by path and content."""
    sources = (
        path
        for path in clone.glob("src/**/*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    digest = hashlib.sha256()
    for path in sorted((*sources, clone / "pyproject.toml")):
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
    words, caught, nothing = [str(word) for word in argv], subprocess.PIPE, subprocess.DEVNULL
    env = environment() if env is None else env
    try:
        done = subprocess.run(
            words,
            env=env,
            cwd=cwd,
            stdin=nothing,
            stdout=caught,
            stderr=caught,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PassedOverError(f"no answer in {seconds:.0f} s") from error
    except OSError as error:
        raise PassedOverError(str(error)) from error
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    if done.returncode:
        raise PassedOverError(reason(err or out) or f"{words[0]} ended with {done.returncode}")
    return out.strip()


def reason(output: str) -> str:
    """Find what says why; name missing CA certificates as such; never show a password in an address."""
    if any(mark in output for mark in UNTRUSTED):
        return (
            "the server's certificate is not trusted (SSL_CERT_FILE names a file of certificates)"
        )
    if NO_SPACE.search(output):
        return "no space left on device"
    unreachable = re.search(r"connection broken by .*>[:,] '?([^']+)'", output)
    lines = (
        [unreachable.group(1)]
        if unreachable
        else [line.strip() for line in output.splitlines() if line.strip()]
    )
    said = [
        line for line in lines if re.match(r"error|cause|caused by", line, re.IGNORECASE)
    ] or lines[-1:]
    return re.sub(r"://[^/\s]+@", "://****@", "; ".join(said[:3]))[:300]


@lru_cache(maxsize=None)
def pip_listing() -> Optional[str]:
    """Ask pip for its settings; None where the Python that runs this has no pip that works."""
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
    named = os.environ.get("PIP_CONFIG_FILE")
    files = ConfigParser(interpolation=None)
    try:
        files.read(
            [] if named == os.devnull else [*places, *([named] if named else [])], encoding="utf-8"
        )
    except (Error, UnicodeDecodeError):
        return {}
    sections = [files[name] for name in ("global", "install", "download") if name in files]
    return {option: value for section in sections for option, value in section.items()}


def pip_settings() -> Dict[str, str]:
    """Read pip's own settings, those of its files and then its variables, by pip's option names."""
    settings = pip_files() if pip_listing() is None else {}
    for section in ("global", "install", "download"):
        said = re.findall(rf"^{section}\.([a-z-]+)=(.+)$", pip_listing() or "", re.MULTILINE)
        settings.update((name, str(literal_eval(value))) for name, value in said)
    variables = {
        name: os.environ.get("PIP_" + name.upper().replace("-", "_"), "")
        for name in (*FROM_PIP, "no-index")
    }
    return {**settings, **{name: value for name, value in variables.items() if value}}


def home() -> Path:
    """Name the user's home; a folder that is not there for a user who has none."""
    with suppress(RuntimeError, KeyError):
        return Path.home()
    return Path("/nonexistent")


def below(variable: str, name: str) -> Path:
    """Name a folder below the one that a variable names; below nowhere where it names none."""
    return Path(os.environ.get(variable) or "/nonexistent") / name


def environment() -> Dict[str, str]:
    """Make the environment of pip and uv: the user's own, where to find packages filled in from pip's settings."""
    env = {
        name: value for name, value in os.environ.items() if name not in NOT_FOR_CHILDREN.split()
    }
    given = dict(pip_settings())
    given["cert"] = os.environ.get("REQUESTS_CA_BUNDLE") or given.get("cert", "")
    given["find-links"] = ",".join(given.get("find-links", "").split())
    given["index-url"] = "" if uv_names_an_index() else given.get("index-url", "")
    filled = {variable: given[name] for name, variable in FROM_PIP.items() if given[name]}
    return {**OUR_DEFAULTS, **filled, **env, "PIP_REQUIRE_VIRTUALENV": "0", "PIP_NO_INPUT": "1"}


def uv_names_an_index() -> bool:
    """Say whether uv has an index from the user already."""
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or home() / ".config") / "uv" / "uv.toml"
    return "UV_INDEX_URL" in os.environ or (
        settings.is_file() and "index" in settings.read_text(encoding="utf-8")
    )


def search_path() -> List[Path]:
    """List the folders of PATH that a stranger cannot write to; version managers' shims are no programs."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return [
        folder
        for folder in folders
        if folder.is_absolute() and folder.name != "shims" and is_private(folder)
    ]


def is_private(folder: Path) -> bool:
    """Say whether nobody but its owner puts programs into a folder."""
    try:
        status = folder.stat()
    except OSError:
        return False
    return (
        WINDOWS
        or not status.st_mode & 0o002
        or bool(status.st_mode & 0o1000 and status.st_uid == os.getuid())
    )


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
            job.screen.step("uv passed over", reasons[-1], began)
        else:
            job.screen.step(f"uv {version_of(uv)}", name, began)
            return uv
    seen = reasons if job.screen.quiet else ()
    is_full = any(NO_SPACE.search(reason) for reason in reasons)
    message = (
        "a disk is full"
        if is_full
        else f"uv {job.kit.uv_version} is not here and could not be downloaded"
    )
    raise BootstrapError(4, message, seen, ways_to_room() if is_full else ways_to_uv(job))


def uv_at_hand(job: Job) -> Path:
    """Take the first uv, on PATH or fetched by an earlier run, that is as new as the pinned one."""
    programs = [*(folder / program_name("uv") for folder in search_path()), kept_uv(job)]
    passed = {
        program: too_old(program, job.kit.uv_version)
        for program in programs
        if os.access(str(program), os.X_OK)
    }
    for program, why_not in passed.items():
        if why_not is None:
            return program
    raise PassedOverError(", ".join(map(str, passed.values())) or "none")


def too_old(uv: Path, wanted: str) -> Optional[str]:
    """Say why a uv will not do, or None."""
    try:
        version = version_of(uv)
    except PassedOverError as passed:
        return f"{uv} does not run ({passed})"
    return f"{uv} is {version}" if numbers(version) < numbers(wanted) else None


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
    patience = ["--quiet", "--retries", "1", "--timeout", "8"]
    exactly = [
        "--require-hashes",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--requirement",
        job.stage / "uv.txt",
    ]
    run([python, "-m", "pip", "download", *patience, *exactly, "--dest", wheels], cwd=job.stage)
    return keep(job, extract_uv(next(wheels.iterdir()).read_bytes()))


def uv_from_index(job: Job) -> Path:
    """Fetch the pinned wheel from the index that is configured, without any pip, and check its hash."""
    index = environment().get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL", "")
    if not index:
        raise PassedOverError("no index is configured (UV_DEFAULT_INDEX names one)")
    page = index.rstrip("/") + "/uv/"
    links = re.findall(r"""href\s*=\s*["']([^"']+)""", download(page).decode("utf-8", "replace"))
    found = [
        address
        for link in links
        for address in [urljoin(page, unescape(link))]
        if is_for_here(address, job)
    ]
    if not found:
        raise PassedOverError(
            f"{without_login(index)} has no uv {job.kit.uv_version} for this machine"
        )
    wheel = download(urldefrag(found[0]).url, login=urlsplit(index))
    if f"sha256:{hashlib.sha256(wheel).hexdigest()}" not in job.kit.files["uv.txt"].decode():
        raise PassedOverError(f"{wheel_name(found[0])} is not the pinned one")
    return keep(job, extract_uv(wheel))


def is_for_here(address: str, job: Job) -> bool:
    """Say whether an address is that of the pinned uv's wheel for this machine."""
    name = wheel_name(address)
    system = {"win32": "win", "darwin": "macosx"}.get(
        sys.platform, archive_target().rsplit("-", 1)[1]
    )
    words = {"gnu": "manylinux", "musl": "musllinux|manylinux_2_28|manylinux2014"}.get(
        system, system
    )
    arch = {"x86_64": "x86_64|amd64", "aarch64": "aarch64|arm64"}.get(
        archive_target().split("-", 1)[0], "none"
    )
    form = rf"uv-{re.escape(job.kit.uv_version)}-py3-none-(any|.*({words}).*({arch}).*)\.whl"
    return re.fullmatch(form, name) is not None


def wheel_name(address: str) -> str:
    """Name the file at an address."""
    return unquote(urlsplit(address).path.rsplit("/", 1)[-1])


def uv_from_archive(job: Job) -> Path:
    """Fetch uv's own release archive, and keep the program inside if it is, bit by bit, the one pinned."""
    archive = download(archive_url(job))
    program = extract_uv(archive)
    vouched = os.environ.get("GPUINSTALL_UV_SHA256", "").lower()
    if (
        vouched != hashlib.sha256(archive).hexdigest()
        and pinned_program(job) != hashlib.sha256(program).hexdigest()
    ):
        raise PassedOverError(f"{archive_url(job)} is not the pinned uv {job.kit.uv_version}")
    return keep(job, program)


def archive_url(job: Job) -> str:
    """Name the release archive for this machine, on GitHub or on the mirror that GPUINSTALL_UV_MIRROR names."""
    base = os.environ.get("GPUINSTALL_UV_MIRROR") or ARCHIVES
    return f"{base.rstrip('/')}/{job.kit.uv_version}/uv-{archive_target()}.{'zip' if WINDOWS else 'tar.gz'}"


def archive_target() -> str:
    """Name this machine as uv's releases do; aarch64 Linux's wheel holds the static program of the musl archive."""
    names = {"amd64": "x86_64", "arm64": "aarch64"}
    arch = names.get(platform.machine().lower(), platform.machine().lower())
    glibc = arch == "x86_64" and platform.libc_ver()[0] == "glibc"
    systems = {"win32": "pc-windows-msvc", "darwin": "apple-darwin"}
    return f"{arch}-{systems.get(sys.platform, 'unknown-linux-gnu' if glibc else 'unknown-linux-musl')}"


def pinned_program(job: Job) -> Optional[str]:
    """Look up the sha256 of this machine's uv program: that of the hash-pinned wheel, which the archive shares."""
    rows = (line.split() for line in job.kit.files["uv-programs.txt"].decode().splitlines())
    return dict(row for row in rows if len(row) == 2).get(archive_target())


def without_login(url: str) -> str:
    """Write an address without the user's name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rsplit("@", 1)[-1]).geturl()


def download(url: str, login: Optional[SplitResult] = None) -> bytes:
    """Fetch one file, with the login of the address or of ``login`` if that is its host; raise PassedOverError."""
    import urllib.request

    headers = {"User-Agent": "gpuinstall-bootstrap"}
    request = urllib.request.Request(without_login(url), headers=headers)  # noqa: S310
    parts = urlsplit(url)
    known = parts if parts.username or not login or login.hostname != parts.hostname else login
    if known.username:
        words = f"{unquote(known.username)}:{unquote(known.password or '')}"
        request.add_unredirected_header(
            "Authorization", f"Basic {base64.b64encode(words.encode()).decode()}"
        )
    try:
        import ssl

        trust = ssl.create_default_context(cafile=environment().get("SSL_CERT_FILE"))
        with urllib.request.urlopen(request, timeout=8, context=trust) as answer:  # noqa: S310
            return bytes(answer.read())
    except (ImportError, OSError, ValueError) as error:
        raise PassedOverError(reason(f"{without_login(url)}: {error}")) from error


def extract_uv(archive: bytes) -> bytes:
    """Take the uv program out of a wheel, a zip or a tar archive."""
    try:
        if zipfile.is_zipfile(io.BytesIO(archive)):
            with zipfile.ZipFile(io.BytesIO(archive)) as folder:
                return folder.read(next(name for name in folder.namelist() if is_uv(name)))
        with tarfile.open(fileobj=io.BytesIO(archive)) as tape:
            file = tape.extractfile(next(name for name in tape.getnames() if is_uv(name)))
            return file.read() if file else b""
    except (tarfile.TarError, zipfile.BadZipFile, StopIteration, EOFError) as error:
        raise PassedOverError("the download is not an archive of uv") from error


def is_uv(name: str) -> bool:
    """Say whether a member of an archive is the uv program, not the Python module of that name."""
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
    """Name where a fetched uv lies."""
    return job.data / f"uv-{job.kit.uv_version}" / program_name("uv")


def version_of(uv: Path) -> str:
    """Ask a uv for its version."""
    said = re.search(r"\d+\.\d+\.\d+", run([uv, "--version"], seconds=ANSWER_S))
    if not said:
        raise PassedOverError(f"{uv} does not report its version")
    return said.group()


def numbers(version: str) -> Tuple[int, ...]:
    """Make versions comparable."""
    return tuple(int(part) for part in version.split("."))


def ways_to_uv(job: Job) -> List[str]:
    """List what a person can do where there is no uv."""
    layout = "/".join(archive_url(job).rsplit("/", 2)[1:])
    debian = pip_listing() is None and not find_spec("ensurepip") and shutil.which("apt-get")
    return [
        *(["sudo apt-get install python3-venv   # then run this again"] if debian else []),
        *ways_to_network(),
        f"{SET} GPUINSTALL_UV_MIRROR=https://mirror.example/uv   # a mirror of uv's releases that has {layout}",
        "Or install uv as https://docs.astral.sh/uv says, then run this again",
    ]


def ways_to_network() -> List[str]:
    """List the settings that most often stand between a person and an index: a proxy, another index, certificates."""
    proxy = next((name for name in PROXIES if os.environ.get(name)), None)
    certificates = os.environ.get("SSL_CERT_FILE")
    return [
        f"Check the proxy: {proxy} is {without_login(os.environ[proxy])}"
        if proxy
        else f"{SET} HTTPS_PROXY=http://proxy.example:3128   # behind a proxy",
        f"{SET} PIP_INDEX_URL=https://index.example/simple   # for an index of your own",
        f"Check the file of certificates: SSL_CERT_FILE is {certificates}"
        if certificates
        else f"{SET} SSL_CERT_FILE=/path/to/certificates.pem   # for certificates of your own",
    ]


def ways_to_room() -> List[str]:
    """List what a person can do where a disk is full or a folder cannot be written: write everything elsewhere."""
    variables = [
        "LOCALAPPDATA" if WINDOWS else "XDG_DATA_HOME",
        "UV_CACHE_DIR",
        "TEMP" if WINDOWS else "TMPDIR",
    ]
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
    """Name the Python that the tool is to run on: this one where it will do, else any that uv finds or fetches."""
    will_do = sys.implementation.name == "cpython" and sys.version_info >= TOOL_PYTHON
    return sys.executable if will_do and sys.executable else "cpython>={}.{}".format(*TOOL_PYTHON)


def python_folders() -> Iterator[Path]:
    """List the folders in which uv is to look: those of PATH, then pyenv's and conda's, which it does not know."""
    yield from search_path()
    pyenvs = [
        below("PYENV_ROOT", "versions"),
        home() / ".pyenv/versions",
        home() / ".pyenv/pyenv-win/versions",
    ]
    condas = [home() / name for name in ("miniforge3", "mambaforge", "miniconda3", "anaconda3")]
    condas += [Path("/opt/conda"), below("CONDA_PREFIX", ".")]
    roots = [
        root
        for folder in (*pyenvs, *(conda / "envs" for conda in condas))
        for root in folder.glob("*")
    ]
    yield from (root / ("." if WINDOWS else "bin") for root in (*condas, *roots))


# The tool's environment


def tool_environment(kit: Kit, screen: Screen) -> Path:
    """Return the tool's environment, which is made where it is not there yet."""
    began = time.monotonic()
    data = data_folder()
    tool = data / kit.name
    check_owners(python_of(tool))
    if not python_of(tool).exists():
        with private_umask(), staging_folder(data, screen) as stage:
            if not python_of(tool).exists():
                tool_in_place(Job(kit, stage, data, screen), tool)
    else:
        screen.step("tool", display_path(tool), began)
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
        message, seen = "gpuinstall's own environment could not be made", [str(passed)]
        python = "Install Python 3.10 or newer, or say where uv gets one: UV_PYTHON_INSTALL_MIRROR=https://mirror.example"
        is_lacking = sys.version_info < TOOL_PYTHON and re.search(
            r"python", str(passed), re.IGNORECASE
        )
        do = [*([python] if is_lacking else []), *ways_to_network()]
        raise BootstrapError(
            4, message, seen, ways_to_room() if NO_SPACE.search(seen[0]) else do
        ) from passed
    if tool.exists():
        tool.rename(job.stage / "without its Python")
    (job.stage / "tool").rename(tool)
    point_at(tool)
    remove_old(job.data, kept_uv(job).parent)
    job.screen.step("tool", display_path(tool), began)


def build(job: Job, uv: Path) -> None:
    """Make an environment: the pinned dependencies by their hashes, then the tool itself without any network."""
    tool, quietly = job.stage / "tool", ["--quiet", "--relocatable", "--no-project"]
    looking = {**environment(), "PATH": os.pathsep.join(map(str, python_folders()))}
    run(
        [uv, "venv", *quietly, "--python", python_to_build_with(), tool], cwd=job.stage, env=looking
    )
    into = ["pip", "install", "--quiet", "--compile-bytecode", "--python", python_of(tool)]
    for wheel in job.stage.glob("wheels/*.whl"):
        run([uv, *into, "--no-deps", "--no-index", wheel], cwd=job.stage)
    local = (
        ["--no-index"]
        if pip_settings().get("no-index", "").lower() in {"1", "true", "yes", "on"}
        else []
    )
    run(
        [
            uv,
            *into,
            "--no-build",
            "--require-hashes",
            *local,
            "--requirements",
            job.stage / "tool.txt",
        ],
        cwd=job.stage,
    )
    own_uv = python_of(tool).with_name(program_name("uv"))
    source = job.kit.clone or next(job.stage.glob("*.whl"))
    run([own_uv, *into, "--offline", "--no-cache", "--no-deps", source], cwd=job.stage)


def point_at(tool: Path) -> None:
    """Let `gpuinstall` in the data folder's bin start this environment's."""
    launcher = tool.parent / "bin" / "gpuinstall"
    launcher.parent.mkdir(exist_ok=True)
    if WINDOWS:
        launcher.with_suffix(".cmd").write_text(
            f'@"{python_of(tool)}" -I -m gpuinstall %*\n', encoding="utf-8"
        )
        return
    for link, target in (
        (launcher, "bin/gpuinstall"),
        (tool.parent / "share", "share"),
    ):  # man looks beside bin
        fresh = link.with_name(f".{os.getpid()}")
        fresh.symlink_to(os.path.relpath(str(tool / target), str(link.parent)))
        fresh.replace(link)


def remove_old(data: Path, current_uv: Path) -> None:
    """Remove all but the environments used last, and uv of other versions."""
    tools = [folder for folder in data.iterdir() if TOOL_NAME.fullmatch(folder.name)]
    tools.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    uvs = [
        folder
        for folder in data.iterdir()
        if UV_NAME.fullmatch(folder.name) and folder != current_uv
    ]
    for folder in tools[KEPT_ENVIRONMENTS:] + uvs:
        shutil.rmtree(str(folder), ignore_errors=True)


def check_owners(path: Path) -> None:
    """Raise BootstrapError if another user can exchange a path of the data folder, or anything on the way to it.

    A sticky folder is safe to pass through, as only the owner of an entry can exchange it, but not to hold the tool,
    whose name can be foreseen: whoever makes it first owns it. What a Python that is a link leads to is not ours.
    """
    if WINDOWS:
        return
    owners = {
        0,
        os.getuid(),
        Path("/").stat().st_uid,
    }  # in a user namespace, root is seen as another user
    data = data_folder().resolve()
    elsewhere = f"{SET} XDG_DATA_HOME=/path/to/folder   # a folder of your own; then run this again"
    for part in (*way_to(path.parent), path):
        try:
            status = part.lstat()
        except FileNotFoundError:
            return
        if status.st_uid not in owners:
            message = f"{part} belongs to another user (uid {status.st_uid}), who could change what is run from it"
            by_sudo = (
                ["Run it without sudo, or with root's own home: sudo -H"]
                if "SUDO_UID" in os.environ
                else []
            )
            raise BootstrapError(4, message, do=[*by_sudo, elsewhere])
        is_everybodys = not stat.S_ISLNK(status.st_mode) and bool(status.st_mode & stat.S_IWOTH)
        is_sticky = bool(status.st_mode & stat.S_ISVTX)
        place = part.resolve()
        if is_everybodys and (not is_sticky or data in (place, *place.parents)):
            message = f"everyone can write to {part}, and so change what is run from it"
            raise BootstrapError(4, message, do=[f"chmod o-w {shlex.quote(str(part))}", elsewhere])


def way_to(path: Path) -> Iterator[Path]:
    """List each folder and each link that a path leads through, the path included, from the root on."""
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
            for path in (
                data,
                *data.glob("*"),
                *data.glob("uv-*/*"),
            ):  # another user may have been faster
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
    """Wait for other runs on the data folder; the value says whether there certainly are none."""
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
    """Lock an open folder until it is closed; say whether that went, as not every file system can."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_leftovers(data: Path, age: float) -> None:
    """Remove what killed runs left, if it is older than ``age`` in seconds."""
    for folder in [folder for folder in data.iterdir() if LEFTOVER_NAME.fullmatch(folder.name)]:
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime >= age:
                shutil.rmtree(str(folder), ignore_errors=True)


def data_folder() -> Path:
    """Name the user's data folder for the tool, by each system's rule."""
    named = Path(os.environ.get("LOCALAPPDATA" if WINDOWS else "XDG_DATA_HOME", ""))
    usual = {"win32": "AppData/Local", "darwin": "Library/Application Support"}.get(
        sys.platform, ".local/share"
    )
    return (named if named.is_absolute() else home() / usual) / "gpuinstall"


def python_of(folder: Path) -> Path:
    """Name an environment's Python."""
    return folder / ("Scripts" if WINDOWS else "bin") / program_name("python")


def program_name(name: str) -> str:
    """Name a program as this system does."""
    return f"{name}.exe" if WINDOWS else name


def display_path(path: Path) -> str:
    """Write a path the short way."""
    start = str(home()) + os.sep
    return str(path).replace(start, f"~{os.sep}", 1) if str(path).startswith(start) else str(path)


# The command


def hand_over(tool: Path, arguments: Sequence[str]) -> int:
    """Become gpuinstall, which installs, or runs the command that was given; on Windows, start it and wait."""
    argv = [str(python_of(tool)), "-I", "-m", "gpuinstall", "bootstrap", *arguments]
    return subprocess.call(argv) if WINDOWS else os.execv(argv[0], argv)  # noqa: S606


def give_up(failure: BootstrapError, arguments: Sequence[str]) -> int:
    """Say what happened, why, and the ways out; with ``--json`` as a document too."""
    if "--json" in arguments:
        error = {"code": "bootstrap", "message": failure.message, "hint": "; ".join(failure.do)}
        head = {
            "gpuinstall": 1,
            "command": "install",
            "status": "error",
            "exit_code": failure.status,
        }
        print(json.dumps({**head, "errors": [error]}, indent=2))
    say(f"error: {failure.message}")
    for label, lines in (("seen", failure.seen), ("do", failure.do)):
        for at, line in enumerate(lines):
            say(f"  {'' if at else label:<5} {line}")
    say("Nothing was installed.")
    return failure.status


def say(text: str) -> None:
    """Write a line to stderr; where nobody listens, the work goes on."""
    with suppress(OSError, AttributeError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def install_handlers() -> None:
    """End as by Ctrl-C, with everything removed, where a scheduler or a closed terminal ends us."""
    for number in (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")):
        if number and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def main(arguments: Sequence[str]) -> int:
    """Do it all; return the exit status."""
    if sys.version_info < OLDEST_PYTHON:
        message = f"bootstrap.py requires Python 3.8 or newer; this is {platform.python_version()}"
        return give_up(BootstrapError(2, message), arguments)
    if "__file__" not in globals():
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    quiet = bool({"-q", "--quiet"} & set(arguments)) or bool(os.environ.get("GPUINSTALL_QUIET"))
    try:
        install_handlers()
        return hand_over(tool_environment(read_kit(), Screen(quiet)), arguments)
    except BootstrapError as failure:
        return give_up(failure, arguments)
    except (OSError, RuntimeError) as error:
        return give_up(BootstrapError(4, str(error), do=ways_to_room()), arguments)
    except KeyboardInterrupt:
        return give_up(BootstrapError(130, "interrupted"), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
