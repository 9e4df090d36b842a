import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.export.pins import backend_of
from gpuinstall.lock.file.lock import parse
from tests.unit.export.locks import cuda_lock, lock, wheel


def named(text, name):
    return parse(name, text)


def test_torchs_own_version_says_it_whatever_the_file_is_called():
    assert backend_of(named(cuda_lock().text, "pylock.toml")).tag == "cu126"


def test_a_build_of_the_default_index_is_known_by_the_name_of_its_lock():
    assert (
        backend_of(lock("cu130-linux-aarch64", wheel("torch", "2.14.1"))).tag == "cu130"
    )


def test_a_lock_that_says_neither_is_refused():
    with pytest.raises(UsageError, match=r"pylock\.toml does not say which build"):
        backend_of(named(lock("cpu", wheel("torch", "2.14.1")).text, "pylock.toml"))
