from __future__ import annotations
import json, sys
import pytest, uv
from gpuinstall import process
from tests.lab.driver import FakeDriver, FakeGpu, uuid_of
from tests.lab.stub_torch import modules

@pytest.fixture
def command(play, tmp_path, monkeypatch):
    def env(driver, backend="cu126"):
        play(driver)
        process.run([uv.find_uv_bin(), "venv", "-q", "--no-project", "--python", sys.executable, tmp_path / ".venv"])
        site = next((tmp_path / ".venv").glob("lib/python*/site-packages"))
        for path, text in modules(f"2.14.1+{backend}", backend).items():
            (site / path).parent.mkdir(exist_ok=True)
            (site / path).write_text(text)
        def run(*w, cmd="verify", verdict=None):
            (tmp_path / "verdict.json").write_text(json.dumps(verdict or {}))
            monkeypatch.setenv("LAB_VERDICT", str(tmp_path / "verdict.json"))
            d = process.run([sys.executable, "-m", "gpuinstall", cmd, *w], cwd=tmp_path)
            print("$", cmd, *w, "->", d.status); print(d.out); print("ERR", d.err)
            return d
        return run
    return env

def test_mismatch(command):
    r = command(FakeDriver((FakeGpu(),), nvml_init=18, cu_init=803)); r("", cmd="probe") ; r(); r("--json"); 
def test_mismatch_cpu(command):
    r = command(FakeDriver((FakeGpu(),), nvml_init=18, cu_init=803), "cpu"); r()
def test_nodriver(command):
    r = command(FakeDriver((FakeGpu(),), cu_init=802)); r(); r(cmd="doctor")
def test_one_bad(command):
    r = command(FakeDriver((FakeGpu(), FakeGpu(cuda_error=999)))); r(); r(verdict={uuid_of(1): {"exit": 3}})
def test_cpu(command):
    r = command(FakeDriver((FakeGpu(), FakeGpu())), "cpu"); r(); r("--json"); r(cmd="doctor")
def test_rocm(command):
    r = command(FakeDriver((FakeGpu(), FakeGpu())), "rocm6.4"); r()
def test_noise(command, tmp_path):
    r = command(FakeDriver((FakeGpu(),)))
    site = next((tmp_path / ".venv").glob("lib/python*/site-packages"))
    (site / "sitecustomize.py").write_text("print('{hello}')\n"); r()
    (site / "sitecustomize.py").write_text("import atexit\natexit.register(lambda: print('[1]'))\n"); r()
    (site / "sitecustomize.py").write_text("import os; os.kill(os.getpid(), 11)\n"); r()
    (site / "sitecustomize.py").unlink()
    for bad in ("{}", "[]", '{"schema": "gpuinstall.environment/1"}'):
        (tmp_path / ".venv/gpuinstall.json").write_text(bad); r()
