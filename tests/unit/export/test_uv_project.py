import tomli

from gpuinstall.export.uv_project import uv_tables
from tests.unit.export.locks import cpu_lock, cuda_lock, lock, wheel

BASE = "https://index.example/whl"


def tables(*locks):
    return tomli.loads(uv_tables(locks, BASE))


def requirements(tag, *locks):
    return tables(*locks)["dependency-groups"][f"torch-{tag}"]


def test_uv_run_takes_a_build_for_gpus_unasked():
    several = tables(cpu_lock(), cuda_lock("cu130"), cuda_lock())["tool"]["uv"]
    assert several["default-groups"] == ["torch-cu126"]
    alone = tables(cpu_lock())["tool"]["uv"]
    assert alone["default-groups"] == ["torch-cpu"]
    assert "conflicts" not in alone


def test_the_other_build_that_is_named_is_not_the_default():
    text = uv_tables((cuda_lock("cu126"), cuda_lock("cu130")), BASE)

    assert "--no-default-groups --group torch-cu130" in text


def test_targets_of_one_backend_with_different_torches_are_told_apart_by_their_markers():
    windows = cuda_lock("cu126-windows-x86_64", torch="2.13.0")
    texts = requirements("cu126", cuda_lock(), windows)
    torches = [text for text in texts if text.startswith("torch==")]
    systems = [("linux" in text, "win32" in text) for text in torches]
    assert systems == [(True, False), (False, True)]


def test_a_companion_that_was_asked_for_has_no_marker():
    locked = lock("cpu", wheel("torchvision", "0.29.2+cpu"), inputs=("torchvision",))
    assert requirements("cpu", locked) == ["torchvision==0.29.2"]


def test_an_extension_for_one_torch_is_named_by_its_address():
    texts = requirements("cu126", cuda_lock("cu126", wheel("apex", "2.9+torch2.14")))
    assert any(text.startswith("apex @ https://") for text in texts)
