"""Write lockfiles/uv-programs.txt, the hashes of the pinned uv programs.

For each platform, uv's wheel and its release archive contain the same program
(github.com/astral-sh/uv, .github/workflows/build-release-binaries.yml and
sign-release-binaries.yml).
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LOCKFILES = Path(__file__).resolve().parent.parent / "lockfiles"
HEAD = "# The sha256 of the uv program in each wheel that uv.txt pins; uv's release archives hold the same programs.\n"
PLATFORMS = {
    "aarch64-apple-darwin": "macosx_11_0_arm64",
    "aarch64-pc-windows-msvc": "win_arm64",
    "aarch64-unknown-linux-musl": "manylinux2014_aarch64",
    "x86_64-apple-darwin": "macosx_10_12_x86_64",
    "x86_64-pc-windows-msvc": "win_amd64",
    "x86_64-unknown-linux-gnu": "manylinux2014_x86_64",
    "x86_64-unknown-linux-musl": "musllinux_1_1_x86_64",
}


def main() -> None:
    """Fetch every wheel by its hash and write one line for it."""
    rows = [
        f"{target:<26} {program_sha256(platform)}\n"
        for target, platform in PLATFORMS.items()
    ]
    (LOCKFILES / "uv-programs.txt").write_text(HEAD + "".join(rows), encoding="utf-8")


def program_sha256(platform: str) -> str:
    """Return the SHA-256 of uv in its wheel for a platform of pip."""
    pins = ["--require-hashes", "--requirement", str(LOCKFILES / "uv.txt")]
    with tempfile.TemporaryDirectory() as folder:
        words = (
            f"-m pip download -q --no-deps --only-binary :all: --platform {platform}"
        )
        command = [sys.executable, *words.split(), "--dest", folder, *pins]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            names = wheel.namelist()
            [program] = [
                name
                for name in names
                if name.endswith(("/scripts/uv", "/scripts/uv.exe"))
            ]
            return hashlib.sha256(wheel.read(program)).hexdigest()


if __name__ == "__main__":
    main()
