import hashlib

from gpuinstall.diagnose.checks import changed_by_hand
from gpuinstall.diagnose.examination import unproven_devices
from gpuinstall.environments.environment import Marker
from gpuinstall.verify.verdict import Device, Verdict, VerifiedEnvironment
from tests.unit.diagnose.evidence import doctor_evidence, installed_in

PACKAGE = """[[packages]]
name = "{0}"
version = "{1}"
wheels = [{{ url = "https://index.example/{0}-{1}-py3-none-any.whl", hashes = {{ sha256 = "{2}" }} }}]
"""


def environment(venv, locked, installed, more=""):
    for name, version in installed.items():
        (
            venv
            / "lib"
            / "python3.12"
            / "site-packages"
            / f"{name}-{version}.dist-info"
        ).mkdir(parents=True)
    packages = "".join(PACKAGE.format(*each, "0" * 64) for each in locked.items())
    text = f'lock-version = "1.0"\ncreated-by = "gpuinstall"\n{packages}{more}'
    (venv / "pylock.cpu.toml").write_text(text, "utf-8")
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    Marker(
        "1",
        "pylock.cpu.toml",
        sha256,
        "3.12",
        "2.14.1+cpu",
        "cpu",
        "0",
        {},
        packages=locked,
    ).write(venv)
    return doctor_evidence(venv=venv, packages=installed_in(venv))


def test_an_environment_as_it_was_locked_is_no_finding(tmp_path):
    held = {"torch": "2.14.1+cpu", "numpy": "2.3.4"}
    assert (
        list(changed_by_hand(environment(tmp_path, held, {**held, "pip": "26.3"})))
        == []
    )


def test_another_torch_than_the_locked_one_is_named(tmp_path):
    locked = {"torch": "2.14.1+cpu", "numpy": "2.3.4"}
    installed = {"torch": "2.13.0", "numpy": "1.26.4", "cowsay": "6.1"}
    [found] = changed_by_hand(environment(tmp_path, locked, installed))
    assert "2.13.0" in found.message
    assert "2.14.1+cpu" in found.message
    assert found.fix == f"gpuinstall sync --venv {tmp_path}"


def test_a_package_that_is_gone_is_named(tmp_path):
    locked = {"torch": "2.14.1+cpu", "numpy": "2.3.4"}
    [found] = changed_by_hand(environment(tmp_path, locked, {"torch": "2.14.1+cpu"}))
    assert found.message == "numpy 2.3.4 is gone"


def test_a_project_of_another_folder_is_named(tmp_path):
    held = {"torch": "2.14.1+cpu"}
    project = '[[packages]]\nname = "lb"\ndirectory = { path = "lb" }\n'
    evidence = environment(tmp_path / "venv", held, held | {"lb": "1.0"}, project)
    [found] = changed_by_hand(evidence)
    assert found.message == "lb is a copy, or from another folder"
    [record] = (tmp_path / "venv").rglob("lb-1.0.dist-info")
    address = (tmp_path / "lb").as_uri()
    source = f'{{"url": "{address}", "dir_info": {{}}}}'
    (record / "direct_url.json").write_text(source, "utf-8")
    assert list(changed_by_hand(evidence)) == []


def test_a_device_that_was_never_proven_is_a_note():
    busy = Device(1, "NVIDIA A100", unproven="busy")
    [found] = unproven_devices(Verdict(VerifiedEnvironment(), (busy,)))
    assert (found.code, found.blocking, found.message) == (
        "unproven",
        False,
        "GPU 1 is not proven: busy",
    )
