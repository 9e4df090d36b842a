"""Build a release in dist/ twice, compare both, and test its installation.

This tool publishes nothing. For a tag, ``.github/workflows/release.yml`` runs it and
publishes the result.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import tomli
import tomli_w

from tools.bundle import write_single_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
UV = Path(sys.executable).with_name("uv")
INSTALL_AND_ASK = '"$0" tool install -q "$1" && ~/.local/bin/gpuinstall --version'


def main() -> None:
    """Check the version, compare two builds, and test the installation."""
    version = sys.argv[1] if len(sys.argv) > 1 else ""
    notes = check_version(version)
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        first, second = (build(Path(scratch) / name) for name in ("first", "second"))
        if digests(first) != digests(second):
            sys.exit(f"two builds differ: {digests(first)} and {digests(second)}")
        for path in first:
            shutil.copy2(path, DIST)
        write_single_files(DIST)
        write_bill_of_materials(Path(scratch) / "sbom")
        try_installations(Path(scratch), version)
    sums = digests(sorted(path for path in DIST.iterdir() if path.is_file()))
    (DIST / "SHA256SUMS").write_text(
        "".join(f"{digest}  {name}\n" for name, digest in sums.items()),
        encoding="utf-8",
    )
    (DIST / "notes.md").write_text(notes, encoding="utf-8")
    sys.stdout.write((DIST / "SHA256SUMS").read_text(encoding="utf-8"))


def check_version(version: str) -> str:
    """Return the changelog of a version, or exit if the tree is not ready."""
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    declared = project["version"]
    if version != declared:
        sys.exit(
            f"VERSION is {version or 'missing'}, and pyproject.toml says {declared}"
        )
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(
        rf"^## {re.escape(version)}\n(.+?)(?=^## |\Z)",
        changes,
        re.MULTILINE | re.DOTALL,
    )
    if section is None:
        sys.exit(f"CHANGELOG.md has no section {version}")
    if changed := git("status", "--porcelain"):
        sys.exit(f"the tree has changes that are not committed:\n{changed}")
    return section[1].strip() + "\n"


def build(folder: Path) -> list[Path]:
    """Build wheel and sdist reproducibly from an export of the commit."""
    folder.mkdir()
    subprocess.run(
        ["git", "-C", ROOT, "archive", "-o", folder / "tree.tar", "HEAD"], check=True
    )
    shutil.unpack_archive(folder / "tree.tar", folder / "tree", filter="data")
    epoch = {"SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct")}
    subprocess.run(
        [UV, "build", "-q", "--out-dir", folder / "dist", folder / "tree"],
        env=os.environ | epoch,
        check=True,
    )
    return sorted(
        path for path in (folder / "dist").iterdir() if path.suffix in {".whl", ".gz"}
    )


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of files by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def write_bill_of_materials(folder: Path) -> None:
    """Write the tool's dependencies as CycloneDX with uv."""
    folder.mkdir()
    declared = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pins = re.findall(
        r"^\S+==\S+(?: ; [^\\]+)?",
        (ROOT / "lockfiles" / "tool.txt").read_text("utf-8"),
        re.MULTILINE,
    )
    project = {
        key: declared["project"][key]
        for key in ("name", "version", "license", "requires-python", "dependencies")
    }
    document = {
        "project": project,
        "tool": {"uv": {"constraint-dependencies": pins, "package": False}},
    }
    (folder / "pyproject.toml").write_text(tomli_w.dumps(document), encoding="utf-8")
    export = [
        "export",
        "-q",
        "--preview-features",
        "sbom-export",
        "--format",
        "cyclonedx1.5",
    ]
    subprocess.run(
        [UV, *export, "-o", DIST / "sbom.cdx.json"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def try_installations(scratch: Path, version: str) -> None:
    """Install in each documented way with an empty home."""
    wheel = next(DIST.glob("*.whl"))
    sdist = next(DIST.glob("*.tar.gz"))
    pip = scratch / "pip"
    pipx = scratch / "pipx"
    uvx = (UV, "tool", "run", "-q", "--from")
    for folder, package in ((pip, str(wheel)), (pipx, "pipx")):
        subprocess.run([UV, "venv", "-q", folder], check=True)
        subprocess.run(
            [
                UV,
                "pip",
                "install",
                "-q",
                "--python",
                folder / "bin" / "python",
                package,
            ],
            check=True,
        )
    script = (DIST / "bootstrap.py").read_bytes()
    ways: Mapping[str, tuple[list[str | Path], bytes | None]] = {
        "pip": ([pip / "bin" / "gpuinstall", "--version"], None),
        "uvx": ([*uvx, wheel, "gpuinstall", "--version"], None),
        "uv tool": (["sh", "-c", INSTALL_AND_ASK, UV, wheel], None),
        "pipx": (
            [pipx / "bin" / "pipx", "run", "--spec", wheel, "gpuinstall", "--version"],
            None,
        ),
        "sdist": ([*uvx, sdist, "gpuinstall", "--version"], None),
        "single file": ([sys.executable, "-", "--version"], script),
    }
    for name, (command, text) in ways.items():
        home = scratch / f"home of {name}"
        home.mkdir()
        own = {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / ".local/share"),
            "PIPX_HOME": str(home / "pipx"),
        }
        done = subprocess.run(
            command,
            env=os.environ | own,
            cwd=home,
            input=text,
            capture_output=True,
            check=False,
        )
        if done.returncode or version not in done.stdout.decode():
            sys.exit(
                f"installed by {name}, it does not report its version:\n{done.stderr.decode()}"
            )
        sys.stdout.write(f"{name}: {done.stdout.decode().strip()}\n")


def git(*words: str) -> str:
    """Return the output of git."""
    return subprocess.run(
        ["git", "-C", ROOT, *words], capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
