"""What wheels write where they may not: records as uv completes them, files as they lie there."""

import base64
import hashlib

from gpuinstall.environments.ownership import misplaced_file, overwritten_files
from gpuinstall.environments.packages import read_packages

SITE = "lib/python3.12/site-packages"


def add_package(root, name, files):
    """Lay out a package as uv does."""
    rows = []
    for path, content in files.items():
        rows.append(f"{path},{digest(content)},{len(content)}")
    record = root / SITE / f"{name}-1.0.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    record.write_text("\n".join([*rows, f"{name}-1.0.dist-info/RECORD,,"]))


def digest(content):
    return "sha256=" + base64.urlsafe_b64encode(
        hashlib.sha256(content.encode()).digest()
    ).decode().rstrip("=")


def misplaced(root):
    """What is said of the one package that lies there."""
    (package,) = read_packages([root / SITE])
    return misplaced_file(package, root)


REFUSED = {
    "../../../pyvenv.cfg": "evil 1.0 writes pyvenv.cfg, a file of the environment itself",
    "../../../gpuinstall.json": "evil 1.0 writes gpuinstall.json, a file of the environment itself",
    "../../../pip.conf": "evil 1.0 writes pip.conf, a file of the environment itself",
    "../../../pylock.cu126.toml": "evil 1.0 writes pylock.cu126.toml, a file of the environment itself",
    "../../../bin/activate": "evil 1.0 writes bin/activate, a file of the environment itself",
    "../../../bin/activate.fish": "evil 1.0 writes bin/activate.fish, a file of the environment itself",
    "../../../CACHEDIR.TAG": "evil 1.0 writes CACHEDIR.TAG, a file of the environment itself",
    "../../../.lock": "evil 1.0 writes .lock, a file of the environment itself",
    "../../../bin/𝜋thon": "evil 1.0 writes bin/𝜋thon, a file of the environment itself",
    "../../../Scripts/PythonW.exe": "evil 1.0 writes Scripts/PythonW.exe, a file of the environment itself",
    "../../../bin/python3.12": "evil 1.0 writes bin/python3.12, a file of the environment itself",
    "./_virtualenv.py": f"evil 1.0 writes {SITE}/_virtualenv.py, a file of the environment itself",
    f"../../../{SITE}/six-2.dist-info/RECORD": f"evil 1.0 writes {SITE}/six-2.dist-info/RECORD, in the record of another package",
    "torch-2.8.3.dist-info/METADATA": f"evil 1.0 writes {SITE}/torch-2.8.3.dist-info/METADATA, in the record of another package",
    "six.egg-info/PKG-INFO": f"evil 1.0 writes {SITE}/six.egg-info/PKG-INFO, in the record of another package",
    "/etc/passwd": "evil 1.0 names /etc/passwd, which is outside the environment, as a file of its own",
    "../../../../x": "evil 1.0 names ../../../../x, which is outside the environment, as a file of its own",
    "a/../../../../../x": "evil 1.0 names a/../../../../../x, which is outside the environment, as a file of its own",
}
TAKEN = (
    "evil/__init__.py",
    "evil/_vendor/six-1.0.dist-info/METADATA",
    "../../../bin/evil",
    "../../../bin/activate-global-python-argcomplete",
    "../../../share/man/man1/evil.1",
    "../../../etc/jupyter/evil.json",
    "evil..py",
)


def test_a_package_writes_neither_into_the_environment_nor_out_of_it(tmp_path):
    wrong = {}
    for number, (path, message) in enumerate(REFUSED.items()):
        root = tmp_path / str(number)
        add_package(root, "evil", {path: "x"})
        if misplaced(root) != message:
            wrong[path] = misplaced(root)
    assert wrong == {}


def test_a_package_writes_its_own_files_scripts_and_data(tmp_path):
    add_package(tmp_path, "evil", dict.fromkeys(TAKEN, "x"))
    assert misplaced(tmp_path) is None


def overwritten(root):
    """The packages that write the same files with different contents, and these."""
    packages = read_packages([root / SITE])
    return {
        tuple(package.name for package in writers): files
        for writers, files in overwritten_files(packages, root).items()
    }


def test_the_same_bytes_of_two_packages_are_no_fault(tmp_path):
    add_package(tmp_path, "nvidia_nccl", {"nvidia/__init__.py": "a"})
    add_package(tmp_path, "other", {"nvidia/__init__.py": "a", "other.py": "b"})
    assert overwritten(tmp_path) == {}


def test_packages_that_share_files_are_named_together(tmp_path):
    add_package(
        tmp_path,
        "opencv_contrib",
        {"cv2/a.py": "1", "cv2/b.py": "1", "cv2/x.py": "1", "cv2/y.py": "1"},
    )
    add_package(
        tmp_path, "opencv_headless", {"cv2/a.py": "2", "cv2/b.py": "2", "cv2/c.py": "2"}
    )
    add_package(
        tmp_path, "opencv_python", {"cv2/a.py": "3", "cv2/b.py": "3", "cv2/c.py": "3"}
    )
    assert overwritten(tmp_path) == {
        ("opencv-contrib", "opencv-headless", "opencv-python"): [
            f"{SITE}/cv2/a.py",
            f"{SITE}/cv2/b.py",
        ],
        ("opencv-headless", "opencv-python"): [f"{SITE}/cv2/c.py"],
    }
