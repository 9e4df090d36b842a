"""Tests of reading the GPU code of Windows DLLs."""

from gpuinstall.wheels.package import PackageReader
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.pe import make_dll
from tests.unit.wheels.made import Bytes, archive, fatbin


def test_imports_of_a_dll_determine_cuda():
    for library, cudas in (
        ("cudart64_12.dll", (12,)),
        ("cublasLt64_13.dll", (13,)),
        ("cudart64_110.dll", (11,)),
        ("KERNEL32.dll", ()),
    ):
        dll = make_dll({library: ("?call@@YAXXZ",)}) + fatbin("sm_80") * 3
        wheel = WheelReader(Bytes(archive({"painter/_C.pyd": dll})))
        package = PackageReader(wheel, "painter", may_have_code=True)
        facts = package.read_code(whole=False)
        [code] = facts.codes
        assert (facts.cudas, *code[:2]) == (cudas, "painter/_C.pyd", ("sm_80",))
        assert facts.torch.kind == "unknown"
