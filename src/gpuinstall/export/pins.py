"""Format locked packages as requirements for export formats."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.base.advice import Hint, make_command
from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import marker_holds
from gpuinstall.base.shell import quote_word
from gpuinstall.base.text import sanitize
from gpuinstall.base.versions import Backend
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.file.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from packaging.pylock import Package, PackageArchive, PackageSdist, PackageWheel

    from gpuinstall.lock.file.lock import Lock

    _File = PackageWheel | PackageSdist | PackageArchive

_URL = re.compile(r"[A-Za-z][\w+.-]*:[\w.~:/?#\[\]@!$&'()*+,;=%-]+", re.ASCII)
"""Pattern for a URL with only characters that RFC 3986 allows.

A space would end the requirement, and a brace could start a variable.
"""
_UV_SETTINGS = ("override-dependencies", "dependency-metadata")
"""uv settings that replace dependencies of packages."""
_FOLDER = re.compile(r"(?!\.\.?(/|$))[\w.+-]+(/(?!\.\.?(/|$))[\w.+-]+)*", re.ASCII)

_PLATFORMS = (
    ("linux", "x86_64"),
    ("linux", "aarch64"),
    ("windows", "x86_64"),
    ("windows", "arm64"),
    ("macos", "x86_64"),
    ("macos", "arm64"),
)
"""The operating systems and processors for which PyTorch has builds."""
_FROM_INDEX = make_command("lock --upgrade", note="with packages from an index")


def find_unhashed_packages(lock: Lock) -> dict[str, str]:
    """Return pip and uv arguments for packages without hashes, by name.

    pip refuses to install local folders and repositories together with hashed files.
    """
    words_of: dict[str, str] = {}
    for name, address in lock.addresses.items():
        option, _, place = address.partition(f"{name} @ ")
        words_of[name] = quote_word(address)
        if not re.match(r"\w+\+", place):
            # pip does not accept a package name before a folder.
            words_of[name] = f"{option}{quote_word(place)}"
    return words_of


def format_comments(lock: Lock) -> str:
    """Return comment lines about packages that are installed separately."""
    text = format_override_comment(lock)
    for name, words in find_unhashed_packages(lock).items():
        line = sanitize(f"# Without {name}: pip install --no-deps {words}")
        text += f"{line}\n"
    return text


def format_override_comment(lock: Lock) -> str:
    """Return a comment line if uv settings override locked dependencies."""
    keys = {text.partition(" ")[0] for text in lock.record.sources}
    used = " and ".join(key for key in _UV_SETTINGS if key in keys)
    if not used:
        return ""
    ways = "uv pip sync FILE, or pip install --no-deps -r FILE"
    return f"# Resolved with uv's {used}. Other resolvers reject these versions, so install with {ways}\n"


def format_pins(lock: Lock) -> Iterator[tuple[str, ...]]:
    """Yield a requirement and hash options for each locked package.

    Packages from local folders and repositories are omitted.
    """
    # Use URLs for these packages, because the default index does not have their files.
    url_packages = {*load_catalog().family, *load_extensions().rows}
    left_out = find_unhashed_packages(lock)
    for package in lock.pylock.packages:
        if package.name in left_out:
            continue
        hashed = [
            file
            for file in (*(package.wheels or ()), package.sdist, package.archive)
            if file and "sha256" in file.hashes
        ]
        if not hashed:
            raise make_export_error(f"{package.name} has no file with a SHA-256")
        uses_url = package.name in url_packages
        requirement = format_package_requirement(package, hashed, uses_url=uses_url)
        if package.marker:
            requirement += f" ; {package.marker}"
        if not requirement.isprintable():
            raise make_export_error(
                f"the requirement of {package.name} has a line break or a control character: {requirement!r}"
            )
        hashes = {f"--hash=sha256:{file.hashes['sha256']}" for file in hashed}
        yield requirement, *sorted(hashes)


def read_lock_backend(lock: Lock) -> Backend:
    """Return the backend of a lock file. Raise UsageError if it is unknown."""
    _, _, local = lock.versions.get("torch", "").partition("+")
    try:
        return Backend.parse(local or Target.parse(lock.target).backend)
    except (UsageError, ValueError):
        raise make_export_error(
            f"{lock.name} has an unknown build of torch",
            "Rename it after its target: pylock.cu126.toml",
        ) from None


def find_lock_systems(lock: Lock) -> list[tuple[str, str]]:
    """Return the operating systems and processors that a lock file supports.

    Raises:
        UsageError: The lock file does not specify its Python version.
    """
    python = find_common_python([lock])
    markers = lock.pylock.environments
    systems = []
    for os, arch in _PLATFORMS:
        values = Target("cpu", os, arch).environment(python)
        if not markers or any(marker_holds(marker, values) for marker in markers):
            systems.append((os, arch))
    return systems


def format_package_requirement(
    package: Package,
    files: Sequence[_File],
    *,
    uses_url: bool,
) -> str:
    """Return a requirement with a package's version or the URL of its file.

    Args:
        package: The locked package.
        files: The files of the package that have a SHA-256 hash.
        uses_url: Whether to use a URL because the default index lacks the files.

    Raises:
        UsageError: The package has a local or malformed URL.
    """
    has_url = package.archive or (uses_url and len(files) == 1)
    if package.version and not has_url:
        return f"{package.name}=={package.version}"
    address = files[0].url
    if not address:
        raise make_export_error(
            f"{package.name} is from a local folder, which other machines do not have"
        )
    if not _URL.fullmatch(address):
        raise make_export_error(f"{package.name} has an invalid URL: {address!r}")
    folder = package.archive.subdirectory if package.archive else None
    if not folder:
        return f"{package.name} @ {address}"
    if not _FOLDER.fullmatch(folder):
        raise make_export_error(
            f"{package.name} has an invalid folder in its archive: {folder!r}"
        )
    return f"{package.name} @ {address}#subdirectory={folder}"


def make_export_error(
    message: str,
    hint: Hint = _FROM_INDEX,
) -> UsageError:
    """Return an error for a lock file that the format cannot represent."""
    return UsageError("not-exportable", message, hint=hint)


def find_common_python(locks: Sequence[Lock]) -> str:
    """Return the common Python version of lock files, or raise UsageError."""
    pythons = set[str]()
    for lock in locks:
        if lock.python is None:
            message = f"{lock.name} has an unknown Python version"
            raise make_export_error(message, make_command("lock"))
        pythons.add(lock.python)
    if len(pythons) > 1:
        raise UsageError(
            "pythons-differ",
            f"{', '.join(lock.name for lock in locks)} are for different Python versions",
            hint=make_command("lock --upgrade"),
        )
    return pythons.pop()
