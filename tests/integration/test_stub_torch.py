"""Tests that the fake torch behaves like the real one without a GPU.

The fake and the real torch run with the same fake drivers. The real CUDA runtime only
calls cuInit.
"""

import json
import sys

import pytest

from tests.lab.driver import H200, FakeDriver, environment
from tests.lab.environments import cuda_torch
from tests.lab.processes import succeed
from tests.lab.stub_torch import modules

pytestmark = [pytest.mark.heavy, pytest.mark.network]

REFUSALS = (1, 2, 3, 34, 46, 100, 101, 304, 802, 803, 804, 805, 807, 999)
DRIVERS = {
    **{
        f"cuInit gives {number}": FakeDriver((H200,), cu_init=number)
        for number in REFUSALS
    },
    "CUDA 12.4": FakeDriver((H200,), cuda=12040),
    "CUDA 11.4, and cuInit gives 3": FakeDriver((H200,), cuda=11040, cu_init=3),
    "no cards": FakeDriver(),
}
VISIBLE = {"hidden": "-1", "hidden, too": ""}
# torch is imported once, and each case is a forked process.
QUESTIONS = """
import json, os, sys, warnings
import torch

def answer(question):
    try:
        return repr(question())
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def answers():
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "device_count": answer(torch.cuda.device_count),
        "is_available": answer(torch.cuda.is_available),
        "get_arch_list": answer(torch.cuda.get_arch_list),
        "get_device_properties": answer(lambda: torch.cuda.get_device_properties(0)),
        "cuda()": answer(lambda: torch.zeros(1).cuda()),
        "empty": answer(lambda: torch.empty(1 << 50, device="cuda", dtype=torch.int8)),
        "int8": str(torch.int8),
        "OutOfMemoryError": issubclass(torch.cuda.OutOfMemoryError, RuntimeError),
    }

warnings.simplefilter("ignore")
for name, variables in json.loads(sys.argv[1]).items():
    if os.fork() == 0:
        os.environ.update(variables)
        os.write(1, (json.dumps([name, answers()]) + "\\n").encode())
        os._exit(0)
    os.wait()
"""


def asked(python, driver, cases):
    """Return the results of torch with each fake driver."""
    words = [str(python), "-c", QUESTIONS, json.dumps(cases)]
    done = succeed(words, env=driver)
    return dict(map(json.loads, done.out.splitlines()))


def test_stub_torch_matches_real_torch(tmp_path, tmp_path_factory, libraries):
    python = cuda_torch(tmp_path_factory) / "bin" / "python"
    played = {
        name: environment(driver, libraries, tmp_path)
        for name, driver in DRIVERS.items()
    }
    whole = environment(FakeDriver((H200,)), libraries, tmp_path)
    without = environment(FakeDriver((H200,), cu_missing=True), libraries, tmp_path)
    cases = {
        name: {"LAB_GPUS": variables["LAB_GPUS"]} for name, variables in played.items()
    }
    cases |= {name: {"CUDA_VISIBLE_DEVICES": value} for name, value in VISIBLE.items()}

    real = asked(python, whole, cases) | asked(python, without, {"no libcuda": {}})
    version, cuda = real["no libcuda"]["torch"], real["no libcuda"]["cuda"]
    architectures = json.loads(real["no libcuda"]["get_arch_list"].replace("'", '"'))
    for path, text in modules(
        version, f"cu{cuda.replace('.', '')}", *architectures
    ).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    stub = {"PYTHONPATH": str(tmp_path)}
    small = asked(sys.executable, whole | stub, cases)
    small |= asked(sys.executable, without | stub, {"no libcuda": {}})

    assert real.keys() == {*cases, "no libcuda"}
    assert "CUDA driver initialization failed" in real["cuInit gives 3"]["cuda()"], (
        "it was played"
    )
    differences = {
        (case, question): (small[case][question], text)
        for case, answers in real.items()
        for question, text in answers.items()
        if small[case][question] != text
    }
    assert differences == {}
