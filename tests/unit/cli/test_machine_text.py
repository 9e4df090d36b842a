"""Text about a machine with unknown facts."""

from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.cli.machine_text import format_machine, list_machine_facts

NAMELESS = Machine(
    os="linux",
    arch="x86_64",
    driver=Driver(),
    gpus=(Gpu(0, vendor="amd"), Gpu(1, architecture="gfx1201", vendor="amd")),
)


def test_gpu_without_name_is_printed_without_vendor():
    line = format_machine(NAMELESS)
    assert line.startswith(
        "unknown GPU (architecture unknown), unknown gfx1201 GPU (gfx1201) · "
    )


def test_machine_facts_without_source_print_no_source():
    assert dict(list_machine_facts(NAMELESS)) == {
        "GPU 0": "unknown GPU · architecture unknown",
        "GPU 1": "unknown gfx1201 GPU · gfx1201",
        "Driver": "of unknown release",
        "System": "linux x86_64",
    }
