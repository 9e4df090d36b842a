"""The accessibility checker axe-core, fetched for the session that asks: it is no part of the project."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.lab.browser import Browser
from tests.lab.shared import once

VERSION = "4.14.1"
SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
SERIOUS = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).join(" ").slice(0, 300)}`))"""


def axe(factory: pytest.TempPathFactory) -> str:
    """Fetch its script, or skip the test and say why."""
    if not shutil.which("npm"):
        pytest.skip("no npm here, which brings axe-core: apt-get install npm")
    (packed,) = once(factory, "axe", _fetch).glob("*.tgz")
    found = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
    assert found == SHA512, "this is not the axe-core that is meant"
    with tarfile.open(packed) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script
        return script.read().decode()


def serious(shown: Browser, script: str) -> list[str]:
    """What keeps people from reading or using the page that is shown, contrast included."""
    shown.run(f"{script};0")
    found: list[str] = shown.run(SERIOUS)
    return found


def _fetch(folder: Path):
    folder.mkdir()
    words = ["npm", "pack", "--silent", f"axe-core@{VERSION}"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode:
        pytest.skip(f"axe-core cannot be fetched: {done.stderr.strip()[-200:]}")
