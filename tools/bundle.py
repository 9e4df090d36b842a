"""Write dist/bootstrap.py: bootstrap.py with the tool's wheel and the pins inside, one file that a team can serve."""

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


def main() -> None:
    """Build the wheel, pack it with the pins, and put both into the script."""
    script = (ROOT / "bootstrap.py").read_text(encoding="utf-8")
    if script.count(EMPTY) != 1:
        sys.exit(f"bootstrap.py has no line {EMPTY!r}")
    packed = "\n".join(textwrap.wrap(base64.b85encode(payload()).decode(), 120))
    target = ROOT / "dist" / "bootstrap.py"
    target.parent.mkdir(exist_ok=True)
    target.write_text(script.replace(EMPTY, f'PAYLOAD = """\n{packed}\n"""\n'), encoding="utf-8")
    target.chmod(0o755)


def payload() -> bytes:
    """Pack the wheel and the pins; the same tree gives the same bytes."""
    files = {name: (ROOT / "lockfiles" / name).read_bytes() for name in PINS}
    with tempfile.TemporaryDirectory() as folder:
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "build", "-q", "--wheel", "--offline", "--no-cache", "--out-dir", folder, ROOT], check=True)
        wheel = next(Path(folder).glob("*.whl"))
        files[wheel.name] = wheel.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
