"""Requests of any shape."""

from __future__ import annotations

import pytest
from packaging.version import Version

from gpuinstall.api import choose
from gpuinstall.base.backend import Backend
from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.plan.demand import Demand, parse_request
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine


def demand(*requirements: str, python: str | None = None, backend: str | None = None) -> Demand:
    (parsed,) = parse_request(
        Request(requirements, python=python, backend=backend), frozen_catalog().family, machine()
    )
    return parsed


def chosen(*requirements: str, python: str | None = None) -> tuple[str, ...]:
    choice = choose(
        machine("RTX 4090"), Request(requirements, python=python), frozen_catalog()
    ).choice
    return choice.requirements if choice else ()


@pytest.mark.parametrize(
    ("requirements", "installed"),
    [
        (("torch",), ("torch==2.15.0+cu130",)),
        (("torch==2.9.*",), ("torch==2.9.1+cu130",)),
        (("torch>=2.6,<2.8",), ("torch==2.7.1+cu128",)),
        (("torch>=2.6", "Torch<2.8"), ("torch==2.7.1+cu128",)),
        (("torch==2.15.0+cu132",), ("torch==2.15.0+cu132",)),
        (("torch==2.15.0+CU132",), ("torch==2.15.0+cu132",)),
        (("torch!=2.15.0+cu130",), ("torch==2.15.0+cu132",)),
        (("torchvision",), ("torch==2.15.0+cu130", "torchvision==0.29.2+cu130")),
        (("torchvision==0.24.1",), ("torch==2.9.1+cu130", "torchvision==0.24.1+cu130")),
        (("torchaudio<2.5",), ("torch==2.4.1+cu124", "torchaudio==2.4.1+cu124")),
        (("torch[opt-einsum]>=2.15",), ("torch[opt-einsum]==2.15.0+cu130",)),
        (
            ("torch==2.10.0+cu128", "torchvision==0.25.0+cu128", "torchaudio==2.10.0+cu128"),
            ("torch==2.10.0+cu128", "torchvision==0.25.0+cu128", "torchaudio==2.10.0+cu128"),
        ),
        (("torchvision==0.25.0+cu126",), ("torch==2.10.0+cu126", "torchvision==0.25.0+cu126")),
        (("torch==2.10.0", "triton"), ("torch==2.10.0+cu130", "triton==3.6.0")),
        (("triton==3.8.2",), ("torch==2.14.1+cu130", "triton==3.8.2")),
        (("triton>=3.8.1", "triton<3.9"), ("torch==2.14.1+cu130", "triton<3.9,>=3.8.1")),
        (("torch", "xformers>=0.0.30"), ("torch==2.15.0+cu130", "xformers>=0.0.30")),
        (("xformers>=0.0.30", "xformers[a]<1"), ("torch==2.15.0+cu130", "xformers[a]<1,>=0.0.30")),
        (("xformers[b]", "xformers[a]"), ("torch==2.15.0+cu130", "xformers[a,b]")),
        (
            ("torch[opt-einsum]", "torch[optree]>=2.9", "torch"),
            ("torch[opt-einsum,optree]==2.15.0+cu130",),
        ),
        (("torch", "numpy<3", "vllm"), ("torch==2.15.0+cu130", "numpy<3", "vllm")),
        (("torch_vision ",), ("torch==2.15.0+cu130", "torch_vision")),
    ],
)
def test_what_is_asked_for_is_what_is_installed(requirements, installed):
    assert chosen(*requirements) == installed


def test_triton_of_another_version_takes_the_torch_that_pins_it():
    assert chosen("triton==3.5.1") == ("torch==2.9.1+cu130", "triton==3.5.1")


@pytest.mark.parametrize(
    "text", ["torch=2.9", "torch==", "==2.9", "torch[", "", "torch 2.9", "torch>=2.9+cu126"]
)
def test_a_malformed_requirement_is_named(text):
    with pytest.raises(UsageError) as caught:
        demand(text)

    assert caught.value.code == "requirement-malformed"
    assert repr(text) in caught.value.message


def test_an_address_for_torch_is_refused():
    with pytest.raises(UsageError, match="requested by URL"):
        demand("torch @ https://index.example/torch-2.9.1-py3-none-any.whl")


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("pytorch", "torch in place of pytorch"),
        ("PyTorch==2.9", "torch==2.9 in place of PyTorch==2.9"),
        (" pytorch[opt] >=2", "torch[opt]>=2 in place of pytorch[opt] >=2"),
    ],
)
def test_the_package_is_called_torch(text, instead):
    with pytest.raises(UsageError) as caught:
        parse_requirement(text)

    assert (caught.value.code, caught.value.hint) == (
        "requirement-misnamed",
        f"Write {instead}",
    )


@pytest.mark.parametrize(
    "text", ["pytorch-lightning", "pytorch_metric_learning>=2", "pytorch.ignite"]
)
def test_a_package_whose_name_begins_with_pytorch_is_not_torch(text):
    assert parse_requirement(text).name.startswith("pytorch-")


@pytest.mark.parametrize("tag", ["hip7.2", "cuda126", "xpu9", "cu1"])
def test_a_backend_that_is_none_is_named(tag):
    with pytest.raises(UsageError, match="is not a backend"):
        parse_request(Request(("torch==2.9.1",), backend=tag), frozenset({"torch"}), machine())


def test_a_local_version_is_a_backend():
    parsed = demand("torch==2.15.0+cu132")

    assert parsed.backends == {Backend("cuda", "13.2")}
    assert parsed.wants(Version("2.15.0"))
    assert not parsed.wants(Version("2.14.1"))


@pytest.mark.parametrize(
    ("asked", "fitting", "other"),
    [
        ("3.12", "3.12", "3.13"),
        ("3.12.4", "3.12", "3.11"),
        ("3.13t", "3.13t", "3.13"),
        (">=3.10", "3.12", "3.9"),
        (">=3.10.4,<3.13", "3.10", "3.13"),
        ("==3.11.*", "3.11", "3.12"),
    ],
)
def test_a_python_is_exact_or_a_range(asked, fitting, other):
    parsed = demand("torch", python=asked)

    assert parsed.suits(fitting)
    assert not parsed.suits(other)


@pytest.mark.parametrize("text", ["snake", "3", "2.7", "3.x", "-1"])
def test_a_malformed_python_is_named(text):
    with pytest.raises(UsageError, match="is not a Python version"):
        demand("torch", python=text)


@pytest.mark.parametrize(
    ("os", "arch", "torch"),
    [
        ("linux", "x86_64", "2.9.1"),
        ("windows", "x86_64", "2.8.0"),
        ("macos", "arm64", "2.7.1"),
        ("linux", "arm64", "2.6.0"),
    ],
)
def test_a_requirement_counts_where_its_marker_holds(os, arch, torch):
    requirements = (
        'torch==2.9.1; sys_platform == "linux" and platform_machine == "x86_64"',
        'torch==2.6.0; platform_machine == "aarch64"',
        'torch==2.8.0; platform_system == "Windows" and python_version >= "3.9"',
        'torch==2.7.1; sys_platform == "darwin" and python_version >= "3.9"',
        'torch==1.13.0; python_version < "3.0"',
    )
    choice = choose(
        machine("H100", os=os, arch=arch), Request(requirements), frozen_catalog()
    ).choice

    assert choice is not None
    assert str(choice.build.torch) == torch


BY_PYTHON = ('torch==2.6.0; python_version < "3.11"', 'torch>=2.9,<2.11; python_version >= "3.11"')


@pytest.mark.parametrize(
    ("python", "torch"), [("3.10", "2.6.0"), ("3.11", "2.10.0"), ("3.13t", "2.10.0")]
)
def test_two_lines_for_different_pythons_are_one_choice_for_each(python, torch):
    choice = choose(machine("RTX 4090"), Request(BY_PYTHON, python=python), frozen_catalog()).choice

    assert choice is not None
    assert (str(choice.build.torch), choice.python) == (torch, python)


def test_where_the_python_is_open_the_newest_torch_decides():
    at_hand = machine("RTX 4090", pythons=("3.10.12",))

    for managed, expected in ((True, ("2.10.0", "3.14")), (False, ("2.6.0", "3.10"))):
        choice = choose(
            at_hand, Request(BY_PYTHON, managed_pythons=managed), frozen_catalog()
        ).choice
        assert choice is not None
        assert (str(choice.build.torch), choice.python) == expected


def test_a_python_that_serves_every_gpu_comes_before_a_newer_torch():
    requirements = (
        'torch==2.10.0; python_version < "3.12"',
        'torch==2.15.0; python_version >= "3.12"',
    )
    made = choose(machine("V100", "RTX 5090"), Request(requirements), frozen_catalog())

    assert made.choice is not None
    assert (made.status, made.choice.build.name, made.choice.python) == (
        "ok",
        "2.10.0+cu129",
        "3.11",
    )


def test_a_companion_can_be_asked_for_with_some_pythons_only():
    asked = ("torch", 'torchaudio; python_version < "3.12"')

    assert chosen(*asked, python="3.11") == ("torch==2.15.0+cu130", "torchaudio==2.11.0+cu130")
    assert chosen(*asked, python="3.12") == ("torch==2.15.0+cu130",)


def test_lines_that_contradict_each_other_for_the_python_that_is_planned_are_refused():
    asked = ('torch==2.6.0; python_version >= "3.10"', 'torch==2.9.1; python_version >= "3.11"')

    assert chosen(*asked, python="3.10") == ("torch==2.6.0+cu126",)
    assert chosen(*asked, python="3.12") == ()
