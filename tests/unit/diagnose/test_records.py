import hashlib

from gpuinstall.diagnose.checks import changed_by_hand
from gpuinstall.diagnose.evidence import read_contents
from gpuinstall.diagnose.examination import unproven_devices
from gpuinstall.environments.environment import Marker
from gpuinstall.verify.verdict import Device, Verdict, VerifiedEnvironment
from tests.unit.diagnose.evidence import doctor_evidence

PACKAGE = """[[packages]]
name = "{0}"
version = "{1}"
wheels = [{{ url = "https://index.example/{0}-{1}-py3-none-any.whl", hashes = {{ sha256 = "{2}" }} }}]
"""


def environment(venv, locked, installed):
    for name, version in installed.items():
        (venv / "lib" / "python3.12" / "site-packages" / f"{name}-{version}.dist-info").mkdir(
            parents=True
        )
    packages = "".join(PACKAGE.format(*each, "0" * 64) for each in locked.items())
    text = f'lock-version = "1.0"\ncreated-by = "gpuinstall"\n{packages}'
    (venv / "pylock.cpu.toml").write_text(text, "utf-8")
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    Marker("1", "pylock.cpu.toml", sha256, "3.12", "2.14.1+cpu", "cpu", "0", {}).write(venv)
    return doctor_evidence(
        venv=venv, contents=read_contents(venv), renewing=("--venv", str(venv), "--replace")
    )


def test_an_environment_as_it_was_locked_is_no_finding(tmp_path):
    held = {"torch": "2.14.1+cpu", "numpy": "2.3.4"}
    assert list(changed_by_hand(environment(tmp_path, held, {**held, "pip": "26.3"}))) == []


def test_what_was_changed_by_hand_is_named_with_what_was_locked(tmp_path):
    locked = {"torch": "2.14.1+cpu", "numpy": "2.3.4", "rich": "14.2.0"}
    installed = {"torch": "2.14.1+cpu", "numpy": "1.26.4", "cowsay": "6.1"}
    [found] = changed_by_hand(environment(tmp_path, locked, installed))
    assert "cowsay 6.1 (not locked), numpy 1.26.4 (locked: 2.3.4), rich is missing" in found.message
    assert (found.fix or "").splitlines() == [
        f"gpuinstall install --venv {tmp_path} --replace cowsay==6.1   # keeps the added packages",
        f"gpuinstall install --venv {tmp_path} --replace   # as it was locked, without cowsay",
    ]


def test_a_device_that_was_never_proven_is_a_note():
    busy = Device(1, "NVIDIA A100", unproven="busy")
    [found] = unproven_devices(Verdict(VerifiedEnvironment(), (busy,)))
    assert (found.code, found.blocking, found.message) == (
        "unproven",
        False,
        "GPU 1 is not proven: busy",
    )
