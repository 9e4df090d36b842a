"""Dockerfiles, and the devcontainer.json that uses them: an image of one lock, or of several that chooses at start.

No GPU is needed to build either. The image of several takes the environment whose lock runs on the host.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import tomli

from gpuinstall.backend import CPU, Backend
from gpuinstall.environments.environment import LOCK_NAME
from gpuinstall.errors import UsageError
from gpuinstall.export.pins import backend_of, systems_of
from gpuinstall.shell import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from gpuinstall.lock.lock import Lock

UV = "0.13.8"
HOME = "/home/app"
VENV = f"{HOME}/.venv"
"""In the user's home, which dev containers give to whoever uses them, whatever the number of that user is."""
FOLDER, CACHE = "/opt/torch", f"{HOME}/.cache"
"""Where an image of several locks has its environments, and where it installs at start."""
_PINNED = re.compile(r"(?P<image>[^@\s]+)@sha256:[0-9a-f]{64}")
_FROM = re.compile(r"^FROM (?P<image>\S+)", re.MULTILINE)
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


@cache
def image_parts() -> dict[str, Any]:
    """The texts that a Dockerfile is made of, and under ``access`` how a container is given the GPUs of a kind."""
    return tomli.loads((files("gpuinstall.export") / "data" / "dockerfile.toml").read_text("utf-8"))


def dockerfile(lock: Lock, *, jupyter: bool = False, proof: bool = False, pinned: Sequence[str] = ()) -> str:
    """Write a Dockerfile for the folder that holds ``lock``; raise UsageError where the lock does not say enough.

    With ``proof`` kernels run whenever a container starts. ``pinned`` are images by digest, ``IMAGE@sha256:…``.
    """
    backend, parts = served_backend(lock), image_parts()
    access = parts["access"][backend.kind]
    text: str = parts["text"].format(
        torch=lock.versions.get("torch"),
        platform=platform_of(lock),
        lock=lock.name,
        python=lock.python,
        uv=UV,
        home=HOME,
        venv=VENV,
        gpus=access["run"] + access["group"],
        needs=access["needs"],
        visible=access["environment"],
        extra=parts["jupyter"].format(venv=VENV) if jupyter else "",
        proof=_proof(backend) if proof else "",
        command=parts["serve" if jupyter else "show"],
        **_bases(lock, backend),
    )
    return with_pinned(text, pinned)


def _proof(backend: Backend) -> str:
    """What makes an image prove itself when it starts: on a GPU, unless it is for the CPU."""
    on_gpu, where = (" --require-gpu", ", or there is no GPU") if backend != CPU else ("", "")
    program = f"{HOME}/.local/share/gpuinstall/bin/gpuinstall"
    script = f'{program} verify --quiet{on_gpu} --venv {VENV} >&2 && exec "$0" "$@"'
    proof: str = image_parts()["proof"]
    return proof.format(where=where, entry=json.dumps(["sh", "-c", script]))


def with_pinned(text: str, references: Iterable[str]) -> str:
    """Take images by their digests; raise UsageError for what is none, and for an image that is not used."""
    for reference in references:
        form = _PINNED.fullmatch(reference)
        if form is None:
            message = f"{reference} is not an image with a digest"
            raise UsageError("pin-malformed", message, hint="the same with --pin python:3.12-slim-bookworm@sha256:…")
        image, used = form["image"], dict.fromkeys(match["image"] for match in _FROM.finditer(text))
        if image not in used:
            message = f"the Dockerfile does not use the image {image}"
            raise UsageError("pin-unused", message, hint=f"Pin one of: {', '.join(used)}")
        text = re.sub(rf"^FROM {re.escape(image)}(?=\s)", f"FROM {reference}", text, flags=re.MULTILINE)
    return text


def devcontainer(lock: Lock) -> str:
    """Write a ``.devcontainer/devcontainer.json`` for the Dockerfile in the folder above it."""
    access = image_parts()["access"][served_backend(lock).kind]
    if access["group"]:
        message = f"{lock.name}: a devcontainer cannot name the group that opens the GPUs, docker run can"
        raise UsageError("not-exportable", message, hint="gpuinstall export dockerfile")
    gpu = {"runArgs": access["run"].split()} if access["run"] else {}
    return _devcontainer(f"torch {lock.versions.get('torch')}", platform_of(lock), {**gpu, "remoteUser": "app"})


def _devcontainer(name: str, platform: str, more: dict[str, Any]) -> str:
    document = {
        "name": name,
        "build": {"dockerfile": "../Dockerfile", "context": "..", "options": ["--platform", platform]},
        **more,
        "customizations": {"vscode": {"settings": {"python.defaultInterpreterPath": f"{VENV}/bin/python"}}},
    }
    return json.dumps(document, indent=2) + "\n"


def platform_of(lock: Lock) -> str:
    """Docker's name for the platform of a lock; raise UsageError where no image can be made of it."""
    systems = systems_of(lock)
    if not LOCK_NAME.fullmatch(lock.name):
        hint = f"mv {quoted(lock.name)} pylock.toml"
        raise UsageError("not-exportable", f"{lock.name} is not a valid lock name for a Dockerfile", hint=hint)
    if lock.unserved:
        names = ", ".join(lock.unserved)
        message = f"{names} in {lock.name}: from a folder or repository that the image does not have"
        raise UsageError("not-exportable", message, hint="gpuinstall lock --upgrade   # with packages from an index")
    for arch, platform in _PLATFORMS.items():
        if ("linux", arch) in systems:
            return platform
    message = f"{lock.name} is not for Linux, but an image is"
    raise UsageError("not-exportable", message, hint="gpuinstall lock --target cpu")


def served_backend(lock: Lock) -> Backend:
    """The backend of a lock; raise UsageError for one whose GPUs no container is known to be given."""
    backend = backend_of(lock)
    compiled = backend.kind in {"rocm", "xpu"} and not all(package.wheels for package in lock.pylock.packages)
    if backend.kind not in image_parts()["access"] or compiled:
        what = "what it compiles" if compiled else "that"
        message = f"{lock.name} is for {backend}, and gpuinstall knows no base image for {what}"
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


class AnyImage(NamedTuple):
    """Locks for one platform and one Python; those for others are ``left_out``.

    With ``at_start`` the image holds the tool and the locks, and the first start on a host installs into a volume; with
    ``wheels`` it holds every wheel too.
    """

    locks: tuple[Lock, ...]
    platform: str
    left_out: tuple[Lock, ...] = ()
    at_start: bool = False
    wheels: bool = False

    @classmethod
    def of(cls, locks: Iterable[Lock], *, at_start: bool = False, wheels: bool = False) -> AnyImage:
        """Take the locks for Linux; raise UsageError where there is none, or one that no image can be made of."""
        given = tuple(locks)
        linux = [lock for lock in given if "-windows-" not in lock.name and "-macos-" not in lock.name] or [given[0]]
        platform = min(map(platform_of, linux))
        taken = tuple(lock for lock in linux if platform_of(lock) == platform)
        compiled = [package.name for lock in taken for package in lock.pylock.packages if not package.wheels]
        if compiled:
            message = f"{', '.join(dict.fromkeys(compiled))} would be compiled, which this image has no tools for"
            raise UsageError("not-exportable", message, hint="gpuinstall lock --only-binary")
        if len({lock.python for lock in taken}) > 1:
            names = ", ".join(lock.name for lock in taken)
            raise UsageError("pythons-differ", f"{names} are for different Pythons", hint="gpuinstall lock --upgrade")
        return cls(taken, platform, tuple(lock for lock in given if lock not in taken), at_start or wheels, wheels)

    def dockerfile(self, extras: Collection[str] = (), pinned: Iterable[str] = ()) -> str:
        """Write the Dockerfile; ``extras`` are ``jupyter`` and ``ssh``, ``pinned`` images by digest.

        Raise UsageError where a lock does not hold JupyterLab that is to be served.
        """
        without = [lock.name for lock in self.locks if "jupyter" in extras and "jupyterlab" not in lock.versions]
        if without:
            message = f"{', '.join(without)} holds no JupyterLab"
            raise UsageError("jupyter-not-locked", message, hint="gpuinstall lock torch jupyterlab")
        parts, kinds = image_parts(), dict.fromkeys(served_backend(lock).kind for lock in self.locks)
        access = [parts["access"][kind] for kind in kinds if kind != "cpu"]
        safe = f"--read-only --tmpfs /tmp --volume torch-any:{CACHE}"
        content = "" if self.at_start else parts["environments"].format(folder=FOLDER)
        for lock in () if self.at_start else self.locks:
            content += parts["environment"].format(target=lock.target)
        text: str = parts["any"].format(
            rows="\n".join(f"#   {lock.name:20} torch {lock.versions.get('torch')}" for lock in self.locks),
            platform=self.platform,
            runs="\n".join(f"#   docker run --rm{way['run']}{way['group']} {safe} torch-any" for way in access),
            needs="".join(way["needs"] for way in access),
            image=f"python:{self.locks[0].python}-slim-bookworm",
            home=HOME,
            folder=FOLDER,
            cache=CACHE,
            packages=parts["ssh"].format(home=HOME) if "ssh" in extras else "",
            visible="".join(way["environment"] for way in access),
            locks=" ".join(lock.name for lock in self.locks),
            content=parts["wheels"].format(folder=FOLDER) if self.wheels else content,
            entry=json.dumps(self.entry),
            command=parts["serving"]["-".join(sorted(extras)) or "show"],
        )
        return with_pinned(text, pinned)

    @property
    def entry(self) -> list[str]:
        """The words of the entry point; what is given to the container follows them: options of ``run``, a command."""
        if not self.at_start:
            return ["gpuinstall", "run", "--any", "--venv", f"{FOLDER}/.venv"]
        digest = hashlib.sha256("".join(lock.sha256 for lock in self.locks).encode()).hexdigest()
        wheels = f" --offline --wheels {FOLDER}/wheels" if self.wheels else ""
        start = f"exec gpuinstall run --any --install{wheels}"
        script = f'mkdir -p "$0" && cp {FOLDER}/pylock.*.toml "$0" && {start} --venv "$0/.venv" "$@"'
        return ["sh", "-c", script, f"{CACHE}/torch-{digest[:12]}"]

    def devcontainer(self) -> str:
        """Write ``.devcontainer/devcontainer.json``: at each start a link leads to the environment that is taken."""
        access = dict.fromkeys(image_parts()["access"][served_backend(lock).kind]["run"] for lock in self.locks)
        more = {
            "runArgs": " ".join(access).split(),
            "mounts": [f"source=torch-any,target={CACHE},type=volume"],
            "remoteUser": "app",
            "postStartCommand": [*self.entry, "sh", "-c", f'ln -sfn "$VIRTUAL_ENV" {VENV}'],
            "remoteEnv": {"PATH": f"{VENV}/bin:${{containerEnv:PATH}}"},
        }
        return _devcontainer(f"torch {self.locks[-1].versions.get('torch')}, chosen at start", self.platform, more)
