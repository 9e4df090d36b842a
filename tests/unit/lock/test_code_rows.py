"""Which wheels of a lock are read."""

from gpuinstall.lock.code_check import installed_wheels
from gpuinstall.lock.target import Target
from tests.unit.lock.wheels_here import listed


def test_of_several_wheels_of_a_package_the_one_is_read_that_is_installed():
    wheels = [
        listed("kernels-1.0-cp39-abi3-manylinux_2_28_x86_64.whl"),
        listed("kernels-1.0-cp311-abi3-manylinux_2_28_x86_64.whl"),
        listed("kernels-1.0-cp311-abi3-manylinux_2_34_x86_64.whl"),
        listed("other-1.0-py3-none-manylinux_2_28_x86_64.whl"),
    ]
    tags = Target("cu130", glibc="2.28").tags("3.12")
    names = [wheel.filename for wheel in installed_wheels(wheels, tags)]
    assert names == [
        "kernels-1.0-cp311-abi3-manylinux_2_28_x86_64.whl",
        "other-1.0-py3-none-manylinux_2_28_x86_64.whl",
    ]
