#!/usr/bin/env python3
"""Download uv, create gpuinstall's environment, and run gpuinstall.

The command is `gpuinstall install` unless the arguments contain another one. Requires only
Python 3.8, without administrator rights. Runs from a file or from stdin, asks nothing,
changes no other environment, and does nothing before its last line.
"""

import sys

if __name__ == "__main__" and not (
    sys.flags.isolated or getattr(sys.flags, "safe_path", False)
):
    # The folder of this file, or the working folder, whose modules must not be imported.
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
    import stat
    import subprocess
    import tarfile
    import tempfile
    import time
    import zipfile
    import zlib  # noqa: F401  archives need it
    from configparser import Error, RawConfigParser
    from contextlib import ExitStack, contextmanager, suppress
    from functools import lru_cache
    from importlib.util import find_spec
    from pathlib import Path
    from shlex import quote
    from typing import (
        Any,
        Dict,
        Iterator,
        List,
        NamedTuple,
        Optional,
        Sequence,
        Set,
        Tuple,
        Union,
    )
    from urllib.parse import urljoin, urlsplit
except ImportError as missing:
    sys.stderr.write(
        f"error: this Python has no module {missing.name}, which is part of the standard library\n"
        "  do    sudo apt-get install python3   # or another complete Python 3.8 or newer\n"
    )
    sys.exit(2)

PAYLOAD = ""
# Without the annotation, mypy would treat code for older Pythons as unreachable.
OLDEST_PYTHON: Tuple[int, int] = (3, 8)
TOOL_PYTHON = (3, 10)
ANY_PYTHON = "cpython>=3.10"
WINDOWS = os.name == "nt"
EXE = ".exe" if WINDOWS else ""
SET = "set" if WINDOWS else "export"
DATA_HOME = "LOCALAPPDATA" if WINDOWS else "XDG_DATA_HOME"
KEPT_ENVIRONMENTS = 3
TOOLS = "[0-9]*-" + 12 * "[0-9a-f]"
# The files of a clone that build the tool.
SOURCES = "pyproject.toml README.md LICENSE lockfiles/*.txt prefix/**/* src/**/*"
PINS = "lockfiles/uv.txt"
FOLDER = Path(globals().get("__file__", "/nonexistent/bootstrap.py")).resolve().parent
COMMANDS = "install remove run doctor explain verify plan lock sync export hook probe report env self"
ARCHIVES = "https://github.com/astral-sh/uv/releases/download"
# The tags of uv's wheels. pip would compare its 6,000 files with 1,000 more.
PIP_TAGS = "--implementation py --abi none"
PIP_DOWNLOAD = (
    f"-m pip download --quiet {PIP_TAGS} "
    "--require-hashes --no-deps --only-binary :all: --requirement"
)
UV_VENV = "venv --quiet --relocatable --no-project --python"
UV_INSTALL = "pip install --quiet --python"
LARGEST_ARCHIVE = 200_000_000
OFFLINE_SWITCHES = ("GPUINSTALL_OFFLINE", "UV_OFFLINE")
SWITCHED_ON = {"1", "true", "yes", "on"}
DAMAGES = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    KeyError,
    OSError,
    ValueError,
)
# uv's defaults, for pip and this file.
SILENCE_S = 30
RETRIES = 3
# GitHub is the last source. A firewall that drops packets must not delay the error.
GITHUB_SILENCE_S = 8
DEFAULTS = {
    "PIP_TIMEOUT": str(SILENCE_S),
    "PIP_RETRIES": str(RETRIES),
    "UV_NO_PROGRESS": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
# uv's variables for the settings in pip's. The first one that is set counts.
FROM_PIP = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "REQUESTS_CA_BUNDLE": "SSL_CERT_FILE",
    "PIP_CERT": "SSL_CERT_FILE",
}
NOT_FOR_CHILDREN = """
PYTHONHOME PYTHONPATH PIP_CONSTRAINT PIP_PLATFORM PIP_PYTHON_VERSION
UV_CONSTRAINT UV_OVERRIDE UV_EXCLUDE_NEWER UV_NO_BINARY UV_PYTHON
"""
ROOM = [
    "df -h   # which disk is full",
    f"{SET} {DATA_HOME}=/path/to/folder   # on another disk, then run this again",
    f"{SET} UV_CACHE_DIR=/path/to/folder   # the same for uv",
    f"{SET} TMPDIR=/path/to/folder   # and for temporary files",
]
NETWORK = [
    f"{SET} HTTPS_PROXY=http://proxy.example:3128   # behind a proxy; the current value may be wrong",
    f"{SET} PIP_INDEX_URL=https://index.example/simple   # for your own index",
    f"{SET} SSL_CERT_FILE=/path/to/certificates.pem   # for your own certificates",
    f"{SET} GPUINSTALL_UV_MIRROR=https://mirror.example   # for a mirror of uv's releases",
]
OFFLINE = [
    "Run this once with a network connection; the tool then stays installed",
    f"{SET} PIP_FIND_LINKS=/path/to/wheels   # pip download -r lockfiles/tool.txt",
]
# The errors that a variable of NETWORK fixes.
NETWORK_ERRORS = {
    "HTTPS_PROXY": "proxy|tunnel connection",
    "PIP_INDEX_URL": "no matching distribution|has no wheel",
    "SSL_CERT_FILE": "certificate|UnknownIssuer",
}
# The options of pip's files that pip's variables override.
PIP_OPTIONS = "index-url find-links cert no-index timeout retries"


class BootstrapError(Exception):
    """A fatal error: exit status, message, evidence, and hints."""


class SourceError(Exception):
    """The reason why a source of uv or of the tool cannot be used."""


# The tool's source files


def read_sources() -> Dict[str, bytes]:
    """Read the source files in this file, or else in its clone.

    Raises:
        BootstrapError: This Python is too old, or there are no source files.
    """
    if sys.version_info < OLDEST_PYTHON:
        message = f"bootstrap.py requires Python 3.8 or newer; this is {platform.python_version()}"
        raise BootstrapError(2, message, [], [])
    if PAYLOAD:
        # Packed by tools/bundle.py.
        packed = base64.b85decode("".join(PAYLOAD.split()))
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    if not (FOLDER / PINS).exists():
        message = "this bootstrap.py works only in a clone of gpuinstall"
        hints = ["make bootstrap   # in a clone: one file, dist/bootstrap.py"]
        raise BootstrapError(2, message, [], hints)
    sources = {}
    for pattern in SOURCES.split():
        for path in sorted(FOLDER.glob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                sources[path.relative_to(FOLDER).as_posix()] = path.read_bytes()
    return sources


def tool_name(sources: Dict[str, bytes]) -> str:
    """Return the tool's version with a digest of its source files."""
    version = sources["pyproject.toml"].split(b'\nversion = "')[1].split(b'"')[0]
    digest = hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()
    return f"{version.decode()}-{digest[:12]}"


# Other programs


def run(
    argv: Sequence[Union[str, Path]],
    cwd: Path,
    seconds: Optional[float] = None,
) -> str:
    """Run a program with an empty stdin, and return its output.

    Raises:
        SourceError: It fails, with the reason from its output.
    """
    try:
        return subprocess.run(
            [str(word) for word in argv],
            env=environment(),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=True,
            encoding="utf-8",
            errors="replace",
        ).stdout
    except (subprocess.SubprocessError, OSError) as error:
        output = getattr(error, "stdout", None) or ""
        if "UnknownIssuer" in output and "UV_SYSTEM_CERTS" not in environment():
            # By default, uv ignores the system's certificates, and so a company's. The tool inherits the setting.
            environment()["UV_SYSTEM_CERTS"] = os.environ["UV_SYSTEM_CERTS"] = "1"
            return run(argv, cwd, seconds)
        raise SourceError(reason(output) or str(error)) from error


def reason(output: str) -> str:
    """Return the reason in a program's output, without passwords in URLs."""
    # pip's last line reports a missing package even if the index is unreachable.
    unreachable = re.search(r"connection broken by .*>[:,] '?([^']+)'", output)
    if unreachable:
        return unreachable.group(1)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"error|cause", line, re.IGNORECASE)]
    # urllib reports a password alone, as a port. The last cause is the most specific.
    return re.sub(r"[^/\s']+@", "****@", "; ".join(causes or lines[-1:]))[-300:]


@lru_cache(maxsize=None)
def environment() -> Dict[str, str]:
    """Return the environment of pip and uv, with settings from pip's files."""
    env = dict(DEFAULTS)
    options = pip_options()
    for name in PIP_OPTIONS.split():
        if name in options:
            env["PIP_" + name.upper().replace("-", "_")] = options[name]
    env.update(os.environ)
    switches = {env.get(name, "").lower() for name in OFFLINE_SWITCHES}
    if "--offline" in sys.argv or SWITCHED_ON & switches:
        # pip has no offline mode.
        env.update(UV_OFFLINE="1", PIP_NO_INDEX="1")
    for name, variable in FROM_PIP.items():
        if env.get(name):
            env.setdefault(variable, env[name])
    places = env.get("PIP_FIND_LINKS", "").strip()
    # pip splits at spaces, also in a path.
    is_path = Path(places).expanduser().is_dir()
    links = [
        link if "://" in link else (Path.cwd() / Path(link).expanduser()).as_uri()
        for link in ([places] if is_path and places else places.split())
    ]
    # pip and uv run in another folder.
    env.update(PIP_FIND_LINKS=" ".join(links))
    env.setdefault("UV_FIND_LINKS", ",".join(links))
    for name in NOT_FOR_CHILDREN.split():
        env.pop(name, None)
    trusted = []
    for name in os.get_exec_path():
        folder = Path(name)
        # Root's folders, inherited through ``su``, may be inaccessible.
        is_usable = folder.is_absolute() and os.access(name, os.X_OK)
        if is_usable and can_start(folder / "uv"):
            trusted.append(name)
    path = os.pathsep.join(trusted)
    env.update(PATH=path, PIP_NO_INPUT="1", PIP_REQUIRE_VIRTUALENV="0")
    return env


def pip_options() -> Dict[str, str]:
    """Return the options of pip's files; [install] overrides [global]."""
    parser = RawConfigParser()
    for file in pip_files():
        with suppress(OSError, Error, UnicodeError):
            parser.read_string(file.read_text(encoding="utf-8"))
    options: Dict[str, str] = {}
    for section in ("global", "install", "download"):
        if parser.has_section(section):
            options.update(
                (name.replace("_", "-"), value) for name, value in parser.items(section)
            )
    return options


def pip_files() -> List[Path]:
    """Return pip's configuration files. The last one takes precedence."""
    requested = os.environ.get("PIP_CONFIG_FILE")
    if requested == os.devnull:
        return []
    name = "pip.ini" if WINDOWS else "pip.conf"
    files = [folder / "pip" / name for folder in system_folders()]
    if not WINDOWS:
        files.append(Path("/etc", name))
    if requested and os.path.exists(requested):
        return [*files, Path(sys.prefix, name), Path(requested)]
    files.append(Path.home() / ("pip" if WINDOWS else ".pip") / name)
    mac = Path.home() / "Library" / "Application Support"
    is_mac = sys.platform == "darwin" and (mac / "pip").is_dir()
    return [
        *files,
        (mac if is_mac else user_folder()) / "pip" / name,
        Path(sys.prefix, name),
    ]


def uv_options() -> Dict[str, Any]:
    """Return the user's uv.toml, or else the system's.

    Python 3.10 and older cannot read it.
    """
    files = [folder / "uv" / "uv.toml" for folder in (user_folder(), *system_folders())]
    requested = os.environ.get("UV_CONFIG_FILE")
    for file in [Path(requested)] if requested else files:
        with suppress(ImportError, OSError, ValueError):
            import tomllib

            return tomllib.loads(file.read_text(encoding="utf-8"))
    return {}


def user_folder() -> Path:
    """Return the folder of the user's configuration files."""
    folder = Path(os.environ.get("APPDATA" if WINDOWS else "XDG_CONFIG_HOME", ""))
    return folder if folder.is_absolute() else Path.home() / ".config"


def system_folders() -> List[Path]:
    """Return the folders of the system's configuration files."""
    if WINDOWS:
        return [Path(os.environ.get("PROGRAMDATA", "C:/ProgramData"))]
    if sys.platform == "darwin":
        return [Path("/Library/Application Support"), Path("/etc")]
    return [
        *map(Path, (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")),
        Path("/etc"),
    ]


# uv


def get_uv(stage: Path) -> Path:
    """Return the pinned uv from the first usable source.

    Raises:
        BootstrapError: There is none, with the reason for each source.
    """
    version = pinned_version(stage)
    reasons = []
    for name, read in UV_SOURCES.items():
        began = time.monotonic()
        try:
            uv = read(stage)
            run([uv, "--version"], stage, seconds=15)
        except SourceError as error:
            reasons.append(f"{name}: {error}")
        else:
            step(f"uv {version}", name, began)
            return uv
    message = f"uv {version} could not be downloaded"
    raise BootstrapError(4, message, reasons, hints_for("; ".join(reasons)))


def uv_from_folder(stage: Path) -> Path:
    """Unpack the pinned uv wheel next to this file."""
    name = re.compile(f"uv-{pinned_version(stage)}-.*{wheel_platform()}")
    for wheel in FOLDER.glob("uv-*.whl"):
        if name.match(wheel.name):
            content = wheel.read_bytes()
            check_pin(content, str(wheel), stage)
            (stage / "wheels").mkdir()
            copy = stage / "wheels" / wheel.name
            copy.write_bytes(content)
            return unpacked(stage, copy)
    raise SourceError("there is no uv wheel next to bootstrap.py")


def check_pin(content: "Union[bytes, memoryview]", origin: str, stage: Path) -> None:
    """Raise SourceError unless the hash of a wheel is pinned."""
    pins = (stage / PINS).read_text(encoding="utf-8")
    if hashlib.sha256(content).hexdigest() not in pins:
        raise SourceError(reason(f"{origin} is not the pinned wheel"))


def uv_by_pip(stage: Path) -> Path:
    """Download the pinned wheel with pip, and unpack it."""
    folder = stage / "wheels"
    python = python_with_pip(stage)
    run([python, *PIP_DOWNLOAD.split(), stage / PINS, "--dest", folder], stage)
    return unpacked(stage, next(folder.iterdir()))


def python_with_pip(stage: Path) -> Union[str, Path]:
    """Return this Python, or one with pip in a temporary environment.

    Raises:
        SourceError: This Python has neither pip nor ensurepip.
    """
    if find_spec("pip"):
        return sys.executable
    if not find_spec("ensurepip"):
        raise SourceError("No module named pip")
    run([sys.executable, "-m", "venv", stage / "pip"], stage)
    return python_of(stage / "pip")


def uv_of_user(stage: Path) -> Path:
    """Copy a uv of this user that is identical to the pinned one."""
    scripts = "Scripts" if WINDOWS else "bin"
    programs = [
        *data_folder().glob(f"{TOOLS}/{scripts}/uv{EXE}"),
        Path.home() / ".local" / "bin" / f"uv{EXE}",
        Path(shutil.which("uv", path=environment()["PATH"]) or "uv"),
    ]
    for program in filter(Path.is_file, programs):
        with suppress(OSError, SourceError):
            content = program.read_bytes()
            check_program(content, str(program), stage)
            return runnable(stage, content)
    raise SourceError("no uv of this user has the pinned version")


def uv_from_index(stage: Path) -> Path:
    """Get the pinned wheel from a configured folder or index without pip."""
    name = f'uv-{pinned_version(stage)}-py3-none-[^"#]*{wheel_platform()}'
    reasons = []
    for location in locations():
        try:
            origin, wheel = read_wheel(location, name)
            check_pin(wheel.getbuffer(), origin, stage)
            return unpacked(stage, wheel)
        except SourceError as error:  # noqa: PERF203
            reasons.append(str(error))
    raise SourceError("; ".join(reasons) or "no index is configured")


def locations() -> List[str]:
    """Return the configured folders of wheels, and uv's page on each index."""
    env, options = environment(), uv_options()
    pip = options.get("pip", {})
    links = [
        *env["UV_FIND_LINKS"].split(","),
        *options.get("find-links", []),
        *pip.get("find-links", []),
    ]
    indexes = [
        env.get("UV_DEFAULT_INDEX"),
        *(index.get("url") for index in options.get("index", [])),
        options.get("index-url"),
        pip.get("index-url"),
    ]
    pages = [f"{index.rstrip('/')}/uv/" for index in indexes if index]
    return [*filter(None, links), *pages]


def read_wheel(location: str, name: str) -> "Tuple[str, io.BytesIO]":
    """Return the path or URL of a wheel at a location, and its content.

    Raises:
        SourceError: The wheel is missing, or the location cannot be read.
    """
    path = location
    if location.startswith("file:"):
        from urllib.request import url2pathname

        path = url2pathname(urlsplit(location).path)
    folder = Path(path)
    if folder.is_dir():
        for wheel in folder.glob("uv-*.whl"):
            if re.match(name, wheel.name):
                return str(wheel), io.BytesIO(wheel.read_bytes())
    elif "://" in location:
        link = re.search(f'href="([^"#]*{name}[^"#]*)', fetch(location).read().decode())
        if link:
            url = urljoin(location, link.group(1))
            return url, fetch(url)
    raise SourceError(reason(f"{location} has no wheel for this machine"))


def uv_from_archive(stage: Path) -> Path:
    """Download uv's release archive, and unpack the pinned program."""
    base = os.environ.get("GPUINSTALL_UV_MIRROR") or ARCHIVES
    form = "zip" if WINDOWS else "tar.gz"
    version = pinned_version(stage)
    url = f"{base.rstrip('/')}/{version}/uv-{archive_target()}.{form}"
    content = fetch(url)
    try:
        if WINDOWS:
            program = zipfile.ZipFile(content).read("uv.exe")
        else:
            with tarfile.open(fileobj=content) as archive:
                member = archive.extractfile(f"uv-{archive_target()}/uv")
                program = member.read() if member else b""
    except DAMAGES as error:
        raise SourceError(reason(f"{url}: {error}")) from error
    check_program(program, url, stage)
    return runnable(stage, program)


def check_program(program: bytes, origin: str, stage: Path) -> None:
    """Raise SourceError unless a uv executable is the pinned one."""
    pins = (stage / "lockfiles" / "uv-programs.txt").read_text(encoding="utf-8")
    if hashlib.sha256(program).hexdigest() not in pins.split():
        raise SourceError(
            reason(f"{origin} is not the pinned uv {pinned_version(stage)}")
        )


def archive_target() -> str:
    """Return the platform of this machine in the names of uv's archives."""
    machine = platform.machine().lower()
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    # On aarch64, uv's wheel contains the static program of the musl archive.
    is_gnu = arch == "x86_64" and platform.libc_ver()[0] == "glibc"
    systems = {"win32": "pc-windows-msvc", "darwin": "apple-darwin"}
    linux = "unknown-linux-gnu" if is_gnu else "unknown-linux-musl"
    return f"{arch}-{systems.get(sys.platform, linux)}"


def wheel_platform() -> str:
    """Return a pattern for the platform in the name of the wheel."""
    arch, _, system = archive_target().partition("-")
    families = {
        "apple-darwin": "macosx",
        "pc-windows-msvc": "win",
        "unknown-linux-gnu": "manylinux",
        "unknown-linux-musl": "musllinux",
    }
    names = "(?:aarch64|arm64)" if arch == "aarch64" else "(?:x86_64|amd64)"
    return f"{families[system]}_(?:\\w*_)?{names}"


def fetch(url: str) -> "io.BytesIO":
    """Download a file, and retry like uv.

    Raises:
        SourceError: The download fails.
    """
    if environment().get("UV_OFFLINE") == "1":
        raise SourceError("this run is offline")
    is_github = url.startswith(ARCHIVES)
    silence = GITHUB_SILENCE_S if is_github else SILENCE_S
    retries = 0 if is_github else RETRIES
    while True:
        try:
            # Some Pythons lack them.
            import ssl
            import urllib.request

            trust = ssl.create_default_context(
                cafile=environment().get("SSL_CERT_FILE")
            )
            with urllib.request.urlopen(url, timeout=silence, context=trust) as answer:  # noqa: S310
                return io.BytesIO(answer.read(LARGEST_ARCHIVE))
        except (ImportError, OSError, ValueError) as error:  # noqa: PERF203
            # 404 and other client errors are final.
            if not retries or getattr(error, "code", 500) < 500:
                raise SourceError(reason(f"{url}: {error}")) from error
            retries -= 1


def unpacked(stage: Path, wheel: "Union[Path, io.BytesIO]") -> Path:
    """Unpack uv from a wheel into the stage."""
    with zipfile.ZipFile(wheel) as archive:
        program = archive.read(f"uv-{pinned_version(stage)}.data/scripts/uv{EXE}")
    return runnable(stage, program)


def runnable(stage: Path, program: bytes) -> Path:
    """Write uv into the stage as an executable."""
    path = stage / f"uv{EXE}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(str(path), flags, 0o755), "wb") as file:
        file.write(program)
    return path


def pinned_version(stage: Path) -> str:
    """Return the version of the pinned uv."""
    pin, *_ = (stage / PINS).read_text(encoding="utf-8").split()
    return pin.partition("==")[2]


UV_SOURCES = {
    "pinned wheel, next to bootstrap.py": uv_from_folder,
    "installed uv": uv_of_user,
    "pinned wheel, by pip": uv_by_pip,
    "pinned wheel, from the index": uv_from_index,
    "release archive": uv_from_archive,
}


# The tool's environment


def tool_environment(sources: Dict[str, bytes]) -> Tuple[Path, bool]:
    """Return the tool's environment, and whether it was created now."""
    tool = data_folder() / tool_name(sources)
    check_owners(python_of(tool))
    is_new = not is_whole(tool)
    if is_new:
        with staging_folder(tool.parent) as stage:
            # Another run may have created it while this one waited.
            if not is_whole(tool):
                make_tool(sources, stage, tool)
    # In a container image, it may belong to another user or be read-only.
    with suppress(OSError):
        os.utime(tool)
    return tool, is_new


def is_whole(tool: Path) -> bool:
    """Return whether an environment has its Python and all installed modules.

    A power cut leaves empty files.
    """
    packages = "Lib/site-packages" if WINDOWS else "lib/python*/site-packages"
    for record in tool.glob(f"{packages}/*.dist-info/RECORD"):
        for line in record.read_text(encoding="utf-8", errors="replace").splitlines():
            name, size = line.partition(",")[0], line.rpartition(",")[2]
            file = record.parent.parent / name
            is_module = name.endswith(".py") and size != "0"
            if is_module and not (file.exists() and file.stat().st_size):
                return False
    return python_of(tool).exists()


def make_tool(
    sources: Dict[str, bytes],
    stage: Path,
    tool: Path,
) -> None:
    """Create the tool's environment, and remove the oldest ones."""
    for name, content in sources.items():
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).write_bytes(content)
    uv = get_uv(stage)
    began = time.monotonic()
    try:
        build(uv, stage, tool.name)
    except SourceError as error:
        message = "gpuinstall's own environment could not be created"
        seen = str(error)
        raise BootstrapError(4, message, [seen], hints_for(seen)) from error
    if tool.exists():
        tool.rename(stage / "damaged")
    (stage / tool.name).rename(tool)
    point_at(tool, stage)
    step("tool", str(tool), began)
    oldest_first = sorted(tool.parent.glob(TOOLS), key=os.path.getmtime)
    for folder in oldest_first[:-KEPT_ENVIRONMENTS]:
        shutil.rmtree(folder, ignore_errors=True)


def build(uv: Path, stage: Path, name: str) -> None:
    """Create an environment with the pinned dependencies and the tool.

    On Windows, also create its launcher in the folder ``bin``, next to the environment.
    """
    tool = stage / name
    python = sys.executable if sys.version_info >= TOOL_PYTHON else ANY_PYTHON
    run([uv, *UV_VENV.split(), python, tool], stage)
    add = [*UV_INSTALL.split(), str(python_of(tool))]
    install = [*add, "--compile-bytecode"]
    for wheel in stage.glob("wheels/*"):
        # uv itself, from the wheel.
        run([uv, *install, "--no-deps", "--no-index", wheel], stage)
    pinned = ["--no-build", "--require-hashes", "--requirements", "lockfiles/tool.txt"]
    no_index = environment().get("PIP_NO_INDEX", "").lower() in SWITCHED_ON
    if environment()["UV_FIND_LINKS"] and not no_index:
        # uv stops at an unreachable index, even if a folder of wheels contains every package.
        with suppress(SourceError):
            run([uv, *install, *pinned, "--no-index", "--dry-run"], stage)
            no_index = True
    run([uv, *install, *pinned, *(["--no-index"] if no_index else [])], stage)
    own_uv = python_of(tool).with_name(f"uv{EXE}")
    cache = str(stage / "cache")
    sources = ["--offline", "--no-deps", "--cache-dir", cache, str(stage)]
    run([own_uv, *install, *sources], stage)
    if WINDOWS:
        # uv's launcher in bin has the relative path of the environment's Python.
        run([own_uv, *add, *sources, "--target", stage], stage)


def point_at(tool: Path, stage: Path) -> None:
    """Update the `gpuinstall` command in the data folder's ``bin``."""
    launcher = tool.parent / "bin" / "gpuinstall"
    launcher.parent.mkdir(exist_ok=True)
    if WINDOWS:
        # A batch file would expand the arguments again, and end the batch file that runs it.
        replace_program(stage / "bin" / launcher.with_suffix(EXE).name, launcher.parent)
        return
    # man searches the share folder next to bin.
    links = {
        launcher: f"../{tool.name}/bin/gpuinstall",
        tool.parent / "share": f"{tool.name}/share",
    }
    for link, target in links.items():
        fresh = link.with_name(f".{os.getpid()}")
        fresh.symlink_to(target)
        fresh.replace(link)


def replace_program(program: Path, folder: Path) -> None:
    """Move a program into a folder, even if the program there is running."""
    for leftover in folder.glob(".old-*"):
        with suppress(OSError):
            leftover.unlink()
    running = folder / program.name
    if running.exists():
        # Windows renames a running program, but does not replace it.
        running.rename(folder / f".old-{os.getpid()}-{time.time_ns()}")
    program.rename(running)


def check_owners(program: Path) -> None:
    """Check that no other user can replace a program in the data folder.

    A parent folder that others can write to causes a warning.

    Raises:
        BootstrapError: Another user owns a part of the data folder, or everyone can change a folder that root uses.
    """
    data = data_folder()
    exposed = list(exposures(program.parent))
    if os.path.lexists(program) and is_foreign(program):
        exposed.append(Exposure(program, "", True))
    for one in exposed:
        is_tools = data in (one.part, *one.part.parents)
        if one.is_refused or (is_tools and is_foreign(one.part)):
            message = f"another user can change {one.part} and the programs in it"
            hints = [f"{SET} {DATA_HOME}=/path/to/your/folder   # then run this again"]
            raise BootstrapError(4, message, [], hints)
    for one in exposed[-1:]:
        write_line(
            f"warning: {one.reason}: other users can change the programs in {data}"
        )


# --- owners: a copy of src/gpuinstall/base/owners.py, written by `make bootstrap` ---


class Exposure(NamedTuple):
    """A part of a path that other users can change."""

    part: Path
    reason: str
    is_refused: bool
    """Whether root refuses the part, because all users can change it."""


def trusted_owners() -> Set[int]:
    """Return the users whose files are trusted: this user and root."""
    # In a user namespace, the host's root has a different user ID.
    return {0, os.getuid(), Path("/").stat().st_uid}


def is_foreign(path: Path, project: Optional[Path] = None) -> bool:
    """Return whether a path or its target belongs to another user.

    Root in a container also trusts the owner of the project, which is a mounted folder.

    Args:
        path: The path of a file, folder, or link.
        project: The project that uses it, if any.
    """
    if os.name != "posix":
        return False
    trusted = trusted_owners()
    if project and os.getuid() == 0 and in_container():
        trusted.add(project.lstat().st_uid)
    owners = {path.lstat().st_uid}
    if os.path.exists(path):
        owners.add(path.stat().st_uid)
    return not owners <= trusted


def is_mine(path: Path) -> bool:
    """Return whether a file, folder, or link belongs to this user."""
    return os.name != "posix" or path.lstat().st_uid == os.getuid()


def is_adoptable(folder: Path, project: Path) -> bool:
    """Return whether a parent folder is trusted, and not world-writable."""
    return not (is_foreign(folder, project) or _is_open(folder.stat()))


def is_shared(folder: Path) -> bool:
    """Return whether others can replace this user's files in a folder."""
    status = folder.stat()
    is_sticky = bool(status.st_mode & stat.S_ISVTX)
    return is_foreign(folder) or (_is_open(status) and not is_sticky)


def owner_of(path: Path) -> str:
    """Return the name of a path's owner, or the number without a name."""
    with suppress(KeyError, NotImplementedError):
        return path.owner()
    return f"uid {path.stat().st_uid}"


def can_start(program: Path) -> bool:
    """Return whether a program on PATH may be started.

    A program in a sticky folder, such as /tmp, must have a trusted owner. In other folders,
    any owner is accepted. If all users can replace programs in a folder, its programs are
    refused only for root on a machine with other users.
    """
    folder = program.parent.stat()
    if not _is_open(folder):
        return True
    if folder.st_mode & stat.S_ISVTX:
        return os.path.lexists(program) and not is_foreign(program)
    return not is_careful()


def exposures(path: Path) -> Iterator[Exposure]:
    """Yield the parts of a path that other users can change.

    A sticky folder is reported only at the end of the path, where other users can create
    files. Only the owner of an entry in a sticky folder can replace the entry.
    """
    if os.name != "posix":
        return
    for part in way_to(path):
        try:
            status = part.lstat()
        except OSError:
            return
        is_sticky = bool(status.st_mode & stat.S_ISVTX)
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder and _is_open(status) and (part == path or not is_sticky):
            is_refused = is_careful() and not is_sticky
            yield Exposure(part, f"everyone can write to {part}", is_refused)
        elif status.st_uid not in trusted_owners():
            yield Exposure(part, f"{part} belongs to {owner_of(part)}", False)


def way_to(path: Path) -> Iterator[Path]:
    """Yield each folder and link that a path leads through, from the root."""
    for part in (*reversed(path.parents), path):
        yield part
        if os.path.islink(part):
            yield from way_to(part.parent / os.readlink(part))


def is_careful() -> bool:
    """Return whether this process is root on a machine with other users."""
    return os.getuid() == 0 and not in_container()


def in_container() -> bool:
    """Return whether this process runs in a container."""
    marks = map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))
    variables = {"container", "KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER"}
    return any(marks) or bool(variables & os.environ.keys())


def _is_open(status: os.stat_result) -> bool:
    return os.name == "posix" and bool(status.st_mode & stat.S_IWOTH)


# --- end of owners ---


@contextmanager
def staging_folder(data: Path) -> Iterator[Path]:
    """Provide a temporary folder in the data folder to one run at a time."""
    with ExitStack() as stack:
        # Others must not be able to write to new folders.
        stack.callback(os.umask, os.umask(0o022))
        data.mkdir(parents=True, exist_ok=True)
        check_owners(data / "bin")
        # Windows and some file systems have no such locks.
        with suppress(ImportError, OSError):
            import fcntl

            handle = os.open(data, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
            for leftover in data.glob(".new-????????"):
                shutil.rmtree(leftover, ignore_errors=True)
        folder = tempfile.TemporaryDirectory(prefix=".new-", dir=data)
        stage = Path(stack.enter_context(folder))
        # Otherwise, uv would search the parents, which can belong to other users.
        (stage / "uv.toml").touch()
        yield stage


def data_folder() -> Path:
    """Return the tool's data folder, by the convention of the system."""
    folder = Path(os.environ.get(DATA_HOME, ""))
    if not folder.is_absolute():
        usual = {"win32": "AppData/Local", "darwin": "Library/Application Support"}
        folder = Path.home() / usual.get(sys.platform, ".local/share")
    return folder / "gpuinstall"


def python_of(folder: Path) -> Path:
    """Return an environment's Python."""
    return folder / ("Scripts" if WINDOWS else "bin") / f"python{EXE}"


# The command


def hand_over(tool: Path, arguments: Sequence[str], is_new: bool) -> int:
    """Replace this process by gpuinstall; on Windows, run it and wait.

    A new tool prints how to add it to PATH.
    """
    word = "bootstrap" if is_new else "bootstrap-again"
    argv = [str(python_of(tool)), "-I", "-m", "gpuinstall", word, *arguments]
    if WINDOWS:
        return subprocess.call(argv)
    return os.execv(argv[0], argv)  # noqa: S606


def hints_for(seen: str) -> List[str]:
    """Return hints for an error message."""
    if re.search("No space left on device|Disk quota exceeded", seen, re.IGNORECASE):
        return ROOM
    if "this run is offline" in seen:
        return OFFLINE
    if "hash mismatch" in seen.lower():
        return [NETWORK[1]]
    if "No module named pip" in seen:
        return [*pip_hints(), *network_hints(seen), *uv_hints()]
    return network_hints(seen)


def network_hints(seen: str) -> List[str]:
    """Return the hints for an unreachable source, most likely first."""

    def rank(hint: str) -> int:
        name = hint.split()[1].partition("=")[0]
        if re.search(NETWORK_ERRORS.get(name, "$^"), seen, re.IGNORECASE):
            return 0
        # Wrong certificates are always in the error, so a set SSL_CERT_FILE proves nothing.
        is_set = name != "SSL_CERT_FILE" and environment().get(name)
        return 1 if is_set else 2

    return sorted(NETWORK, key=rank)


def pip_hints() -> List[str]:
    """Return the lines that install pip or configure an index."""
    hints = []
    if sys.base_prefix == "/usr" and shutil.which("apt-get"):
        hints.append("sudo apt-get install python3-venv   # then run this again")
    file = user_folder() / "pip" / ("pip.ini" if WINDOWS else "pip.conf")
    line = "index-url = https://index.example/simple"
    if WINDOWS or file.exists():
        return [*hints, f"Add to [global] in {file}: {line}"]
    folder, text = quote(str(file.parent)), f"printf '[global]\\n{line}\\n'"
    return [
        *hints,
        f"mkdir -p {folder} && {text} > {quote(str(file))}   # your index",
    ]


def uv_hints() -> List[str]:
    """Return how to get uv's wheel from another machine."""
    pin = re.search(r"uv==\S+", read_sources()[PINS].decode())
    download = f"python3 -m pip download --no-deps {pin.group() if pin else 'uv'}"
    return [
        f"{download}   # on a similar machine with pip; copy the wheel next to bootstrap.py"
    ]


def report_failure(failure: BootstrapError, arguments: Sequence[str]) -> int:
    """Report an error, with ``--json`` also as a document."""
    status, message, seen, hints = failure.args
    command = next(
        (word for word in arguments[:1] if word in COMMANDS.split()), "install"
    )
    as_events = "--json-events" in arguments
    if as_events or "--json" in arguments:
        error = {"code": "bootstrap", "message": message, "hint": "; ".join(hints)}
        event = {"event": "result"} if as_events else {}
        document = {
            **event,
            "gpuinstall": 1,
            "command": command,
            "status": "error",
            "exit_code": status,
            "errors": [error],
        }
        print(json.dumps(document))
    write_line(f"error: {message}")
    for label, lines in (("seen", seen), ("do", hints)):
        for line in lines:
            write_line(f"  {label:<5} {line}")
    write_line("Nothing was installed.")
    return int(status)


def step(
    label: str,
    text: str,
    began: float,
) -> None:
    """Report a step and its time on stderr.

    Args:
        label: The name of the step.
        text: Its result.
        began: The monotonic time of its start.
    """
    if not (os.environ.get("GPUINSTALL_QUIET") or {"-q", "--quiet"} & set(sys.argv)):
        write_line(f"  {label:<19} {text:<46} {time.monotonic() - began:>8.1f} s")


def write_line(text: str) -> None:
    """Write a line to stderr, and ignore a closed one."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run all steps, and return the exit status."""
    try:
        tool, is_new = tool_environment(read_sources())
        return hand_over(tool, arguments, is_new)
    except BootstrapError as failure:
        return report_failure(failure, arguments)
    except (OSError, RuntimeError) as error:
        return report_failure(BootstrapError(4, str(error), [], ROOM), arguments)
    except KeyboardInterrupt:
        return report_failure(BootstrapError(130, "interrupted", [], []), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
