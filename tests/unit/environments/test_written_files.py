"""What wheels write where they may not: records as uv completes them, files as they lie there."""

from gpuinstall.environments.ownership import misplaced_file, overwritten_files
from gpuinstall.environments.packages import read_packages

SITE = "lib/python3.12/site-packages"


def add_package(root, name, files):
    """Lay out the record of a package as uv does; a text stands for its digest."""
    rows = [f"{path},sha256={text},{len(text)}" for path, text in files.items()]
    record = root / SITE / f"{name}-1.0.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    record.write_text("\n".join([*rows, f"{name}-1.0.dist-info/RECORD,,"]))


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


def test_a_package_writes_its_own_files_scripts_and_data_alone(tmp_path):
    wrong = {}
    expected = {**REFUSED, **dict.fromkeys(TAKEN)}
    for number, (path, message) in enumerate(expected.items()):
        root = tmp_path / str(number)
        add_package(root, "evil", {path: "x"})
        [package] = read_packages([root / SITE])
        found = misplaced_file(package, root)
        if found != message:
            wrong[path] = found
    assert wrong == {}


def test_packages_that_write_the_same_files_with_other_contents_are_named(tmp_path):
    packages = {
        "nvidia_nccl": {"nvidia/__init__.py": "a"},
        "other": {"nvidia/__init__.py": "a", "other.py": "b"},
        "opencv_contrib": dict.fromkeys(("cv2/a.py", "cv2/b.py", "cv2/x.py"), "1"),
        "opencv_headless": dict.fromkeys(("cv2/a.py", "cv2/b.py", "cv2/c.py"), "2"),
        "opencv_python": dict.fromkeys(("cv2/a.py", "cv2/b.py", "cv2/c.py"), "3"),
    }
    for name, files in packages.items():
        add_package(tmp_path, name, files)
    found = overwritten_files(read_packages([tmp_path / SITE]), tmp_path)
    assert {tuple(one.name for one in who): files for who, files in found.items()} == {
        ("opencv-contrib", "opencv-headless", "opencv-python"): [
            f"{SITE}/cv2/a.py",
            f"{SITE}/cv2/b.py",
        ],
        ("opencv-headless", "opencv-python"): [f"{SITE}/cv2/c.py"],
    }
