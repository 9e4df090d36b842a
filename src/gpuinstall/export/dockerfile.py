"""A Dockerfile that syncs a lock into an image, and the devcontainer.json that uses it; no GPU is needed to build."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.backend import CPU
from gpuinstall.errors import UsageError
from gpuinstall.export.pins import backend_of, systems_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.backend import Backend
    from gpuinstall.lock.lock import Lock

UV = "0.13.8"
HOME = "/home/app"
VENV = f"{HOME}/.venv"
"""In the user's home, which dev containers give to whoever uses them, whatever the number of that user is."""
_PINNED = re.compile(r"(?P<image>[^@\s]+)@sha256:[0-9a-f]{64}")
_FROM = re.compile(r"^FROM (?P<image>\S+)", re.MULTILINE)
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}

_TEXT = """\
# syntax=docker/dockerfile:1
# torch {torch}, as {lock} has it.
#
#   docker build --platform {platform} --tag torch .
#   docker run --rm{gpus} torch
#{needs}
FROM astral/uv:{uv} AS uv

{base} AS build
COPY --from=uv /uv /usr/local/bin/uv
ENV UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 {pythons}
WORKDIR {home}
COPY {lock} ./
# pip is for the one who uses the image; it is in no lock.
RUN --mount=type=cache,target=/root/.cache/uv \\
    uv venv --python {python} {venv} && uv pip sync --python {venv} {lock} && \\
    uv pip install --python {venv} pip
{extra}
FROM {final}
RUN useradd --create-home --uid 1000 app
{copied}COPY --from=build --chown=1000:1000 {venv} {venv}
ENV PATH={venv}/bin:$PATH{visible}
# torch.compile wants a compiler in this stage: apt-get install g++
USER 1000:1000
WORKDIR {home}
{proof}{command}
"""

_NEEDS = """
# The host has NVIDIA's driver and the NVIDIA Container Toolkit; without --gpus all no GPU is given to the container.
# The wheels bring the CUDA libraries, so that nothing but a compiler wants a CUDA image below it.
#"""

_NEEDS_KFD = """
# The host's kernel drives the GPUs (amdgpu); the container is given its devices and the group that may open them.
# Not proven on a card yet: gpuinstall verify inside says whether kernels run.
#"""

_NEEDS_RENDER_NODE = """
# The host's kernel drives the GPUs (i915 or xe); the container is given their nodes and the group that may open them.
# The image wants Level Zero's loader and the compute runtime: https://dgpu-docs.intel.com
# Not proven on a card yet: gpuinstall verify inside says whether kernels run.
#"""

_JUPYTER = """\
# To have these locked too: gpuinstall lock torch jupyterlab
RUN --mount=type=cache,target=/root/.cache/uv uv pip install --python {venv} jupyterlab
"""

_PROOF = """\
# The bootstrap.py that carries the tool: make bootstrap, in a clone of gpuinstall, writes it into dist.
COPY --chown=1000:1000 bootstrap.py ./
RUN python bootstrap.py --version
# Kernels run each time a container starts; it ends where one fails{where}.
ENTRYPOINT {entry}
"""


class GpuAccess(NamedTuple):
    """How a container is given the GPUs of a kind: what docker is told, what the host needs, what the image says.

    ``group`` is what a shell adds for the group that may open the devices.
    """

    run: str = ""
    needs: str = ""
    environment: str = ""
    group: str = ""


_ACCESS = {
    "cpu": GpuAccess(),
    "cuda": GpuAccess(" --gpus all", _NEEDS, " NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
    "rocm": GpuAccess(" --device /dev/kfd --device /dev/dri", _NEEDS_KFD, group=" --group-add $(stat -c %g /dev/kfd)"),
    "xpu": GpuAccess(" --device /dev/dri", _NEEDS_RENDER_NODE, group=" --group-add $(stat -c %g /dev/dri/renderD128)"),
}

_SHOW = 'CMD ["python", "-c", "import torch; print(torch.__version__, torch.cuda.device_count())"]'
_SERVE = 'EXPOSE 8888\nCMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]'


def dockerfile(lock: Lock, *, jupyter: bool = False, proof: bool = False, pinned: Sequence[str] = ()) -> str:
    """Write a Dockerfile for the folder that holds ``lock``; raise UsageError where the lock does not say enough.

    With ``proof`` kernels run whenever a container starts. ``pinned`` are images by digest, ``IMAGE@sha256:…``.
    """
    backend = _backend(lock)
    access = _ACCESS[backend.kind]
    text = _TEXT.format(
        torch=lock.versions.get("torch"),
        platform=_platform(lock),
        lock=lock.name,
        python=lock.python,
        uv=UV,
        home=HOME,
        venv=VENV,
        gpus=access.run + access.group,
        needs=access.needs,
        visible=access.environment,
        extra=_JUPYTER.format(venv=VENV) if jupyter else "",
        proof=_proof(backend) if proof else "",
        command=_SERVE if jupyter else _SHOW,
        **_bases(lock, backend),
    )
    for reference in pinned:
        text = _with_pinned(text, reference)
    return text


def _proof(backend: Backend) -> str:
    """What makes an image prove itself when it starts: on a GPU, unless it is for the CPU."""
    on_gpu, where = (" --require-gpu", ", or there is no GPU") if backend != CPU else ("", "")
    program = f"{HOME}/.local/share/gpuinstall/bin/gpuinstall"
    script = f'{program} verify --quiet{on_gpu} --venv {VENV} >&2 && exec "$0" "$@"'
    return _PROOF.format(where=where, entry=json.dumps(["sh", "-c", script]))


def _with_pinned(text: str, reference: str) -> str:
    """Take an image by its digest; raise UsageError for what is none, and for an image that is not used."""
    form = _PINNED.fullmatch(reference)
    if form is None:
        message = f"{reference} is no image by its digest"
        raise UsageError("pin-malformed", message, hint="--pin python:3.12-slim-bookworm@sha256:…")
    used = dict.fromkeys(found["image"] for found in _FROM.finditer(text))
    if form["image"] not in used:
        message = f"the Dockerfile uses no image {form['image']}"
        raise UsageError("pin-unused", message, hint=f"--pin takes one of: {', '.join(used)}")
    return _FROM.sub(lambda found: f"FROM {reference}" if found["image"] == form["image"] else found[0], text)


def devcontainer(lock: Lock) -> str:
    """Write a ``.devcontainer/devcontainer.json`` for the Dockerfile in the folder above it."""
    access = _ACCESS[_backend(lock).kind]
    if access.group:
        message = f"{lock.name}: a devcontainer cannot name the group that opens the GPUs, docker run can"
        raise UsageError("not-exportable", message, hint="gpuinstall export dockerfile")
    gpu = {"runArgs": access.run.split()} if access.run else {}
    document = {
        "name": f"torch {lock.versions.get('torch')}",
        "build": {"dockerfile": "../Dockerfile", "context": "..", "options": ["--platform", _platform(lock)]},
        **gpu,
        "remoteUser": "app",
        "customizations": {"vscode": {"settings": {"python.defaultInterpreterPath": f"{VENV}/bin/python"}}},
    }
    return json.dumps(document, indent=2) + "\n"


def _platform(lock: Lock) -> str:
    """Docker's name for the platform of a lock; raise UsageError where no image can be made of it."""
    systems = systems_of(lock)
    if lock.unserved:
        names = ", ".join(lock.unserved)
        message = f"{names} in {lock.name}: from a folder or a repository, which the image does not have"
        raise UsageError("not-exportable", message, hint="make the lock from an index: gpuinstall lock --upgrade")
    for arch, platform in _PLATFORMS.items():
        if ("linux", arch) in systems:
            return platform
    raise UsageError(
        "not-exportable", f"{lock.name} is not for Linux, and an image is", hint="gpuinstall lock --target cpu"
    )


def _backend(lock: Lock) -> Backend:
    """The backend of a lock; raise UsageError for one whose GPUs no container is known to be given."""
    backend = backend_of(lock)
    compiled = backend.kind in {"rocm", "xpu"} and not all(package.wheels for package in lock.pylock.packages)
    if backend.kind not in _ACCESS or compiled:
        what = "what it compiles" if compiled else "that"
        message = f"{lock.name} is for {backend}, and no image is known here for {what}"
        raise UsageError("not-exportable", message, hint="gpuinstall export requirements")
    return backend


def _bases(lock: Lock, backend: Backend) -> dict[str, str]:
    """The images: Python's own, unless something is compiled with the CUDA toolkit, which has no Python."""
    compiled = [package.name for package in lock.pylock.packages if not package.wheels]
    if backend == CPU or not compiled:
        image = f"python:{lock.python}-slim-bookworm"
        return {"base": f"FROM {image}", "final": image, "pythons": "UV_PYTHON_DOWNLOADS=never", "copied": ""}
    toolkit = f"nvidia/cuda:{backend.version}.0-devel-ubuntu22.04"
    return {
        "base": f"# Compiled with the toolkit: {', '.join(compiled)}\nFROM {toolkit}",
        "final": "debian:bookworm-slim",
        "pythons": "UV_PYTHON_INSTALL_DIR=/opt/python",
        "copied": "COPY --from=build /opt/python /opt/python\n",
    }
