import os
import shutil
import zipfile
from collections import Counter
from contextlib import contextmanager

import pytest

from gpuinstall.base.reporter import SilentReporter
from gpuinstall.verify.files import altered_files
from tests.lab.wheels import make_wheel

FAMILY = {"torch", "torchvision"}
MODULES: dict[str, str | bytes] = {
    "torch/__init__.py": "answer = 42",
    "torch/lib/libtorch.so": b"code",
}


@pytest.fixture
def wheel(tmp_path):
    """The wheel as uv's cache has it, unpacked."""
    with zipfile.ZipFile(make_wheel(tmp_path, "torch", "2.14.1", modules=MODULES)) as archive:
        archive.extractall(tmp_path / "unpacked")
    return tmp_path / "unpacked"


@pytest.fixture
def site(tmp_path, wheel):
    return shutil.copytree(wheel, tmp_path / "site")


def test_files_as_they_were_installed_are_not_named(site):
    assert list(altered_files(site, FAMILY, SilentReporter())) == []


def test_a_file_that_was_changed_removed_or_added_is_named(site):
    (site / "torch/__init__.py").write_text("answer = 43")
    (site / "torch/lib/libtorch.so").unlink()
    (site / "torch/extra.py").touch()
    (site / "torch/__pycache__").mkdir()
    (site / "torch/__pycache__/extra.pyc").touch()
    assert {*altered_files(site, FAMILY, SilentReporter())} == {
        "torch/__init__.py",
        "torch/lib/libtorch.so",
        "torch/extra.py",
    }


def test_packages_of_others_are_not_read(site):
    (site / "torch/__init__.py").write_text("answer = 43")
    assert list(altered_files(site, {"torchvision"}, SilentReporter())) == []


def test_a_pipe_in_the_place_of_a_file_is_another_file(site):
    (site / "torch/__init__.py").unlink()
    os.mkfifo(site / "torch/__init__.py")
    assert list(altered_files(site, FAMILY, SilentReporter())) == ["torch/__init__.py"]


class Counting(SilentReporter):
    """Keeps what it is told of a work: its parts, and what was done of each."""

    def __init__(self):
        self.works: dict[str, tuple[dict[str, int | None], Counter[str]]] = {}

    @contextmanager
    def progress(self, label, parts, unit="bytes"):
        """Count."""
        assert unit == "bytes"
        self.works[label] = dict(parts), Counter()

        def advance(part, count):
            self.works[label][1][part] += count

        yield advance


def test_what_is_read_is_counted_to_the_last_byte(site):
    reporter = Counting()
    assert list(altered_files(site, FAMILY, reporter)) == []
    parts, done = reporter.works["Files"]

    assert parts.keys() == {"torch"}
    assert (parts["torch"] or 0) > 0
    assert dict(done) == parts
