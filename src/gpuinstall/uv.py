"""uv's command lines and environment, as values: what is run is what ``--dry-run`` prints."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuinstall.patience import Patience

# What a user may set for uv that changes where and how fast, never what is installed.
_KEPT = """
UV_CACHE_DIR UV_COMPILE_BYTECODE UV_CONCURRENT_ UV_HTTP_ UV_INDEX_ UV_KEYRING_PROVIDER UV_LINK_MODE UV_NATIVE_TLS
UV_NO_CACHE UV_OFFLINE UV_PYTHON_INSTALL_ UV_REQUEST_TIMEOUT UV_SYSTEM_CERTS
"""
_SETTINGS = ("--config-file", "uv.toml")
_INDEX_LISTS = {"UV_INDEX_URL", "UV_INDEX_STRATEGY"}
_FAMILY = ("--index", "./family")


@cache
def uv() -> Path:
    """Find the uv that was installed with us; to be asked first before threads start (sysconfig minds)."""
    from uv import find_uv_bin

    return Path(find_uv_bin())


def cache_folder(variables: Mapping[str, str]) -> Path:
    """Ask uv where its cache is."""
    from gpuinstall.process import run

    return Path(run([uv(), "cache", "dir"], env=variables).out.strip())


def default_index(variables: Mapping[str, str]) -> str | None:
    """Ask uv for the address of its default index."""
    from gpuinstall.process import run

    command = [
        *_pip("compile", Path(sys.executable)),
        "--quiet",
        "--no-header",
        "--emit-index-url",
        "-",
    ]
    setting = run(
        command, env=variables, text=""
    ).out  # without --python uv would run the folder's .venv
    option, _, address = setting.strip().partition(" ")
    return address if option == "--index-url" else None


def environment(
    environ: Mapping[str, str], sources: Mapping[str, str], *, offline: bool = False
) -> dict[str, str]:
    """Build uv's environment: ours with ``sources`` (indexes, certificates, credentials) and no configuration."""
    dropped = {
        name
        for name in environ
        if name.startswith("UV_") and not name.startswith(tuple(_KEPT.split()))
    } | _INDEX_LISTS
    kept = {name: value for name, value in environ.items() if name not in dropped}
    fixed = {"UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "manual", "UV_PREVIEW_FEATURES": "pylock"}
    return {**kept, **fixed, **sources, **({"UV_OFFLINE": "1"} if offline else {})}


def compile_lock(
    python: Path, version: str, platform: str, wheels_only: Iterable[str] = ()
) -> list[str]:
    """Resolve files of the working folder, to be named next, for CPython ``version`` on ``platform`` into a lock.

    The folder's own index, ``family``, comes first, and ``uv.toml`` holds its settings; ``wheels_only`` are never
    built from source.
    """
    form = ["--format", "pylock.toml", "--no-annotate"]
    return [*_compile(python, version, platform, wheels_only), *form]


def compile_with_reasons(
    python: Path, version: str, platform: str, wheels_only: Iterable[str] = ()
) -> list[str]:
    """The same into requirements, each followed by who demanded it."""
    return [*_compile(python, version, platform, wheels_only), "--annotation-style", "line"]


def look(python: Path) -> list[str]:
    """Look at the interpreter at ``python``, and remember what it is."""
    return [str(uv()), "python", "find", str(python)]


def create(python: Path, folder: Path) -> list[str]:
    """Make an environment that can be moved, of the interpreter at ``python``, around what the folder may hold."""
    form = ["--quiet", "--relocatable", "--allow-existing", "--no-project"]
    return [str(uv()), "venv", *form, "--python", str(python), str(folder)]


def sync(python: Path, lock: Path, settings: Path, words: Iterable[str] = ()) -> list[str]:
    """Make the environment of ``python`` hold exactly ``lock``, built as a file of uv's own settings says."""
    return [*_pip("sync", python), "--config-file", str(settings), *words, str(lock)]


def add(python: Path, lock: Path, settings: Path, words: Iterable[str] = ()) -> list[str]:
    """Put what ``lock`` names into the environment of ``python`` beside what it holds, built as ``settings`` say."""
    built = ["--no-deps", "--config-file", str(settings)]
    return [*_pip("install", python), *built, *words, "--requirements", str(lock)]


def take_out(python: Path, package: str) -> list[str]:
    """Take a package out of the environment of ``python``."""
    return [*_pip("uninstall", python), package]


def from_loopback(environ: Mapping[str, str], patience: Patience) -> dict[str, str]:
    """Variables with which uv fetches from this machine: by no proxy, and waiting for longer than what it waits for."""
    names = ("NO_PROXY", "no_proxy")
    spared = next((environ[name] for name in names if environ.get(name)), "")
    direct = ",".join(filter(None, (spared, "127.0.0.1")))
    return {**dict.fromkeys(names, direct), "UV_HTTP_TIMEOUT": str(round(patience.standstill) or 1)}


def unpack(python: Path, lock: Path, folder: Path, words: Iterable[str] = ()) -> list[str]:
    """Bring what ``lock`` names into uv's cache, and make a folder of links to it."""
    links = ["--target", str(folder), "--link-mode", "symlink", "--no-deps"]
    return [*_pip("install", python), *links, *words, "--requirements", str(lock)]


def for_target(version: str, platform: str) -> list[str]:
    """What makes uv choose for CPython ``version`` on ``platform``."""
    return ["--python-version", version, "--python-platform", platform]


def put_into(python: Path, lock: Path, words: Iterable[str] = ()) -> list[str]:
    """Put what ``lock`` names into an environment, and nothing else."""
    return [*_pip("install", python), "--no-deps", *words, "--requirements", str(lock)]


def give_pip(python: Path, wheel: Path | None) -> list[str]:
    """Put pip into an environment: the wheel that its Python carries, else the default index's."""
    source = ["--no-index", str(wheel)] if wheel else ["--only-binary", "pip", "pip"]
    return [*_pip("install", python), "--quiet", "--no-deps", *source]


def fetch_python(version: str) -> list[str]:
    """Fetch a managed CPython ``X.Y``."""
    return [str(uv()), "python", "install", "--no-bin", version]


def audit_lock(service: str | None) -> list[str]:
    """Audit the uv.lock of the working folder as it is; ``service`` is another than uv's own."""
    form = [
        "--preview-features",
        "audit-command,json-output",
        "--frozen",
        "--output-format",
        "json",
    ]
    return [str(uv()), "audit", "--quiet", *form, *(["--service-url", service] if service else [])]


def _compile(python: Path, version: str, platform: str, wheels_only: Iterable[str]) -> list[str]:
    wheels = [word for name in sorted(wheels_only) for word in ("--only-binary", name)]
    fixed = ["--no-header", "--constraints", "constraints.txt", *_SETTINGS, *_FAMILY]
    return [*_pip("compile", python), *for_target(version, platform), *wheels, *fixed]


def _pip(command: str, python: Path) -> list[str]:
    return [str(uv()), "pip", command, "--python", str(python)]
