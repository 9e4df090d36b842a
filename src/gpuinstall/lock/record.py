"""What a lock was made from and what it is for: ``[tool.gpuinstall]``, which by the standard steers no installation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, Annotated, Any

from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.requirement import canonical, parse_requirement
from gpuinstall.base.values import dataclass
from gpuinstall.sources.provenance import RECORDED_HASHES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.base.request import Request

BUILD_FILES = "pyproject.toml, setup.py or setup.cfg of a folder"
"""What the files behind ``build_files_digest`` are called in messages."""


def _spelling(text: str) -> str:
    return parse_requirement(text).text


_Requirements = tuple[Annotated[str, _spelling], ...]


@dataclass(frozen=True)
class Record:
    """What a lock says of its making."""

    inputs: _Requirements = ()
    """The requirements; empty if another program made it."""

    inputs_digest: str = ""
    torch: str = ""
    backend: str = ""
    catalogue: str = ""
    """The date of the catalogue."""

    constraints: _Requirements = ()
    sources: tuple[str, ...] = ()
    """What the files that it was made from said of sources."""

    unhashed: tuple[str, ...] = ()
    """The packages that no hash pins, because the user requested them so."""

    preferred_digest: str = ""
    """Of the versions of the project's own lock."""

    build_files_digest: str = ""
    asked: str | None = None
    """The backend that was requested by name."""

    architectures: tuple[str, ...] = ()
    floors: Mapping[str, str] = field(default_factory=dict)
    """The least driver, glibc and so on."""

    apart: tuple[str, ...] = ()
    """The packages that could not have the version of the other targets."""

    relaxed: Mapping[str, str] = field(default_factory=dict)
    """The requirements that it was asked not to hold to, by package."""

    cuda_compat: Mapping[str, str] = field(default_factory=dict)
    """The archive of the forward-compatibility libraries: ``driver``, ``sha256``, ``url``."""

    request_revision: int = 0
    """How often the request of its folder had changed."""

    requirements_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The lines of each file that it was made from, by the file's path from its folder."""

    contents_digest: str = ""
    """The seal: of the whole lock without it."""

    @classmethod
    def of(cls, request: Request) -> Record:
        """Return what a lock records of its request.

        Raises:
            UsageError: A requirement is malformed.
        """
        inputs = canonical(request.requirements)
        return cls(
            inputs=inputs,
            inputs_digest=digest(inputs),
            constraints=tuple(sorted(canonical(request.constraints))),
            sources=request.sources,
            preferred_digest=digest(request.preferred) if request.preferred else "",
            build_files_digest=request.build_files_digest,
            asked=request.backend,
            cuda_compat=dict(request.cuda_compat),
            request_revision=request.revision,
            requirements_files=request.files,
        )

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Record:
        """Return the record of a table.

        Raises:
            MalformedError: A value has another type.
            UsageError: A requirement is malformed.
        """
        return read_object(cls, {key.replace("-", "_"): value for key, value in table.items()})

    def to_table(self) -> dict[str, Any]:
        """Return the table, without what is empty."""
        names = tuple(one.name for one in fields(self))
        written = write_object(self, optional=names)
        return {name.replace("_", "-"): value for name, value in written.items()}

    @property
    def lines(self) -> set[str]:
        """Its requirements, constraints and sources, in words."""
        constraints = [f"-c {text}" for text in self.constraints]
        return {*self.inputs, *constraints, *self.sources}

    def changes(self, other: Record) -> list[str]:
        """Return in words what ``other`` is made from beside this (+) or lacks of it (-); empty: the same request."""
        if not self.inputs:
            return []
        before = self.lines
        now = other.lines
        changes = [f"+ {line}" for line in sorted(now - before)]
        changes += [f"- {line}" for line in sorted(before - now)]
        shown = [change for change in changes if not change[2:].startswith(RECORDED_HASHES)]
        # What an installation from elsewhere has no files of is not compared.
        if self.build_files_digest not in {"", other.build_files_digest}:
            shown.append(f"{BUILD_FILES} has changed")
        if self.preferred_digest != other.preferred_digest:
            shown.append("other versions in the project's own lock")
        # With the versions their hashes change.
        if changes and not shown:
            return ["other hashes of files"]
        return shown


def digest(texts: Iterable[str]) -> str:
    """Return the digest of texts, in any order."""
    import hashlib  # loads OpenSSL, which a plan does without

    text = json.dumps(sorted(texts))
    return hashlib.sha256(text.encode()).hexdigest()
