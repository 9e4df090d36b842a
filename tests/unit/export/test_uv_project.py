import tomli

from gpuinstall.export.uv_project import format_uv_tables
from tests.unit.export.locks import cpu_lock, cuda_lock, lock, wheel

BASE = "https://index.example/whl"


def tables(*locks):
    return tomli.loads(format_uv_tables(locks, BASE))


def requirements(tag, *locks):
    return tables(*locks)["dependency-groups"][f"torch-{tag}"]


def test_single_exported_group_is_the_default():
    alone = tables(cpu_lock())["tool"]["uv"]
    assert alone["default-groups"] == ["torch-cpu"]
    assert "conflicts" not in alone


def test_targets_with_same_backend_have_platform_markers():
    windows = cuda_lock("cu126-windows-x86_64", torch="2.13.0")
    texts = requirements("cu126", cuda_lock(), windows)
    torches = [text for text in texts if text.startswith("torch==")]
    systems = [("linux" in text, "win32" in text) for text in torches]
    assert systems == [(True, False), (False, True)]


def test_exported_torchvision_requirement_has_no_marker():
    locked = lock("cpu", wheel("torchvision", "0.29.2+cpu"), inputs=("torchvision",))
    assert requirements("cpu", locked) == ["torchvision==0.29.2"]


def test_extension_with_torch_label_is_exported_by_url():
    texts = requirements("cu126", cuda_lock("cu126", wheel("apex", "2.9+torch2.14")))
    assert any(text.startswith("apex @ https://") for text in texts)
