"""One image of several locks: at start it takes the environment whose lock runs on the host's driver and GPUs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinstall.errors import UsageError
from gpuinstall.export.dockerfile import HOME, image_parts, platform_of, served_backend, with_pinned

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuinstall.lock.lock import Lock

FOLDER = "/opt/torch"
_CACHE = f"{HOME}/.cache"


@dataclass(frozen=True)
class AnyImage:
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
        safe = f"--read-only --tmpfs /tmp --volume torch-any:{_CACHE}"
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
            cache=_CACHE,
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
        return ["sh", "-c", script, f"{_CACHE}/torch-{digest[:12]}"]

    def devcontainer(self) -> str:
        """Write ``.devcontainer/devcontainer.json``: at each start a link leads to the environment that is taken."""
        access = dict.fromkeys(image_parts()["access"][served_backend(lock).kind]["run"] for lock in self.locks)
        document = {
            "name": f"torch {self.locks[-1].versions.get('torch')}, chosen at start",
            "build": {"dockerfile": "../Dockerfile", "context": "..", "options": ["--platform", self.platform]},
            "runArgs": " ".join(access).split(),
            "mounts": [f"source=torch-any,target={_CACHE},type=volume"],
            "remoteUser": "app",
            "postStartCommand": [*self.entry, "sh", "-c", f'ln -sfn "$VIRTUAL_ENV" {HOME}/.venv'],
            "remoteEnv": {"PATH": f"{HOME}/.venv/bin:${{containerEnv:PATH}}"},
            "customizations": {"vscode": {"settings": {"python.defaultInterpreterPath": f"{HOME}/.venv/bin/python"}}},
        }
        return json.dumps(document, indent=2) + "\n"
