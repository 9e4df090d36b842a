"""xformers without an attention kernel: a failure on a GPU, nothing to prove on the CPU."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpuinstall.verify.kernels.context import Skip
from gpuinstall.verify.kernels.programs import packed_attention


@pytest.mark.parametrize(
    ("on_gpu", "raised"), [(True, NotImplementedError), (False, Skip)]
)
def test_no_kernel_for_a_gpu_is_a_failure_and_none_for_the_cpu_is_not(
    monkeypatch, on_gpu, raised
):
    def attend(*_tensors):
        raise NotImplementedError(
            "No operator found for `memory_efficient_attention_forward`"
        )

    ops: Any = ModuleType("xformers.ops")
    ops.memory_efficient_attention = attend
    monkeypatch.setitem(sys.modules, "xformers", ModuleType("xformers"))
    monkeypatch.setitem(sys.modules, "xformers.ops", ops)
    context: Any = SimpleNamespace(
        on_gpu=on_gpu,
        random=lambda *_shape, **_options: "a tensor",
        to_device=lambda tensor: tensor,
    )
    with pytest.raises(raised):
        packed_attention(context, sys.modules["xformers"])
