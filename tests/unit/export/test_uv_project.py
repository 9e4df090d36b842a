import tomli

from gpuinstall.export.uv_project import uv_tables
from tests.unit.export.locks import cpu_lock, cuda_lock, lock, wheel

BASE = "https://index.example/whl"


def tables(*locks):
    return tomli.loads(uv_tables(locks, BASE))


def test_uv_run_takes_a_build_for_gpus_unasked():
    def default(*locks):
        return tables(*locks)["tool"]["uv"]["default-groups"]

    assert default(cpu_lock(), cuda_lock("cu130"), cuda_lock()) == ["torch-cu126"]
    assert default(cpu_lock()) == ["torch-cpu"]
    assert "conflicts" not in tables(cpu_lock())["tool"]["uv"]


def test_the_other_build_that_is_named_is_not_the_default():
    text = uv_tables((cuda_lock("cu126"), cuda_lock("cu130")), BASE)

    assert "--no-default-groups --group torch-cu130" in text


def test_targets_of_one_backend_with_different_torches_are_told_apart_by_their_markers():
    document = tables(cuda_lock(), cuda_lock("cu126-windows-x86_64", torch="2.13.0"))
    requirements = document["dependency-groups"]["torch-cu126"]
    torches = [text for text in requirements if text.startswith("torch==")]
    assert [("linux" in text, "win32" in text) for text in torches] == [
        (True, False),
        (False, True),
    ]


def test_a_companion_that_was_asked_for_has_no_marker():
    locked = lock("cpu", wheel("torchvision", "0.29.2+cpu"), inputs=("torchvision",))
    assert tables(locked)["dependency-groups"]["torch-cpu"] == ["torchvision==0.29.2"]


def test_an_extension_for_one_torch_is_named_by_its_address():
    extension = wheel("apex", "2.9+torch2.14")
    requirements = tables(cuda_lock("cu126", extension))["dependency-groups"][
        "torch-cu126"
    ]
    assert any(text.startswith("apex @ https://") for text in requirements)
