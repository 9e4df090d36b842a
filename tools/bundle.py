"""Write dist/bootstrap.py, which carries the tool's wheel and the pins, and dist/bootstrap.ps1, which carries that.

Each is one file that a team can serve.
"""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ("uv.txt", "uv-programs.txt", "tool.txt")
EMPTY = 'PAYLOAD = ""\n'
EMPTY_FOR_WINDOWS = "$carried = ''\n"


def write_single_files(folder: Path) -> None:
    """Build the wheel, pack it with the pins, and put both into the scripts, for ``folder``."""
    encoded = base64.b85encode(payload()).decode()
    lines = "\n".join(textwrap.wrap(encoded, 120))
    script = _filled("bootstrap.py", EMPTY, f'PAYLOAD = """\n{lines}\n"""\n')
    folder.mkdir(exist_ok=True)
    bootstrap = folder / "bootstrap.py"
    bootstrap.write_text(script, encoding="utf-8")
    bootstrap.chmod(0o755)
    (folder / "bootstrap.ps1").write_text(for_windows(script), encoding="ascii")


def for_windows(script: str) -> str:
    """Return bootstrap.ps1 with bootstrap.py in it, where it is text until a line begins with its end mark."""
    if "\n'@" in script:
        sys.exit("a line of bootstrap.py begins with '@, which would end it in bootstrap.ps1")
    return _filled("bootstrap.ps1", EMPTY_FOR_WINDOWS, f"$carried = @'\n{script}'@\n")


def _filled(name: str, empty: str, full: str) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    if text.count(empty) != 1:
        sys.exit(f"{name} has no line {empty!r}")
    return text.replace(empty, full)


def payload() -> bytes:
    """Return the wheel and the pins in one archive; the same tree gives the same bytes."""
    files = {name: (ROOT / "lockfiles" / name).read_bytes() for name in PINS}
    with tempfile.TemporaryDirectory() as folder:
        uv = Path(sys.executable).with_name("uv")
        options = ("-q", "--wheel", "--offline", "--no-cache", "--out-dir", folder)
        subprocess.run([uv, "build", *options, ROOT], check=True)
        wheel = next(Path(folder).glob("*.whl"))
        files[wheel.name] = wheel.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(files.items()):
            # Without the time of packing.
            entry = zipfile.ZipInfo(name)
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


if __name__ == "__main__":
    write_single_files(ROOT / "dist")
