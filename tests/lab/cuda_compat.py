"""cuda-compat for tests: compiled libcudas of several ages, in tars, and NVIDIA's host for them."""

import hashlib
import json
import shutil
import tarfile
from pathlib import Path

from tests.lab.driver import compiled
from tests.lab.host import NOT_FOUND, Answer, Host

DRIVER = "580.95.05"
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
    version = (
        f"int cuDriverGetVersion(int *version) {{ *version = {cuda}; return 0; }}\n"
    )
    if fault:
        lacking.append(fault.partition("(")[0].removeprefix("int "))
    library = compiled(folder / "build", "cuda", lacking, version + fault)
    made = folder / "compat"
    made.mkdir()
    shutil.copyfile(library, made / f"libcuda.so.{driver}")
    (made / "libcuda.so.1").symlink_to(f"libcuda.so.{driver}")
    (made / "libcuda.so").symlink_to("libcuda.so.1")
    (made / f"libnvidia-ptxjitcompiler.so.{driver}").write_bytes(
        b"not loaded by the lab"
    )
    (made / "libnvidia-ptxjitcompiler.so.1").symlink_to(
        f"libnvidia-ptxjitcompiler.so.{driver}"
    )
    return made


def make_tar(libraries: Path, file: Path) -> Path:
    """Write NVIDIA's redistributable archive, or whatever tar the name's ending says."""
    packing = "" if file.suffix == ".tar" else file.suffix[1:]
    with tarfile.open(file, f"w:{packing}") as tar:  # type: ignore[call-overload]
        tar.add(libraries, "cuda_compat-archive/compat")
        tar.addfile(tarfile.TarInfo("cuda_compat-archive/LICENSE"))
    return file


TARS = (
    "cuda_compat-linux-x86_64-580.95.05-archive.tar.xz",
    "cuda-compat-impl-580.95.05-0.tar.bz2",
    "cuda-compat.tar",
)


class Redistributables(Host):
    """NVIDIA's host of redistributables: a manifest, and the archive that it lists."""

    def __init__(self, archive: bytes, listed: bytes | None = None):
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
            MANIFEST: Answer(
                body=json.dumps(manifest).encode(), content_type="application/json"
            ),
            f"/redist/{ARCHIVE}": Answer(body=archive),
        }
        super().__init__("redistributables", lambda path, _: files.get(path, NOT_FOUND))

    @property
    def manifest(self) -> str:
        """The address of the manifest."""
        return self.url + MANIFEST
