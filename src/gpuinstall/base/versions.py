"""The three version numbers of a GPU stack, each a type of its own so that none is taken for another.

``nvidia-smi`` prints two of them side by side::

    | NVIDIA-SMI 580.95.05     Driver Version: 580.95.05     CUDA Version: 13.0 |

the first is a :class:`DriverVersion`, the second the newest :class:`CudaVersion` that driver can serve.
The third, :class:`ComputeCapability`, belongs to the chip. A :class:`Backend` is what a build of torch is made for.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple


class CudaVersion(NamedTuple):
    """A CUDA release, ``major.minor``: of a toolkit, or the newest one that a driver serves."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> CudaVersion:
        """Read ``"12.2"``; raise ValueError for anything else."""
        return cls(*_pair(text, "CUDA version"))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class ComputeCapability(NamedTuple):
    """What a chip can execute, ``major.minor``."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """Read ``"8.6"``; raise ValueError for anything else."""
        return cls(*_pair(text, "compute capability"))

    @classmethod
    def from_sm(cls, number: int) -> ComputeCapability:
        """Read the number of ``sm_86`` or ``compute_120``: 10 × major + minor."""
        return cls(number // 10, number % 10)

    @property
    def sm(self) -> str:
        """The name of the architecture, as in ``sm_86``."""
        return f"sm_{self.major}{self.minor}"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class DriverVersion(NamedTuple):
    """A release of NVIDIA's driver, such as ``535.183.01``; the written form is kept."""

    parts: tuple[int, ...]
    text: str

    @classmethod
    def parse(cls, text: str) -> DriverVersion:
        """Read two or three dotted numbers, the branch alone, or Windows' number; else raise ValueError."""
        text = cls.of_windows(text) or text
        if not re.fullmatch(r"[0-9]{2,4}(\.[0-9]{1,4}){0,3}", text):
            raise ValueError(f"{text!r} is not a driver version such as 535.183.01")
        return cls(tuple(int(part) for part in text.split(".")), text)

    @staticmethod
    def of_windows(text: str) -> str | None:
        """Turn the number in Windows' device manager into the driver's own: ``31.0.15.3623`` is ``536.23``."""
        number = re.fullmatch(
            r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,2}([0-9])\.([0-9]{2})([0-9]{2})", text
        )
        return f"{number[1]}{number[2]}.{number[3]}" if number else None

    @property
    def branch(self) -> int:
        """The driver branch, the number before the first dot."""
        return self.parts[0]

    def __str__(self) -> str:
        return self.text


@lru_cache
def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers in a version, which sort as the versions do: 12.10 comes after 12.9."""
    return tuple(map(int, re.findall(r"[0-9]+", version)))


def _pair(text: str, what: str) -> tuple[int, int]:
    match = re.fullmatch(r"(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]?)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a {what} such as 12.2")
    return int(match[1]), int(match[2])


SPELLINGS = {
    "cpu": ("cpu", ""),
    "cuda": ("cu", "[0-9]{2,3}"),
    "rocm": ("rocm", r"[0-9]+(?:\.[0-9]+)*"),
    "xpu": ("xpu", ""),
}
"""How the tags of a kind are written: a prefix, then the version (a pattern), of CUDA without its dot.

A maker whose builds are of another kind adds one.
"""


class Backend(NamedTuple):
    """The kind of a build, ``cuda``, and its version, ``12.6``; written, it is the tag ``cu126``."""

    kind: str
    version: str | None = None

    @staticmethod
    @lru_cache
    def parse(tag: str) -> Backend:
        """Read a tag; raise ValueError for what is none."""
        for kind, (prefix, pattern) in SPELLINGS.items():
            version = tag.removeprefix(prefix)
            if tag.startswith(prefix) and re.fullmatch(pattern, version):
                # CUDA's minor has one digit so far: 12.6 is 126, and 9.2 is 92.
                if kind == "cuda":
                    version = f"{version[:-1]}.{version[-1]}"
                return Backend(kind, version or None)
        raise ValueError(f"{tag!r} is not a backend such as cu126 or cpu")

    @property
    def tag(self) -> str:
        """Its name in addresses, versions and documents: ``cu126``, ``rocm7.2``."""
        prefix, _ = SPELLINGS[self.kind]
        version = self.version or ""
        return prefix + (version.replace(".", "") if self.kind == "cuda" else version)

    @property
    def file_tag(self) -> str:
        """Its name in the name of a lock, where PEP 751 forbids dots: ``rocm7-2``; no tag has a hyphen itself."""
        return self.tag.replace(".", "-")

    def __str__(self) -> str:
        return self.tag


CPU = Backend("cpu")


def known_backend(tag: str | None) -> Backend | None:
    """Read a tag; None for what is none."""
    try:
        return Backend.parse(tag) if tag else None
    except ValueError:
        return None


def torch_backend(version: str, toolkit: Backend | None) -> Backend:
    """Return the backend that a torch was built for.

    Args:
        version: The version, with its label if it has one: ``2.14.1+cu126``, ``2.9.0a0+git1234``.
        toolkit: What torch itself says; it decides if the label names no backend.
    """
    label = version.partition("+")[2]
    known = known_backend(label) or known_backend(label.partition(".")[0])
    return known or toolkit or CPU


def is_like_a_tag(text: str) -> bool:
    """Whether a text begins as the tags of some kind do, and goes on with a number or nothing."""
    match = re.fullmatch(r"([a-z]+)[0-9.]*", text)
    return match is not None and match[1] in {
        prefix for prefix, _ in SPELLINGS.values()
    }
