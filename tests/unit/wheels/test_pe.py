"""The GPU code of DLLs."""

from gpuinstall.wheels.companions import read_package
from gpuinstall.wheels.gpu_code import read_fatbins, without_relocatable
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.pe import make_dll
from tests.unit.wheels.made import Bytes, archive, fatbin

IMPORTS = {"c10.dll": ("?intrusive@c10@@YAXXZ",), "KERNEL32.dll": ()}


def in_pieces(data, size=1000):
    for start in range(0, len(data), size):
        yield data[start : start + size]


def test_gpu_code_that_was_linked_before_does_not_count():
    linked = fatbin((2, 80, 0), (1, 90, 0))
    loaded = fatbin((2, 80, 0))
    data = make_dll(IMPORTS, relocatable=linked * 3) + loaded * 3

    assert read_fatbins([data]).architectures == ("sm_80", "compute_90")
    for size in (1, 100, len(data)):
        pieces = without_relocatable(in_pieces(data, size))
        assert read_fatbins(pieces).architectures == ("sm_80",)


def test_a_damaged_dll_is_no_error():
    whole = make_dll(IMPORTS, relocatable=fatbin((2, 80, 0)))
    for cut in range(0, len(whole), 7):
        damaged = whole[:cut] + b"\xff\xff\xff\xff" + whole[cut + 4 :]
        assert len(b"".join(without_relocatable([whole[:cut]]))) <= cut
        assert len(b"".join(without_relocatable([damaged]))) <= len(damaged)


def test_a_dll_is_of_the_cuda_that_its_imports_name():
    for library, cuda in (
        ("cudart64_12.dll", "12.0"),
        ("cublasLt64_13.dll", "13.0"),
        ("cudart64_110.dll", "11.0"),
        ("KERNEL32.dll", None),
    ):
        dll = make_dll({library: ("?call@@YAXXZ",)}) + fatbin((2, 80, 0)) * 3
        wheel = WheelReader(Bytes(archive({"painter/_C.pyd": dll})))
        facts = read_package(wheel, "painter", may_have_code=True)
        assert (facts.cuda, facts.architectures) == (cuda, ("sm_80",))
        assert facts.torch.kind == "unknown"
