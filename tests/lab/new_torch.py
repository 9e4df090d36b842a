"""Wheels of a torch that is not in the catalog, with listed architectures."""

from pathlib import Path

from tests.lab.stub_torch import modules
from tests.lab.wheels import make_wheel
from tests.unit.wheels.made import library

TORCH = "2.16.0"
VERSION = """from typing import Optional

__version__ = '{}'
cuda: Optional[str] = '{}'
hip: Optional[str] = None
"""


def make_new_torch(
    served: Path,
    tag: str,
    code: str = "75 80 86 90 100 120",
    *,
    python: str = "312",
) -> Path:
    """Add a build to a simulated index; ``code`` lists its architectures."""
    names = [f"sm_{number}" for number in code.split()]
    local = f"{TORCH}+{tag}"
    files: dict[str, str | bytes] = {
        **modules(local, tag, *names),
        "torch/version.py": VERSION.format(local, f"{tag[2:-1]}.{tag[-1]}"),
        "torch/lib/libtorch_python.so": library(
            f"\0{' '.join(names)}\0".encode() if names else b"", size=60_000
        ),
    }
    linux = 'platform_system == "Linux"'
    requires = [
        f"nvidia-cudnn-cu{tag[2:4]}==9.10.2.21; {linux}",
        f"triton==3.9.0; {linux}",
        "filelock",
    ]
    wheel_tag = f"cp{python}-cp{python}-manylinux_2_28_x86_64"
    simple = served / "simple"
    # Locks contain the hash of an existing file.
    if not any(simple.glob(f"nvidia_cudnn_cu{tag[2:4]}-9.10.2.21-*")):
        make_wheel(simple, f"nvidia-cudnn-cu{tag[2:4]}", "9.10.2.21")
    make_wheel(served / "whl" / tag, "triton", "3.9.0", wheel_tag)
    return make_wheel(
        served / "whl" / tag,
        "torch",
        local,
        wheel_tag,
        requires=requires,
        modules=files,
    )
