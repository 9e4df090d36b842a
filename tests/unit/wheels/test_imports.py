"""Which libraries the import of a package opens, as its Python says."""

from __future__ import annotations

import random

import pytest

from gpuinstall.wheels.companions import PackageCode, read_package
from gpuinstall.wheels.imports import MOST_MODULES, Loading, read_imports
from gpuinstall.wheels.ranges import Limits
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.native import native_library
from tests.unit.wheels.made import Bytes, archive, fatbin, filler

LIBRARY = "some/_C.cpython-312-x86_64-linux-gnu.so"
HOPPER = fatbin((2, 90, 0x100000)) * 3
PORTABLE = fatbin((2, 80, 0), (2, 90, 0)) * 3


def loading(source: str, *, library: str = LIBRARY, **modules: str) -> Loading:
    """Whether ``some`` works without its library, by its ``__init__`` and further modules."""
    files = {"some/__init__.py": source.encode(), library: filler(3000)}
    for name, text in modules.items():
        files[f"some/{name}.py"] = text.encode()
    libraries = read_imports(WheelReader(Bytes(archive(files))), "some")
    if library in libraries.required:
        return Loading.REQUIRED
    if library in libraries.optional:
        return Loading.OPTIONAL
    return Loading.UNKNOWN


REQUIRED = {
    "import": "import some._C",
    "from": "from . import _C",
    "alias": "from some import _C as kernels",
    "name": "from ._C import gemm",
    "string": "import importlib\nkernels = importlib.import_module('some._C')",
    "in a class": "class Ops:\n    from . import _C",
    "GPU there": "import torch\nif torch.cuda.is_available():\n    from . import _C",
    "not for types": (
        "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    from . import _C"
    ),
    "no program": "if __name__ == '__main__':\n    print()\nelse:\n    from . import _C",
    "raises again": "try:\n    from . import _C\nexcept ImportError as e:\n    raise RuntimeError from e",
    "finally": "try:\n    from . import _C\nfinally:\n    pass\n",
    "called": "def load():\n    from . import _C\n    return _C\nops = load()",
    "last of several": (
        "import ctypes\n"
        "def load(paths):\n"
        "    for path in paths:\n"
        "        try:\n"
        "            return ctypes.CDLL(path + '_C.cpython-312-x86_64-linux-gnu.so')\n"
        "        except OSError:\n"
        "            continue\n"
        "    raise ImportError\n"
        "library = load(['a', 'b'])"
    ),
    "ops": (
        "import torch\nfrom pathlib import Path\n"
        "path = next(Path(__file__).parent.glob('_C*.so'))\n"
        "torch.ops.load_library(str(path))"
    ),
}

OPTIONAL = {
    "try": "try:\n    from . import _C\nexcept ImportError:\n    _C = None",
    "all of them in a try": (
        "import torch\nfrom pathlib import Path\n"
        "try:\n"
        "    for file in Path(__file__).parent.glob('_C*.so'):\n"
        "        torch.ops.load_library(str(file))\n"
        "except Exception as error:\n    print(error)"
    ),
    "suppressed": "from contextlib import suppress\nwith suppress(ImportError):\n    from . import _C",
    "called in a try": "def load():\n    from . import _C\ntry:\n    load()\nexcept ImportError:\n    pass",
}

UNKNOWN = {
    "function": "def load():\n    from . import _C",
    "types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import _C",
    "nothing": "",
    "condition": "import os\nif os.environ.get('FAST'):\n    from . import _C",
    "other branch": "import os\nif os.environ.get('SLOW'):\n    pass\nelse:\n    from . import _C",
    "no Python": "from . import (",
}


@pytest.mark.parametrize(
    ("expected", "sources"),
    [
        (Loading.REQUIRED, REQUIRED),
        (Loading.OPTIONAL, OPTIONAL),
        (Loading.UNKNOWN, UNKNOWN),
    ],
)
def test_what_an_import_opens(expected, sources):
    wrong = {name: loading(source) for name, source in sources.items()}

    assert {name: answer for name, answer in wrong.items() if answer is not expected} == {}


def test_modules_are_followed_to_where_the_library_is_opened():
    through = {"ops": "from .deep import gemm", "deep": "from some._C import gemm"}

    assert loading("from .ops import gemm", **through) is Loading.REQUIRED
    assert loading("try:\n    from . import ops\nexcept ImportError:\n    pass", **through) is (
        Loading.OPTIONAL
    )


def test_a_function_of_another_module_is_followed():
    loader = "import ctypes\ndef load():\n    return ctypes.CDLL('libsome.so.1')"

    assert (
        loading(
            "from .loader import load\nlibrary = load()",
            library="some/libsome.so.1",
            loader=loader,
        )
        is Loading.REQUIRED
    )


def test_every_dot_before_the_name_of_a_module_counts():
    files = {
        "some/__init__.py": b"from .ops import gemm",
        "some/ops/__init__.py": b"",
        "some/ops/gemm.py": b"import importlib\nimportlib.import_module('.._C', __package__)",
        LIBRARY: filler(3000),
    }
    wheel = WheelReader(Bytes(archive(files)))
    assert read_imports(wheel, "some").required == {LIBRARY}


def test_the_only_library_is_the_one_that_a_path_put_together_means():
    source = "import ctypes\nfrom .path import find\nlibrary = ctypes.CDLL(find())"

    assert loading(source, library="some/lib/libsome.so") is Loading.REQUIRED


def test_a_package_of_too_many_modules_is_not_decided():
    many = {f"m{number}": "" for number in range(MOST_MODULES + 1)}
    source = "from . import _C\n" + "".join(f"from . import {name}\n" for name in many)

    assert loading(source, **many) is Loading.UNKNOWN


def test_a_wheel_that_adds_to_another_package_is_entered_where_it_says():
    files = {
        "other/some.py": b"from . import some_ops",
        "other/some_ops.abi3.so": filler(3000),
        "some-1.0.dist-info/entry_points.txt": b"[other.plugins]\nsome = other.some:Device\n",
    }

    imports = read_imports(WheelReader(Bytes(archive(files))), "some")

    assert imports.required == {"other/some_ops.abi3.so"}


def test_modules_that_lie_together_come_with_one_request():
    files = {"some/__init__.py": b"from . import a, b, c, d", LIBRARY: filler(200_000)}
    for name in "abcd":
        files[f"some/{name}.py"] = b"from . import _C"
    files["some/late.py"] = filler(90_000)
    held = Bytes(archive(files))
    wheel = WheelReader(held)
    before = wheel.requests

    assert read_imports(wheel, "some").required == {LIBRARY}
    assert wheel.requests - before == 2


def package(**files: bytes) -> PackageCode:
    held = {name.replace("__", "/").replace("_so", ".so"): data for name, data in files.items()}
    held["some/__init__.py"] = held.pop("init")
    return read_package(WheelReader(Bytes(archive(held))), "some", may_have_code=True)


def test_the_library_that_the_import_opens_answers_before_a_larger_one():
    read = package(
        init=b"from . import _C\ntry:\n    from . import fast\nexcept ImportError:\n    fast = None",
        some___C_so=PORTABLE,
        some__fast_so=HOPPER + filler(9000),
    )

    assert (read.code.member, read.loading) == ("some/_C.so", Loading.REQUIRED)
    assert read.code.architectures == ("sm_80", "sm_90")


def test_what_a_library_needs_counts_if_its_code_is_too_much_to_read(tmp_path):
    code = random.Random(1).randbytes(2_000_000) + PORTABLE
    library = native_library(
        tmp_path / "_C.so",
        undefined=[f"name_{number}" for number in range(20)],
        needs=["libcudart.so.12"],
        code=code,
    )
    files = {"some/__init__.py": b"from . import _C", "some/_C.so": library.read_bytes()}
    wheel = WheelReader(Bytes(archive(files)), Limits(bytes=900_000))

    read = read_package(wheel, "some", may_have_code=True)

    assert (read.needs.cuda, read.loading) == (12, Loading.REQUIRED)
    assert (read.code.architectures, read.code.is_whole) == ((), False)


def test_the_symbols_of_what_is_opened_in_a_try_are_read(tmp_path):
    library = native_library(
        tmp_path / "fast.so",
        undefined=["_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"],
        needs=["libtorch.so"],
        code=PORTABLE,
    )
    read = package(
        init=b"try:\n    from . import fast\nexcept ImportError:\n    fast = None",
        some__fast_so=library.read_bytes(),
    )

    assert read.loading is Loading.OPTIONAL
    assert read.needs.torch.fits == ("2.1", "2.2", "2.3", "2.4", "2.5", "2.6")


def test_what_no_import_opens_is_loaded_later():
    read = package(init=b"def load():\n    from . import fast", some__fast_so=PORTABLE)

    assert (read.code.architectures, read.loading) == (("sm_80", "sm_90"), Loading.LATER)


@pytest.mark.parametrize("name", ["some-gpu", "some-cuda", "some-cu12", "some-cuda12x"])
def test_a_package_that_is_named_after_the_gpu_needs_its_code(name):
    files = {"some/__init__.py": b"from . import _C", LIBRARY: b"", "some/libfast.so": PORTABLE}

    read = read_package(WheelReader(Bytes(archive(files))), name, may_have_code=True)

    assert (read.code.member, read.loading) == ("some/libfast.so", Loading.REQUIRED)


def test_what_is_opened_in_a_try_alone_may_be_missing():
    read = package(
        init=b"try:\n    from . import fast\nexcept ImportError:\n    fast = None",
        some__fast_so=HOPPER,
    )

    assert (read.code.architectures, read.loading) == (("sm_90a",), Loading.OPTIONAL)
