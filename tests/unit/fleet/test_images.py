from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

from gpuinstall.files import sha256_of
from gpuinstall.fleet.environment import unpack_image

if TYPE_CHECKING:
    from pathlib import Path


def test_an_image_is_unpacked_beside_what_is_there(tmp_path: Path) -> None:
    built = tmp_path / "built"
    (built / ".venv").mkdir(parents=True)
    (built / ".venv" / "pyvenv.cfg").touch()
    (built / "pylock.cu126.toml").touch()
    image = tmp_path / "image.tar.gz"
    with tarfile.open(image, "w:gz") as packed:
        packed.add(built, arcname=".")
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    (root / "group").mkdir()
    (root / "group" / "notes.txt").write_text("mine", encoding="utf-8")
    unpack_image(image, root / "group", sha256_of(image))
    names = {path.name for path in (root / "group").rglob("*")}
    assert names == {".venv", "pyvenv.cfg", "pylock.cu126.toml", "notes.txt"}
    assert [path.name for path in root.iterdir()] == ["group"]
