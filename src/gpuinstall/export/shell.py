"""What a shell has to know so that plain uv and pip keep to the decision, as lines that it evaluates."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from gpuinstall.backend import known_backend
from gpuinstall.wheels.variants import load_vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpuinstall.sources import Sources

Shell = Literal["sh", "bash", "zsh", "fish", "powershell"]

_UV_TOOLKITS = (80, 90, 91, 92, *range(100, 103), *range(110, 119), *range(120, 127), 128, 129, 130, 132)
UV_TAGS = frozenset({"cpu", *(f"cu{number}" for number in _UV_TOOLKITS)})
"""The tags of CUDA and CPU builds that uv 0.13.8 takes for ``--torch-backend``."""


def variables(backend: str, sources: Sources, constraints: Path | None) -> dict[str, str]:
    """What plain uv is to know; what cannot be said to it safely is left out."""
    said: dict[str, str] = {}
    if backend in UV_TAGS and not sources.named:
        said["UV_TORCH_BACKEND"] = backend
    said |= _for_variants(backend)
    if sources.default_index and not _closed(sources):
        said["UV_DEFAULT_INDEX"] = sources.default_index
    if sources.certificates:
        said["SSL_CERT_FILE"] = sources.certificates
    if constraints:
        said["UV_CONSTRAINT"] = constraints.as_uri()
    return said


def _for_variants(tag: str) -> dict[str, str]:
    """What programs that choose among variants of wheels are to take for the driver's toolkit: the build's; a draft."""
    backend = known_backend(tag)
    words = load_vocabulary().get(backend.kind) if backend else None
    return {words["decision"]: backend.version} if backend and backend.version and words else {}


def omissions(backend: str, sources: Sources) -> tuple[str, ...]:
    """Why something was left out."""
    said = []
    if sources.named:
        address = f"{sources.torch_index}/{backend}"
        said.append(
            f"UV_TORCH_BACKEND means the official index, and yours is another: uv pip install --index {address}"
        )
    elif backend not in UV_TAGS:
        said.append(f"uv does not know {backend}, so UV_TORCH_BACKEND is not printed")
    if _closed(sources):
        said.append(f"{sources.default_index} wants a password, so UV_DEFAULT_INDEX is not printed")
    return tuple(said)


def lines(said: Mapping[str, str], shell: Shell) -> str:
    """Write the assignments for a shell."""
    return "".join(f"{_assignment(name, value, shell)}\n" for name, value in said.items())


def quoted(text: str, shell: str) -> str:
    """Write a text as one word of a shell, whatever it holds."""
    if shell == "fish":
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if shell == "powershell":
        return "'" + text.replace("'", "''") + "'"
    if shell == "nu":
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return shlex.quote(text)


def _assignment(name: str, value: str, shell: Shell) -> str:
    forms = {"fish": "set -gx {} {}", "powershell": "$env:{} = {}"}
    return forms.get(shell, "export {}={}").format(name, quoted(value, shell))


def _closed(sources: Sources) -> bool:
    return urlsplit(sources.default_index or "").netloc in sources.logins
