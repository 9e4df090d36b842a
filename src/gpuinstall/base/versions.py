"""Parse versions of drivers, CUDA, GPU architectures, and backends.

``nvidia-smi`` prints a ``DriverVersion`` and the latest ``CudaVersion`` that the
driver supports::

    | NVIDIA-SMI 580.95.05     Driver Version: 580.95.05     CUDA Version: 13.0 |
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.vendors import BACKEND_ROWS

if TYPE_CHECKING:
    from packaging.version import Version


class CudaVersion(NamedTuple):
    """CUDA release of a toolkit, or the latest one that a driver supports."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> CudaVersion:
        """Parse text such as ``"12.2"``. Raise ValueError if malformed."""
        return cls(*_parse_pair(text, "CUDA version"))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class ComputeCapability(NamedTuple):
    """Compute capability of a GPU, ``major.minor``."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """Parse text such as ``"8.6"``. Raise ValueError if malformed."""
        return cls(*_parse_pair(text, "compute capability"))

    @classmethod
    def from_sm(cls, number: int) -> ComputeCapability:
        """Parse the number in ``sm_86``, which is 10 × major + minor."""
        return cls(number // 10, number % 10)

    @property
    def sm(self) -> str:
        """The architecture name, such as ``sm_86``."""
        return f"sm_{self.major}{self.minor}"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class DriverVersion(NamedTuple):
    """Release of NVIDIA's driver, such as ``535.183.01``."""

    parts: tuple[int, ...]
    text: str
    """The version as it was written."""

    @classmethod
    def parse(cls, text: str) -> DriverVersion:
        """Parse a driver release, a branch, or a Windows driver number."""
        text = cls.from_windows(text) or text
        if not re.fullmatch(r"[0-9]{2,4}(\.[0-9]{1,4}){0,3}", text):
            raise ValueError(f"{text!r} is not a driver version such as 535.183.01")
        return cls(tuple(int(part) for part in text.split(".")), text)

    @staticmethod
    def from_windows(text: str) -> str | None:
        """Convert a Windows driver number: ``31.0.15.3623`` is ``536.23``."""
        number = re.fullmatch(
            r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,2}([0-9])\.([0-9]{2})([0-9]{2})", text
        )
        return f"{number[1]}{number[2]}.{number[3]}" if number else None

    @property
    def branch(self) -> int:
        """The driver branch, the number before the first dot."""
        return self.parts[0]

    @property
    def minimum_text(self) -> str:
        """The version as a minimum: the branch instead of its release 0."""
        return str(self.branch) if self.parts == (self.branch, 0) else self.text

    def __str__(self) -> str:
        return self.text


@lru_cache
def version_key(version: str) -> tuple[int, ...]:
    """Return a sort key for a version, which places 12.10 after 12.9."""
    return tuple(map(int, re.findall(r"[0-9]+", version)))


def _parse_pair(text: str, what: str) -> tuple[int, int]:
    match = re.fullmatch(r"(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]?)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a {what} such as 12.2")
    return int(match[1]), int(match[2])


_SPELLINGS = {
    "cpu": ("cpu", ""),
    **{row.kind: (row.prefix or row.kind, row.version) for row in BACKEND_ROWS},
}
"""The tag prefix and version pattern of each kind of build."""

TAG_PATTERN = "|".join(f"{prefix}{version}" for prefix, version in _SPELLINGS.values())
"""A pattern for the tags of all kinds of builds."""


class Backend(NamedTuple):
    """Target of a torch build: a kind (``cuda``) and a version (``12.6``)."""

    kind: str
    version: str | None = None

    @staticmethod
    @lru_cache
    def parse(tag: str) -> Backend:
        """Parse a backend tag: ``cu126``. Raise ValueError if malformed."""
        for kind, (prefix, pattern) in _SPELLINGS.items():
            version = tag.removeprefix(prefix)
            if tag.startswith(prefix) and re.fullmatch(pattern, version):
                # CUDA's minor version has one digit: 126 is 12.6, and 92 is 9.2.
                if kind == "cuda":
                    version = f"{version[:-1]}.{version[-1]}"
                return Backend(kind, version or None)
        raise ValueError(f"{tag!r} is not a backend such as cu126 or cpu")

    @property
    def tag(self) -> str:
        """The backend tag in URLs and versions: ``cu126``, ``rocm7.2``."""
        prefix, _ = _SPELLINGS[self.kind]
        version = self.version or ""
        return prefix + (version.replace(".", "") if self.kind == "cuda" else version)

    def __str__(self) -> str:
        return self.tag


CPU = Backend("cpu")


def known_backend(tag: str | None) -> Backend | None:
    """Parse a backend tag, or return None if the tag is unknown."""
    try:
        return Backend.parse(tag) if tag else None
    except ValueError:
        return None


def find_torch_backend(version: str, toolkit: Backend | None) -> Backend:
    """Return the backend of a torch build.

    Args:
        version: The version with its label: ``2.14.1+cu126``, ``2.9.0a0+git1234``.
        toolkit: The backend that torch reports, for labels without a backend.
    """
    return find_labeled_backend(version) or toolkit or CPU


def find_labeled_backend(version: str) -> Backend | None:
    """Return the backend in a local version label, if any."""
    label = version.partition("+")[2]
    return known_backend(label) or known_backend(label.partition(".")[0])


def parse_public_version(version: Version | str) -> Version:
    """Return a version without its local label."""
    from packaging.version import Version  # slow to import

    return Version(Version(str(version)).public)


def looks_like_tag(text: str) -> bool:
    """Return whether text has the form of a backend tag, such as ``cu999``."""
    match = re.fullmatch(r"([a-z]+)[0-9.]*", text)
    return match is not None and match[1] in {
        prefix for prefix, _ in _SPELLINGS.values()
    }
