"""The formats that a lock is written in: each a pure function, and a row of the table that the command line reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from packaging.requirements import Requirement

from gpuinstall.export.pins import PLATFORM_NAMES, name_for_others, pins, systems_of, without_folders
from gpuinstall.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gpuinstall.lock.lock import Lock


class ExportFormat(NamedTuple):
    """A format: its name on the command line, what is said of it there, and how it is written."""

    name: str
    help: str
    write: Callable[[Lock, Collection[str]], str]
    """Takes the lock and the names whose files no default index has, those of the PyTorch family and of extensions.

    It raises UsageError where the lock does not say enough.
    """
    has_folders: bool = False
    """Whether it names also the packages that are in folders."""


def requirements(lock: Lock, family: Collection[str]) -> str:
    """Write a lock as a requirements file; raise UsageError where a package has no address that others can use."""
    pythons = str(lock.python or lock.pylock.requires_python or "of any version")
    head = f"# From {visible(lock.name)}, for Python {visible(pythons)}.\n{without_folders(lock)}"
    return head + "".join(" \\\n    ".join(pin.words) + "\n" for pin in pins(lock, family))


def constraints(lock: Lock, _family: Collection[str]) -> str:
    """Write the version of each package, the build of torch included: what ``-c`` takes, and what installs nothing."""
    head = f"# From {visible(lock.name)}: pip install -c constraints.txt, uv pip install -c constraints.txt\n"
    return head + "".join(f"{name}=={version}\n" for name, version in sorted(lock.versions.items()))


def conda(lock: Lock, family: Collection[str]) -> str:
    """Write ``environment.yml``; raise UsageError where a package has no address that others can use."""
    python = f"python={lock.python}" if lock.python else json.dumps(f"python{lock.pylock.requires_python or ''}")
    lines = [
        f"# From {visible(lock.name)}: conda env create -f environment.yml",
        *without_folders(lock).splitlines(),
        f"name: {name_for_others(lock)}",
        "channels:",
        "  - conda-forge",
        "  - nodefaults",
        "dependencies:",
        f"  - {python}",
        "  - pip",
        "  - pip:",
        *(f"      - {json.dumps(' '.join(pin.words))}" for pin in pins(lock, family)),
    ]
    return "\n".join(lines) + "\n"


def pixi(lock: Lock, family: Collection[str]) -> str:
    """Write ``pixi.toml``; raise UsageError where a package has no address that others can use.

    It has no place for hashes: pixi takes them from the files, and keeps them in its own lock.
    """
    systems = systems_of(lock)
    packages = []
    for requirement in (Requirement(pin.requirement) for pin in pins(lock, family)):
        marker, url = requirement.marker, requirement.url
        if marker is None or any(marker.evaluate(dict(here)) for here in systems.values()):
            value = f"{{ url = {json.dumps(url)} }}" if url else json.dumps(str(requirement.specifier))
            packages.append(f"{requirement.name} = {value}")
    lines = [
        f"# From {visible(lock.name)}: pixi install",
        *without_folders(lock).splitlines(),
        "[workspace]",
        f"name = {json.dumps(name_for_others(lock))}",
        'channels = ["conda-forge"]',
        f"platforms = {json.dumps([PLATFORM_NAMES[system] for system in systems])}",
        "",
        "[dependencies]",
        f'python = "{lock.python}.*"',
        "",
        "[pypi-dependencies]",
        *packages,
    ]
    return "\n".join(lines) + "\n"


def sbom(lock: Lock, _family: Collection[str]) -> str:
    """Write CycloneDX 1.6: each package with its version, its files' addresses and their sha256."""
    components = []
    for package in lock.pylock.packages:
        version = str(package.version or "")
        purl = f"pkg:pypi/{package.name}" + (f"@{quote(version)}" if version else "")
        files = (file for file in (*(package.wheels or ()), package.sdist, package.archive) if file and file.url)
        references = [
            {"type": "distribution", "url": file.url, "hashes": [{"alg": "SHA-256", "content": file.hashes["sha256"]}]}
            for file in files
            if "sha256" in file.hashes
        ]
        named = {"type": "library", "name": package.name, "version": version, "bom-ref": purl, "purl": purl}
        components.append(named | {"externalReferences": references})
    root = {"type": "application", "name": name_for_others(lock), "bom-ref": lock.name}
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": root}}
    return json.dumps(head | {"components": components}, indent=2) + "\n"


FORMATS = (
    ExportFormat("constraints", "Write the versions alone, for pip -c, uv and Poetry.", constraints),
    ExportFormat("requirements", "Write a requirements file with hashes, for pip and uv.", requirements),
    ExportFormat("conda", "Write conda's environment.yml, its pip section with hashes.", conda),
    ExportFormat("sbom", "Write a bill of materials, CycloneDX 1.6.", sbom, has_folders=True),
    ExportFormat("pixi", "Write pixi's pixi.toml, the versions as locked.", pixi),
)
