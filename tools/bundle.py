"""Write dist/bootstrap.py, which contains the tool, and dist/bootstrap.ps1.

dist/bootstrap.ps1 contains dist/bootstrap.py. A team can serve each file.
"""

from __future__ import annotations

import base64
import io
import re
import sys
import textwrap
import zipfile
from pathlib import Path

import bootstrap

ROOT = Path(__file__).resolve().parent.parent
EMPTY = 'PAYLOAD = ""\n'
OWNERS = re.compile(r"# --- owners: .*# --- end of owners ---\n", re.DOTALL)
EMPTY_FOR_WINDOWS = "$carried = ''\n"


def write_single_files(folder: Path) -> None:
    """Write both scripts, with the packed sources, into ``folder``."""
    encoded = base64.b85encode(pack_sources()).decode()
    lines = "\n".join(textwrap.wrap(encoded, 120))
    script = _filled("bootstrap.py", EMPTY, f'PAYLOAD = """\n{lines}\n"""\n')
    folder.mkdir(exist_ok=True)
    file = folder / "bootstrap.py"
    file.write_text(script, encoding="utf-8")
    file.chmod(0o755)
    (folder / "bootstrap.ps1").write_text(
        build_powershell_script(script), encoding="ascii"
    )


def embed_owners_module(script: str) -> str:
    """Return bootstrap.py with the current copy of the ownership module."""
    module = ROOT / "src" / "gpuinstall" / "base" / "owners.py"
    copied = OWNERS.search(module.read_text(encoding="utf-8"))
    if copied is None or len(OWNERS.findall(script)) != 1:
        sys.exit("bootstrap.py or owners.py lacks the markers of owners")
    return OWNERS.sub(lambda _: copied.group(), script)


def build_powershell_script(script: str) -> str:
    """Return bootstrap.ps1 with the text of bootstrap.py."""
    if "\n'@" in script:
        sys.exit(
            "a line of bootstrap.py begins with '@, which would end it in bootstrap.ps1"
        )
    return _filled("bootstrap.ps1", EMPTY_FOR_WINDOWS, f"$carried = @'\n{script}'@\n")


def _filled(
    name: str,
    empty: str,
    full: str,
) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    if text.count(empty) != 1:
        sys.exit(f"{name} has no line {empty!r}")
    return text.replace(empty, full)


def pack_sources() -> bytes:
    """Return the tool's sources as one reproducible archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in bootstrap.read_sources().items():
            # ZipInfo has a fixed time by default, so the archive is reproducible.
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


if __name__ == "__main__":
    source = ROOT / "bootstrap.py"
    source.write_text(
        embed_owners_module(source.read_text(encoding="utf-8")), encoding="utf-8"
    )
    write_single_files(ROOT / "dist")
