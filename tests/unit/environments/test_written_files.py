"""What wheels write where they may not: records as uv completes them, files as they lie there."""

import base64
import hashlib
import re

from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.written_files import write_faults

SITE = "lib/python3.12/site-packages"
TORCH = {"torch/version.py": "cuda = '12.6'", "torch/__init__.py": ""}


def add_package(root, name, files, *, hashed=None):
    """Lay out a package as uv does; ``hashed`` are the contents that its RECORD claims, where they differ."""
    rows = []
    for path, content in files.items():
        file = root / SITE / path
        if file.resolve().is_relative_to(root):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        claimed = (hashed or {}).get(path, content)
        rows.append(
            f"{path},{digest(claimed)},{len(claimed)}"
            if claimed
            else f"{path},,{len(content)}"
        )
    record = root / SITE / f"{name}-1.0.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    record.write_text("\n".join([*rows, f"{name}-1.0.dist-info/RECORD,,"]))


def digest(content):
    return "sha256=" + base64.urlsafe_b64encode(
        hashlib.sha256(content.encode()).digest()
    ).decode().rstrip("=")


def faults(root, changed=None):
    """Each message, and whether it refuses; ``changed`` are the packages to look at, all unless given."""
    packages = read_packages([root / SITE])
    names = {package.name for package in packages} if changed is None else changed
    found = write_faults(packages, names, root)
    return [(fault.message, fault.is_refused) for fault in found]


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
    f"../../../{SITE}/six-2.dist-info/RECORD": "evil 1.0 writes six-2.dist-info/RECORD, the record of another package",
    "torch-2.8.3.dist-info/METADATA": "evil 1.0 writes torch-2.8.3.dist-info/METADATA, the record of another package",
    "six.egg-info/PKG-INFO": "evil 1.0 writes six.egg-info/PKG-INFO, the record of another package",
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
        if faults(root) != [(message, True)]:
            wrong[path] = faults(root)
    assert wrong == {}


def test_a_package_writes_its_own_files_scripts_and_data(tmp_path):
    add_package(tmp_path, "evil", dict.fromkeys(TAKEN, "x"))
    assert faults(tmp_path) == []


INTRUDING = {
    "torch/evil.py": "torch",
    "torch/version.py": "torch",
    "Torch/evil.py": "torch",
    "torchvision.libs/libevil.so": "torchvision",
    "../../../lib/python3.12/site-packages/torch/evil.py": "torch",
    "../../../lib64/python3.12/site-packages/torch/evil.py": "torch",
    "pip/__init__.py": "pip",
    "pip.py": "pip",
    "uv/evil.py": "uv",
    "setuptools/__init__.py": "setuptools",
    "pkg_resources/evil.py": "setuptools",
    "gpuinstall/evil.py": "gpuinstall",
}


def test_modules_of_torch_and_of_tools_that_install_are_nobody_elses(tmp_path):
    wrong = {}
    for number, (path, owner) in enumerate(INTRUDING.items()):
        root = tmp_path / str(number)
        add_package(root, "torch", TORCH)
        add_package(
            root,
            "torchvision",
            {"torchvision/__init__.py": "", "torchvision.libs/a.so": "a"},
        )
        add_package(root, "nvidia_evil", {"evil.py": "", path: "evil"})
        expected = f"nvidia-evil 1.0 writes .*, a file of a module of {owner}"
        found = faults(root)
        if not (
            len(found) == 1 and re.fullmatch(expected, found[0][0]) and found[0][1]
        ):
            wrong[path] = found
    assert wrong == {}


def test_the_family_and_namespaces_may_share_folders(tmp_path):
    add_package(tmp_path, "torch", TORCH)
    add_package(
        tmp_path, "triton", {"triton/__init__.py": "", "torch/of_triton.py": ""}
    )
    add_package(
        tmp_path,
        "setuptools",
        {"setuptools/__init__.py": "", "pkg_resources/__init__.py": ""},
    )
    add_package(tmp_path, "mlflow_skinny", {"mlflow/__init__.py": "a"})
    add_package(
        tmp_path, "mlflow", {"mlflow/__init__.py": "a", "mlflow/server.py": "b"}
    )
    add_package(
        tmp_path,
        "nvidia_dali",
        {"nvidia/dali/__init__.py": "", "pip_tools/a.py": "", "uvloop/a.py": ""},
    )
    assert faults(tmp_path) == []


def test_a_record_that_lies_does_not_hide_other_bytes(tmp_path):
    """Whoever comes last wrote the file; the other's hash in its RECORD, or none, makes it no better."""
    wrong = {}
    files = {"numpy/core.py": "1", "numpy/b.py": ""}
    for number, claimed in enumerate((files["numpy/core.py"], "")):
        root = tmp_path / str(number)
        add_package(root, "numpy", files)
        intruder = {"numpy/core.py": "evil", "evil.py": "", "e.py": ""}
        add_package(root, "evil", intruder, hashed={"numpy/core.py": claimed})
        message = f"evil 1.0 and numpy 1.0 write {SITE}/numpy/core.py, with different contents"
        if faults(root) != [(message, True)]:
            wrong[claimed] = faults(root)
    assert wrong == {}


def test_the_same_bytes_of_two_packages_are_no_fault(tmp_path):
    add_package(tmp_path, "nvidia_nccl", {"nvidia/__init__.py": "a"})
    add_package(tmp_path, "other", {"nvidia/__init__.py": "a", "other.py": "b"})
    assert faults(tmp_path) == []


OPENCV = {f"cv2/{number}.py": f"{number}" for number in range(4)}
A_SCRIPT = (
    {"../../../bin/x": "a", "a.py": "", "aa.py": ""},
    {"../../../bin/x": "b", "b.py": "", "bb.py": ""},
)
OF_OTHERS = {
    "a module": (
        {"numpy/core.py": "a", "numpy/b.py": ""},
        {"numpy/core.py": "evil", "evil.py": "", "e.py": ""},
    ),
    "a head": (
        {"numpy/__init__.py": "", "n.py": ""},
        {"numpy/__init__.py": "evil", "evil.py": "", "e.py": ""},
    ),
}
UNTIDY = {
    "one thing twice": (OPENCV, dict.fromkeys(OPENCV, "headless")),
    "tests": (
        {"tests/__init__.py": "a", "a.py": "", "aa.py": ""},
        {"tests/__init__.py": "b", "b.py": "", "bb.py": ""},
    ),
    "a licence": (
        {"LICENSE": "a", "a.py": "", "aa.py": ""},
        {"LICENSE": "b", "b.py": "", "bb.py": ""},
    ),
    "a script": A_SCRIPT,
}


def test_a_module_of_another_is_refused_and_what_projects_live_with_is_named(
    tmp_path,
):
    wrong = {}
    cases = {**dict.fromkeys(OF_OTHERS, True), **dict.fromkeys(UNTIDY, False)}
    for case, refused in cases.items():
        root = tmp_path / case
        first, second = (OF_OTHERS | UNTIDY)[case]
        add_package(root, "first", first)
        add_package(root, "second", second)
        for changed in ({"first", "second"}, {"first"}, {"second"}):
            if [is_refused for _, is_refused in faults(root, changed)] != [refused]:
                wrong[case] = faults(root, changed)
    assert wrong == {}


def test_torch_and_tools_share_no_script(tmp_path):
    first, second = A_SCRIPT
    wrong = {}
    for name in ("torch", "nvidia_nccl", "setuptools", "uv"):
        root = tmp_path / name
        add_package(root, name, first)
        add_package(root, "other", second)
        if [is_refused for _, is_refused in faults(root)] != [True]:
            wrong[name] = faults(root)
    assert wrong == {}


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
    three = "opencv-contrib 1.0, opencv-headless 1.0 and opencv-python 1.0"
    two = "opencv-headless 1.0 and opencv-python 1.0"
    expected = [
        (f"{three} write {SITE}/cv2/a.py and 1 more, with different contents", False),
        (f"{two} write {SITE}/cv2/c.py, with different contents", False),
    ]
    assert faults(tmp_path) == expected
    assert sorted(faults(tmp_path, {"opencv-python"})) == sorted(expected)
    assert faults(tmp_path, {"another"}) == []


def test_the_parts_of_cuda_may_share_a_folder(tmp_path):
    add_package(tmp_path, "nvidia_one", {"nvidia/a.h": "a", "nvidia/b.h": ""})
    add_package(tmp_path, "nvidia_two", {"nvidia/a.h": "b", "nvidia/c.h": ""})
    message = f"nvidia-one 1.0 and nvidia-two 1.0 write {SITE}/nvidia/a.h, with different contents"
    assert faults(tmp_path) == [(message, False)]
