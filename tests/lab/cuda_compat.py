"""cuda-compat for tests: compiled libcudas of several ages, in the archives that people have, and NVIDIA's host for them."""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import lzma
import shutil
import struct
import subprocess
import tarfile
import zipfile
from typing import TYPE_CHECKING

from tests.lab.driver import compiled
from tests.lab.host import NOT_FOUND, Answer, Host

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DRIVER = "580.95.05"
LIBRARIES = "usr/local/cuda-13.0/compat"
"""Where the packages of distributions have them."""
MANIFEST = "/redist/redistrib_13.0.0.json"
ARCHIVE = "cuda_compat/linux-x86_64/cuda_compat-linux-x86_64-580.95.05_cuda13.0-archive.tar.xz"
REFUSING = "int cuInit(unsigned flags) {{ (void)flags; return {}; }}"
"""A libcuda whose cuInit returns a number."""
WITHOUT_CONTEXT = "int cuDevicePrimaryCtxRetain(void **context, int device) { (void)context, (void)device; return 999; }"
"""A libcuda that starts, and makes no context."""

SLOW = "int cuInit(unsigned flags) { unsigned sleep(unsigned); (void)flags; sleep(3); return 0; }"
"""A libcuda that takes its time to start."""


def make_libraries(
    folder: Path,
    *,
    driver: str = DRIVER,
    cuda: int = 13000,
    fault: str = "",
) -> Path:
    """Return a folder with the libraries of a driver.

    Args:
        folder: Where it is made.
        driver: The release of the driver.
        cuda: What its cuDriverGetVersion returns.
        fault: C text of a function that replaces the lab's own.
    """
    lacking = ["cuDriverGetVersion"]
    version = f"int cuDriverGetVersion(int *version) {{ *version = {cuda}; return 0; }}\n"
    if fault:
        lacking.append(fault.partition("(")[0].removeprefix("int "))
    library = compiled(folder / "build", "cuda", lacking, version + fault)
    made = folder / "compat"
    made.mkdir()
    shutil.copyfile(library, made / f"libcuda.so.{driver}")
    (made / "libcuda.so.1").symlink_to(f"libcuda.so.{driver}")
    (made / "libcuda.so").symlink_to("libcuda.so.1")
    (made / f"libnvidia-ptxjitcompiler.so.{driver}").write_bytes(b"not loaded by the lab")
    (made / "libnvidia-ptxjitcompiler.so.1").symlink_to(f"libnvidia-ptxjitcompiler.so.{driver}")
    return made


def make_tar(libraries: Path, file: Path, prefix: str = "cuda_compat-archive/compat") -> Path:
    """Write NVIDIA's redistributable archive, or whatever tar the name's ending says."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.add(libraries, prefix)
        tar.addfile(tarfile.TarInfo("cuda_compat-archive/LICENSE"))
    compress: dict[str, Callable[[bytes], bytes]] = {".xz": lzma.compress, ".bz2": bz2.compress}
    file.write_bytes(compress.get(file.suffix, bytes)(content.getvalue()))
    return file


def make_deb(libraries: Path, file: Path, compression: str = "xz") -> Path:
    """Write a deb as NVIDIA's repositories have them."""
    tree = file.with_suffix(".tree")
    shutil.copytree(libraries, tree / LIBRARIES, symlinks=True)
    control = tree / "DEBIAN/control"
    control.parent.mkdir()
    control.write_text(
        "Package: cuda-compat-13-0\nVersion: 580.95.05\nArchitecture: amd64\n"
        "Maintainer: Lab <lab@example.com>\nDescription: made for a test\n"
    )
    options = ["--root-owner-group", f"-Z{compression}"]
    command = ["dpkg-deb", *options, "--build", str(tree), str(file)]
    subprocess.run(command, check=True, capture_output=True)
    return file


def make_rpm(libraries: Path, file: Path) -> Path:
    """Write an rpm: a lead, a signature, a header, and a compressed cpio archive."""
    cpio = b"".join(
        _cpio_entry(f"./{LIBRARIES}/{path.name}", *_content(path))
        for path in sorted(libraries.iterdir())
    )
    cpio += _cpio_entry("TRAILER!!!", 0, b"")
    lead = b"\xed\xab\xee\xdb\x03\x00" + bytes(90)
    signature = _rpm_header(b"12345")
    signature += bytes(-(len(lead) + len(signature)) % 8)
    file.write_bytes(lead + signature + _rpm_header(b"a header") + lzma.compress(cpio))
    return file


def _content(path: Path) -> tuple[int, bytes]:
    if path.is_symlink():
        return 0o120777, str(path.readlink()).encode()
    return 0o100755, path.read_bytes()


def _rpm_header(store: bytes) -> bytes:
    entry = struct.pack(">IIII", 1000, 7, 0, len(store))
    return b"\x8e\xad\xe8\x01" + bytes(4) + struct.pack(">II", 1, len(store)) + entry + store


def _cpio_entry(name: str, mode: int, content: bytes) -> bytes:
    raw = name.encode() + b"\0"
    numbers = [1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(raw), 0]
    head = b"070701" + b"".join(b"%08x" % number for number in numbers) + raw
    return head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)


def make_conda(libraries: Path, file: Path) -> Path:
    """Write conda's archive: a tar for ``.tar.bz2``, a zip of one that zstd has compressed for ``.conda``."""
    if file.suffix == ".bz2":
        return make_tar(libraries, file, "cuda-compat")
    tar = make_tar(libraries, file.with_suffix(".tar"), "cuda-compat")
    compressed = subprocess.run(["zstd", "-qc", str(tar)], check=True, capture_output=True).stdout
    with zipfile.ZipFile(file, "w") as outer:
        outer.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
        outer.writestr("pkg-cuda-compat-impl-580.95.05-0.tar.zst", compressed)
    return file


MAKERS: dict[str, Callable[[Path, Path], Path]] = {
    "cuda-compat-13-0_580.95.05-1_amd64.deb": make_deb,
    "cuda-compat-13-0-580.95.05-1.el8.x86_64.rpm": make_rpm,
    "cuda_compat-linux-x86_64-580.95.05-archive.tar.xz": make_tar,
    "cuda-compat-impl-580.95.05-0.tar.bz2": make_conda,
}


class Redistributables(Host):
    """NVIDIA's host of redistributables: a manifest, and the archive that it lists."""

    def __init__(self, archive: bytes, listed: bytes | None = None) -> None:
        """Serve ``archive``; the manifest has the hash and the size of ``listed``, the same unless it is given."""
        listed = archive if listed is None else listed
        entry = {
            "relative_path": ARCHIVE,
            "sha256": hashlib.sha256(listed).hexdigest(),
            "size": str(len(listed)),
        }
        component = {
            "name": "CUDA Forward Compatability",
            "license": "NVIDIA Driver",
            "version": DRIVER,
            "linux-x86_64": {"cuda13.0": entry},
            "cuda_variant": ["13.0"],
        }
        manifest = {"release_label": "13.0.0", "cuda_compat": component}
        files = {
            MANIFEST: Answer(body=json.dumps(manifest).encode(), content_type="application/json"),
            f"/redist/{ARCHIVE}": Answer(body=archive),
        }
        super().__init__("redistributables", lambda path, _: files.get(path, NOT_FOUND))

    @property
    def manifest(self) -> str:
        """The address of the manifest."""
        return self.url + MANIFEST
