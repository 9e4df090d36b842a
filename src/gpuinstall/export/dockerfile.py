"""Dockerfiles: an image of one lock, or of several.

No GPU is needed to build either. The image of several takes at its start the environment whose lock
runs on the host.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import tomli

from gpuinstall.base.backend import CPU, Backend
from gpuinstall.base.errors import UsageError
from gpuinstall.base.shell import quoted
from gpuinstall.environments.environment import LOCK_NAME
from gpuinstall.export.pins import backend_of, systems_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from gpuinstall.lock.lock import Lock

UV = "0.13.8"
HOME = "/home/app"
VENV = f"{HOME}/.venv"
FOLDER = "/opt/torch"
"""Where an image of several locks has its environments."""
CACHE = f"{HOME}/.cache"
"""Where such an image installs at start."""
_PINNED = re.compile(r"(?P<image>[^@\s]+)@sha256:[0-9a-f]{64}")
_FROM = re.compile(r"^FROM (?P<image>\S+)", re.MULTILINE)
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


@cache
def image_parts() -> dict[str, Any]:
    """Return the texts of Dockerfiles; ``access`` is how to give a container the GPUs."""
    file = files("gpuinstall.export") / "data" / "dockerfile.toml"
    return tomli.loads(file.read_text("utf-8"))


def dockerfile(
    lock: Lock,
    *,
    jupyter: bool = False,
    proof: bool = False,
    pinned: Sequence[str] = (),
) -> str:
    """Return a Dockerfile for the folder that holds ``lock``.

    Args:
        proof: Whether kernels run whenever a container starts.
        pinned: Images by digest, ``IMAGE@sha256:…``.

    Raises:
        UsageError: if the lock does not say enough.
    """
    backend = served_backend(lock)
    parts = image_parts()
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
    """Return what makes an image prove itself at its start: on a GPU, unless it is for the CPU."""
    verify = f"{HOME}/.local/share/gpuinstall/bin/gpuinstall verify --quiet"
    where = ""
    if backend != CPU:
        verify += " --require-gpu"
        where = ", or there is no GPU"
    script = f'{verify} --venv {VENV} >&2 && exec "$0" "$@"'
    proof: str = image_parts()["proof"]
    return proof.format(where=where, entry=json.dumps(["sh", "-c", script]))


def with_pinned(text: str, references: Iterable[str]) -> str:
    """Return a Dockerfile with some images taken by their digests.

    Raises:
        UsageError: if a reference is malformed, or its image is not used.
    """
    for reference in references:
        form = _PINNED.fullmatch(reference)
        if form is None:
            message = f"{reference} is not an image with a digest"
            hint = "Run it again with --pin python:3.12-slim-bookworm@sha256:…"
            raise UsageError(
                "pin-malformed",
                message,
                hint=hint,
            )
        image = form["image"]
        used = dict.fromkeys(_FROM.findall(text))
        if image not in used:
            message = f"the Dockerfile does not use the image {image}"
            raise UsageError(
                "pin-unused",
                message,
                hint=f"Pin one of: {', '.join(used)}",
            )
        line = rf"^FROM {re.escape(image)}(?=\s)"
        text = re.sub(
            line,
            f"FROM {reference}",
            text,
            flags=re.MULTILINE,
        )
    return text


def platform_of(lock: Lock) -> str:
    """Return Docker's name for the platform of a lock; raise UsageError if no image can have it."""
    systems = systems_of(lock)
    if not LOCK_NAME.fullmatch(lock.name):
        message = f"{lock.name} is not a valid lock name for a Dockerfile"
        hint = f"mv {quoted(lock.name)} pylock.toml"
        raise UsageError(
            "not-exportable",
            message,
            hint=hint,
        )
    if lock.unserved:
        names = ", ".join(lock.unserved)
        cause = "from a folder or repository that the image does not have"
        hint = "gpuinstall lock --upgrade   # with packages from an index"
        raise UsageError(
            "not-exportable",
            f"{names} in {lock.name}: {cause}",
            hint=hint,
        )
    for arch, platform in _PLATFORMS.items():
        if ("linux", arch) in systems:
            return platform
    message = f"{lock.name} is not for Linux, but an image is"
    raise UsageError(
        "not-exportable",
        message,
        hint="gpuinstall lock --target cpu",
    )


def served_backend(lock: Lock) -> Backend:
    """Return the backend of a lock; raise UsageError if no container can be given its GPUs."""
    backend = backend_of(lock)
    has_toolkit_image = backend.kind not in {"rocm", "xpu"}
    if backend.kind not in image_parts()["access"]:
        missing = "that"
    elif _compiled(lock) and not has_toolkit_image:
        missing = "what it compiles"
    else:
        return backend
    message = f"{lock.name} is for {backend}, and gpuinstall knows no base image for {missing}"
    raise UsageError(
        "not-exportable",
        message,
        hint="gpuinstall export requirements",
    )


def _compiled(lock: Lock) -> list[str]:
    return [package.name for package in lock.pylock.packages if not package.wheels]


def _bases(lock: Lock, backend: Backend) -> dict[str, str]:
    """Return the images: Python's own, or with something to compile the CUDA toolkit's.

    That one has no Python.
    """
    compiled = _compiled(lock)
    if backend == CPU or not compiled:
        image = f"python:{lock.python}-slim-bookworm"
        return {
            "base": f"FROM {image}",
            "final": image,
            "pythons": "UV_PYTHON_DOWNLOADS=never",
            "copied": "",
        }
    toolkit = f"nvidia/cuda:{backend.version}.0-devel-ubuntu22.04"
    return {
        "base": f"# Compiled with the toolkit: {', '.join(compiled)}\nFROM {toolkit}",
        "final": "debian:bookworm-slim",
        "pythons": "UV_PYTHON_INSTALL_DIR=/opt/python",
        "copied": "COPY --from=build /opt/python /opt/python\n",
    }


class AnyImage(NamedTuple):
    """An image of several locks, for one platform and one Python."""

    locks: tuple[Lock, ...]
    platform: str
    left_out: tuple[Lock, ...] = ()
    """The locks for other platforms."""
    at_start: bool = False
    """Whether the first start on a host installs into a volume, from the tool and the locks."""
    wheels: bool = False
    """Whether it holds every wheel too."""

    @classmethod
    def of(
        cls,
        locks: Iterable[Lock],
        *,
        at_start: bool = False,
        wheels: bool = False,
    ) -> AnyImage:
        """Take the locks for Linux.

        Raises:
            UsageError: if there is none, or one that no image can be made of.
        """
        given = tuple(locks)
        # Without one for Linux the first is named in the error.
        linux = list(filter(_may_be_for_linux, given)) or [given[0]]
        platform = min(map(platform_of, linux))
        taken = tuple(lock for lock in linux if platform_of(lock) == platform)
        compiled = [name for lock in taken for name in _compiled(lock)]
        if compiled:
            names = ", ".join(dict.fromkeys(compiled))
            message = f"{names} would be compiled, which this image has no tools for"
            raise UsageError(
                "not-exportable",
                message,
                hint="gpuinstall lock --only-binary",
            )
        if len({lock.python for lock in taken}) > 1:
            names = ", ".join(lock.name for lock in taken)
            message = f"{names} are for different Pythons"
            raise UsageError(
                "pythons-differ",
                message,
                hint="gpuinstall lock --upgrade",
            )
        return cls(
            locks=taken,
            platform=platform,
            left_out=tuple(lock for lock in given if lock not in taken),
            at_start=at_start or wheels,
            wheels=wheels,
        )

    def dockerfile(
        self,
        extras: Collection[str] = (),
        pinned: Iterable[str] = (),
    ) -> str:
        """Return the Dockerfile.

        Args:
            extras: ``jupyter`` and ``ssh``.
            pinned: Images by digest.

        Raises:
            UsageError: if a lock does not hold the JupyterLab that is to be served.
        """
        if "jupyter" in extras:
            self._require_jupyter()
        parts = image_parts()
        kinds = dict.fromkeys(served_backend(lock).kind for lock in self.locks)
        access = [parts["access"][kind] for kind in kinds if kind != "cpu"]
        text: str = parts["any"].format(
            rows="\n".join(map(_row, self.locks)),
            platform=self.platform,
            runs="\n".join(map(_command, access)),
            needs="".join(way["needs"] for way in access),
            image=f"python:{self.locks[0].python}-slim-bookworm",
            home=HOME,
            folder=FOLDER,
            cache=CACHE,
            packages=parts["ssh"].format(home=HOME) if "ssh" in extras else "",
            visible="".join(way["environment"] for way in access),
            locks=" ".join(lock.name for lock in self.locks),
            content=self._content(),
            entry=json.dumps(self.entry),
            command=parts["serving"]["-".join(sorted(extras)) or "show"],
        )
        return with_pinned(text, pinned)

    def _require_jupyter(self) -> None:
        without = [lock.name for lock in self.locks if "jupyterlab" not in lock.versions]
        if without:
            message = f"{', '.join(without)} holds no JupyterLab"
            hint = "gpuinstall lock torch jupyterlab"
            raise UsageError(
                "jupyter-not-locked",
                message,
                hint=hint,
            )

    def _content(self) -> str:
        """Return the commands that fill the image."""
        parts = image_parts()
        if self.wheels:
            return str(parts["wheels"].format(folder=FOLDER))
        if self.at_start:
            return ""
        content: str = parts["environments"].format(folder=FOLDER)
        for lock in self.locks:
            # Each start decides whether the libraries count on its machine.
            options = " --cuda-compat" if "url" in lock.cuda_compat else ""
            content += parts["environment"].format(target=lock.target, options=options)
        return content

    @property
    def entry(self) -> list[str]:
        """The words of the entry point.

        What is given to the container follows them: options of ``run``, a command.
        """
        if not self.at_start:
            return ["gpuinstall", "run", "--any", "--venv", f"{FOLDER}/.venv"]
        digest = hashlib.sha256("".join(lock.sha256 for lock in self.locks).encode()).hexdigest()
        start = "exec gpuinstall run --any --install"
        if self.wheels:
            start += f" --offline --wheels {FOLDER}/wheels"
        copy = f'mkdir -p "$0" && cp {FOLDER}/pylock.*.toml "$0"'
        script = f'{copy} && {start} --venv "$0/.venv" "$@"'
        return ["sh", "-c", script, f"{CACHE}/torch-{digest[:12]}"]


def _may_be_for_linux(lock: Lock) -> bool:
    return "-windows-" not in lock.name and "-macos-" not in lock.name


def _row(lock: Lock) -> str:
    return f"#   {lock.name:20} torch {lock.versions.get('torch')}"


def _command(access: dict[str, str]) -> str:
    """Return how to run the image on GPUs of a kind, as a comment."""
    options = f"{access['run']}{access['group']} --read-only --tmpfs /tmp"
    return f"#   docker run --rm{options} --volume torch-any:{CACHE} torch-any"
