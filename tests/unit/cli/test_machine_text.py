"""A machine as a person reads it, where little is known of it."""

from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.cli.machine_text import facts, machine_line

NAMELESS = Machine(
    os="linux",
    arch="x86_64",
    driver=Driver(),
    gpus=(Gpu(0, vendor="amd"), Gpu(1, architecture="gfx1201", vendor="amd")),
)


def test_a_gpu_without_a_name_is_of_no_maker_that_nobody_named():
    line = machine_line(NAMELESS)
    assert line.startswith(
        "unknown GPU (architecture unknown), unknown gfx1201 GPU (gfx1201) · "
    )


def test_where_a_fact_was_found_is_said_if_it_is_known():
    assert dict(facts(NAMELESS)) == {
        "GPU 0": "unknown GPU · architecture unknown",
        "GPU 1": "unknown gfx1201 GPU · gfx1201",
        "Driver": "of unknown release",
        "System": "linux x86_64",
    }
