"""Command lines and environment variables of uv."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from gpuinstall.base.cache import JsonCache
from gpuinstall.base.files import own_cache_folder, xdg_folder
from gpuinstall.base.text import has_login, redact, shorten
from gpuinstall.base.values import Value

_HARMLESS = (
    r"UV_(CACHE_DIR|COMPILE_BYTECODE|INSECURE_HOST|KEYRING_PROVIDER|LINK_MODE|NATIVE_TLS|NO_CACHE"
    r"|OFFLINE|REQUEST_TIMEOUT|SYSTEM_CERTS|(CONCURRENT_|HTTP_|PYTHON_INSTALL_).*)"
)
"""uv's variables that do not affect the selection of files."""

_PROXIES = {"all_proxy", "https_proxy", "http_proxy", "no_proxy"}
"""Environment variables that can contain a login.

uv also reads their upper-case names, but expands only upper-case names in a URL.
"""
_SECRET = re.compile(
    r"(?<![A-Z0-9])(PAT|JWT|PWD|AUTH|AUTHORIZATION|DSN|COOKIE|SAS|KEYS?|PASS|PW|CREDS?)(?![A-Z])"
    r"|TOKEN|SECRET|PASS(WORD|WD|PHRASE)|CREDENTIAL|(API|ACCESS|PRIVATE|ACCOUNT)_?KEY"
    r"|CONNECTION_?STRING|WEBHOOK|DATABASE_URL|BROKER_URL"
)
"""Names of variables that contain secrets."""
_SECRET_VALUE = re.compile(
    r"PRIVATE KEY-----|\"(private_key|auth|password|token)\"\s*:"
    r"|(?i:\b(pwd|password|accountkey|sharedaccesskey|client_secret)=)"
    r"|\b(gh[opsur]_|github_pat_|glpat-|xox[abp]-|hf_|npm_|pypi-|sk-|AKIA)\w{8}"
    r"|\beyJ[\w-]{8,}\.|(?i:(^\s*|\bauthorization:\s*)(bearer|basic|token) )|://[^/\s]*:[^/\s]*@"
)
_NO_SECRETS = {"PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY"}
_FOR_PROGRAMS = (
    r"PATH|PATHEXT|HOME|HOMEDRIVE|HOMEPATH|TMP|TEMP|TMPDIR|LANG|LANGUAGE|NETRC"
    r"|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|LD_LIBRARY_PATH|WINDIR|COMSPEC|USERPROFILE"
    r"|APPDATA|LOCALAPPDATA|(LC_|SSL_CERT_|DYLD_).*"
)
"""Environment variables that every program receives."""
_FOR_RESOLVER = (
    rf"{_FOR_PROGRAMS}|SYSTEM(ROOT|DRIVE)|PROGRAM(DATA|FILES.*)|SSH_(AUTH_SOCK|ASKPASS)"
    r"|XDG_(CONFIG|CACHE|DATA|STATE)_(HOME|DIRS)|XDG_RUNTIME_DIR|DBUS_SESSION_BUS_ADDRESS"
    r"|GIT_(SSH|SSH_COMMAND|ASKPASS|TERMINAL_PROMPT|EXEC_PATH|SSL_.*)"
    r"|GIT_CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_0|VALUE_0)"
    r"|RUST_(LOG|BACKTRACE)|MACOSX_DEPLOYMENT_TARGET|UV_(?!CACHE|PYTHON_INSTALL).*"
)
"""Environment variables for uv and Git to resolve without a build."""
_FOR_BUILDS = (
    rf"{_FOR_PROGRAMS}|CC|CXX|CPP|C(XX|PP)?FLAGS|LDFLAGS|AR|AS|LD|NM|RANLIB|STRIP|LIB"
    r"|LIBPATH|INCLUDE|CPATH|LIBRARY_PATH|MAX_JOBS|NUMBER_OF_PROCESSORS|SDKROOT"
    r"|DEVELOPER_DIR|ARCHFLAGS|CARGO_HOME|TORCH_CUDA_ARCH_LIST|GPUINSTALL_BUILT_FOR"
    r"|(C_INCLUDE_|CPLUS_|PKG_CONFIG|CMAKE_|CUDA|NVCC|CUDNN|ROCM|HIP|GIT_|SSH_|SYSTEM"
    r"|PROGRAM|PROCESSOR|MACOSX_|VC|VS|XDG_|UV_|RUST).*"
)
"""Environment variables for a build that only a lock file requests."""


@cache
def uv() -> Path:
    """Return the path of the uv executable that is installed with gpuinstall.

    Call this before the first thread starts, because sysconfig is not thread-safe.
    """
    from uv import find_uv_bin

    return Path(find_uv_bin())


def bypass_proxy(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which uv reaches this machine directly."""
    spared = variables.get("no_proxy")
    direct = f"{spared},127.0.0.1" if spared else "127.0.0.1"
    return {**variables, "no_proxy": direct}


def find_cache(variables: Mapping[str, str]) -> Path:
    """Return uv's cache folder, without running uv on Linux."""
    given = variables.get("UV_CACHE_DIR")
    if given:
        return Path(given)
    if sys.platform == "linux":
        return xdg_folder("XDG_CACHE_HOME", ".cache") / "uv"
    return Path(_query(("cache", "dir"), frozenset(variables.items())).strip())


@cache
def _query(words: tuple[str, ...], variables: frozenset[tuple[str, str]]) -> str:
    """Return the output of uv, which is the same during a command."""
    from gpuinstall.base.process import run

    return run([uv(), *words], env=dict(variables), text="").out


@cache
def find_settings_fault(settings: str, project: str) -> str:
    """Return why uv refuses a table of settings, or an empty string.

    Args:
        settings: The text of a ``uv.toml``.
        project: The text of a pyproject.toml with a workspace and keys that only a project has.
    """
    import tempfile  # slow to import

    from gpuinstall.base.process import run

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        (place / "uv.toml").write_text(settings, encoding="utf-8")
        (place / "pyproject.toml").write_text(project, encoding="utf-8")
        words = [str(uv()), "workspace", "dir", "--config-file", "uv.toml"]
        # uv would expand variables, and print them in its error.
        variables = {"UV_CACHE_DIR": str(place / "cache")}
        if "SYSTEMROOT" in os.environ:  # Windows programs need it
            variables["SYSTEMROOT"] = os.environ["SYSTEMROOT"]
        done = run(words, env=variables, cwd=place)
    if done.ok:
        return ""
    # The reason follows the lines of the file, which begin with a bar.
    lines, _, reason = done.err.removeprefix("error: ").rpartition(" | ")
    key = "".join(re.findall(r" \| ([\w-]+) = ", lines)[-1:])
    reason = shorten(redact(" ".join(reason.strip(" ^\n").split())))
    return f"{key}: {reason}" if key else reason


class _Index(Value):
    """uv's default index."""

    url: str


def default_index(variables: Mapping[str, str]) -> str | None:
    """Return the default index of uv, which depends only on its program."""
    return _find_default_index(uv(), frozenset(variables.items()))


@cache
def _find_default_index(
    program: Path, variables: frozenset[tuple[str, str]]
) -> str | None:
    status = program.stat()
    key = f"{program} {status.st_size} {status.st_mtime_ns}"
    known = JsonCache(own_cache_folder() / "hosts", _Index)
    if index := known.get(key):
        return index.url
    options = ("--quiet", "--no-header", "--emit-index-url", "-")
    # Without --python, uv would run the Python in the folder's .venv.
    _, *words = pip_command("compile", Path(sys.executable), *options)
    setting = _query(tuple(words), variables)
    option, _, address = setting.strip().partition(" ")
    if option != "--index-url":
        return None
    known.put(key, _Index(address))
    return address


def environment(
    environ: Mapping[str, str],
    sources: Mapping[str, str],
    *,
    offline: bool = False,
) -> dict[str, str]:
    """Return uv's environment variables, without ones that select other files.

    Args:
        environ: The variables of this process.
        sources: uv's variables for indexes, certificates, and logins.
        offline: Whether uv must not use the network.
    """
    variables = {
        name: value
        for name, value in environ.items()
        if not name.startswith("UV_") or re.fullmatch(_HARMLESS, name)
    }
    # gpuinstall reads uv.toml itself and passes the effective settings to uv.
    variables["UV_NO_CONFIG"] = "1"
    # gpuinstall downloads a Python itself, after reporting the download.
    variables["UV_PYTHON_DOWNLOADS"] = "manual"
    variables["UV_PREVIEW_FEATURES"] = "pylock"
    variables.update(sources)
    if offline:
        variables["UV_OFFLINE"] = "1"
    return variables


def select_resolver_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that uv receives if it builds nothing.

    uv expands ``${NAME}`` in URLs, including URLs in the METADATA of untrusted packages.
    """
    return {
        name: value
        for name, value in variables.items()
        if name in _PROXIES
        or (re.fullmatch(_FOR_RESOLVER, name.upper()) and not has_secret(value))
    }


class BuildVariables(Value):
    """Rules that select the environment variables for package builds."""

    is_introduced: bool = False
    """Whether only a lock file requests the build."""
    passed: tuple[str, ...] = ()
    """The names of the variables that the user passes to every build."""

    def is_passed(self, name: str, value: str) -> bool:
        """Return whether a build receives an environment variable."""
        upper = name.upper()
        if name in self.passed or name.lower() in _PROXIES:
            return True
        if _is_secret(upper, value):
            return False
        return not self.is_introduced or bool(re.fullmatch(_FOR_BUILDS, upper))

    def select_variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that builds receive.

        uv expands variables in the METADATA of a build, too.
        """
        return {
            name.lower() if name.lower() in _PROXIES else name: value
            # As in uv, the upper-case name has precedence.
            for name, value in sorted(variables.items(), reverse=True)
            if self.is_passed(name, value)
        }

    def list_withheld(self, variables: Mapping[str, str]) -> list[str]:
        """Return the names of the variables that builds do not receive."""
        return sorted(
            name for name, value in variables.items() if not self.is_passed(name, value)
        )


def _is_secret(name: str, value: str) -> bool:
    """Return whether a variable's name or value indicates a secret."""
    if name in _NO_SECRETS:
        return has_login(value)
    # Git's settings have names such as GIT_CONFIG_KEY_0.
    is_named = not name.startswith("GIT_CONFIG_") and bool(_SECRET.search(name))
    return is_named or has_secret(value)


def has_secret(value: str) -> bool:
    """Return whether a variable's value contains a secret."""
    return bool(_SECRET_VALUE.search(value)) or has_login(value)


def compile_lock(
    python: Path,
    version: str,
    platform: str,
    wheels_only: Iterable[str],
) -> list[str]:
    """Return the command that resolves requirements files into a pylock.toml.

    The working folder contains the settings, ``uv.toml``, and the first index,
    ``family``. The caller appends the files.

    Args:
        python: The interpreter for builds.
        version: The version of Python to resolve for.
        platform: The platform to resolve for.
        wheels_only: The packages that must not be built from source.
    """
    never_built = []
    for name in sorted(wheels_only):
        never_built += ["--only-binary", name]
    return pip_command(
        "compile",
        python,
        "--python-version",
        version,
        "--python-platform",
        platform,
        *never_built,
        "--format",
        "pylock.toml",
        "--no-annotate",
        "--no-header",
        "--constraints",
        "constraints.txt",
        "--config-file",
        "uv.toml",
        "--index",
        "./family",
    )


def venv_command(python: Path, folder: Path) -> list[str]:
    """Return the uv command that creates a relocatable environment.

    Args:
        python: The interpreter of an environment, or a base interpreter.
        folder: The folder of the environment. Existing files remain.
    """
    return [
        str(uv()),
        "venv",
        "--quiet",
        "--relocatable",
        "--allow-existing",
        "--no-project",
        "--python",
        str(python),
        str(folder),
    ]


def pip_command(command: str, python: Path, *words: str) -> list[str]:
    """Return a command of ``uv pip`` for the environment of an interpreter."""
    return [str(uv()), "pip", command, "--python", str(python), *words]
