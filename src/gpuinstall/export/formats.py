"""Export one lock file as requirements, constraints, or a conda environment.

The functions raise UsageError if the lock file does not specify its target or if a
package has a local path.
"""

from __future__ import annotations

import json
import re

from gpuinstall.base.errors import UsageError
from gpuinstall.base.text import sanitize
from gpuinstall.catalog import load_catalog
from gpuinstall.export.needs import find_machine_needs
from gpuinstall.export.pins import format_comments, format_override_comment, format_pins
from gpuinstall.lock.file.lock import Lock


def format_requirements_file(lock: Lock) -> str:
    """Return the text of a requirements file for a lock file."""
    pythons = str(lock.python or lock.pylock.requires_python or "of any version")
    head = f"# From {sanitize(lock.name)}, for Python {sanitize(pythons)}.\n"
    lines = [" \\\n    ".join(words) + "\n" for words in format_pins(lock)]
    return "".join([head, format_comments(lock), *lines])


def format_constraints_file(lock: Lock) -> str:
    """Return the text of a constraints file that pins each locked package."""
    commands = "pip install -c constraints.txt, uv pip install -c constraints.txt"
    lines = [
        f"# From {sanitize(lock.name)}: {commands}\n",
        format_override_comment(lock),
    ]
    lines += [f"{name}=={version}\n" for name, version in sorted(lock.versions.items())]
    return "".join(lines)


def format_conda_environment(lock: Lock) -> str:
    """Return the text of a conda ``environment.yml`` for a lock file.

    The virtual packages in the file make conda reject an old driver or glibc.
    """
    virtual_packages = _find_virtual_packages(lock)
    command = "conda env create -f environment.yml"
    text = f"# From {sanitize(lock.name)}: {command}\n{format_comments(lock)}"
    if "__cuda" in virtual_packages:
        cuda = virtual_packages["__cuda"]
        text += f"# On a machine without a GPU: CONDA_OVERRIDE_CUDA={cuda} {command}\n"
    # Exclude Anaconda's default channel, because its packages have a different license.
    name = lock.name.removesuffix(".toml").replace("pylock", "torch")
    text += f"name: {re.sub('[^A-Za-z0-9_-]', '-', name)}\n"
    text += "channels:\n  - conda-forge\n  - nodefaults\ndependencies:\n"
    for name, version in virtual_packages.items():
        text += f"  - {name} >={version}\n"
    python = f"python={lock.python}"
    if not lock.python:
        python = json.dumps(f"python{lock.pylock.requires_python or ''}")
    text += f"  - {python}\n  - pip\n  - pip:\n"
    for words in format_pins(lock):
        text += f"      - {json.dumps(' '.join(words))}\n"
    return text


def _find_virtual_packages(lock: Lock) -> dict[str, str]:
    """Return minimum versions of conda's virtual packages for a lock file."""
    try:
        (needs,) = find_machine_needs(lock, load_catalog())
    except (UsageError, ValueError):
        # The lock file does not specify its target, or supports several systems.
        return {}
    packages = {}
    cudas = [min(gpus.cudas) for gpus in needs.gpus if gpus.cudas]
    if cudas:
        packages["__cuda"] = str(min(cudas))
    if needs.glibc:
        packages["__glibc"] = needs.glibc
    return packages
