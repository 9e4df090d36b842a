import os
import zipfile

from gpuinstall.verify.files import find_modified_files
from tests.lab.wheels import make_wheel

FAMILY = {"torch", "torchvision"}
MODULES: dict[str, str | bytes] = {
    "torch/__init__.py": "answer = 42",
    "torch/lib/libtorch.so": b"code",
}


def test_modified_files_are_reported(tmp_path):
    wheel = make_wheel(tmp_path, "torch", "2.14.1", modules=MODULES)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    module = tmp_path / "torch" / "__init__.py"

    def altered(names=FAMILY):
        return {*find_modified_files(str(module), names)}

    assert altered() == set()
    module.write_text("answer = 43")
    assert altered() == {"torch/__init__.py"}
    assert altered({"torchvision"}) == set()
    (tmp_path / "torch" / "lib" / "libtorch.so").unlink()
    # A named pipe instead of a file must not block.
    module.unlink()
    os.mkfifo(module)
    assert altered() == {"torch/__init__.py", "torch/lib/libtorch.so"}
