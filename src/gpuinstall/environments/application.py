"""Applications that bring an environment of their own, and whose add-ons install packages into it."""

from __future__ import annotations

from os.path import exists, isdir, isfile
from pathlib import Path

from gpuinstall.base.values import Value

# Of Comfy-Org/ComfyUI (.github/workflows/stable-release.yml), Comfy-Org/Comfy-Desktop (envPaths.ts),
# Comfy-Org/desktop (src/virtualEnvironment.ts) and AUTOMATIC1111's and Forge's modules/launch_utils.py. StabilityMatrix,
# Pinokio and SwarmUI install a clone with an environment in it.
_LAYOUTS = (
    # ComfyUI portable
    (
        ("python_embeded", "ComfyUI/main.py"),
        ("python_embeded",),
    ),
    # ComfyUI Desktop
    (
        ("standalone-env", "ComfyUI/main.py"),
        ("ComfyUI/.venv", ".venv"),
    ),
    (("custom_nodes", "uv-cache"), (".venv",)),
    # ComfyUI in a clone
    (("main.py", "comfy", "custom_nodes"), ("venv", ".venv", "env")),
    # Stable Diffusion WebUI
    (("modules/launch_utils.py",), ("venv",)),
)
"""How the folder of an application looks: what lies there, and where its environment may lie, by paths below it."""


class Application(Value):
    """An application whose add-ons install packages."""

    root: Path
    """The folder below which its add-ons lie, where they run their installers."""

    environment: Path


def find_application(folder: Path) -> Application | None:
    """Return the application that lies in a folder, or in one that its add-ons are in; None if none has an environment."""
    for root in (folder, *folder.parents[:2]):
        for signs, environments in _LAYOUTS:
            if not all(exists(root / sign) for sign in signs):
                continue
            for name in environments:
                if isdir(root / name):
                    return Application(root, root / name)
    return None


def started_environment(folder: Path) -> Path | None:
    """Return the environment in which what lies in a folder is started: an application's, else one that its user made.

    None is the usual one of a project: its ``.venv``, whether it is there or not.
    """
    application = find_application(folder)
    if application:
        return application.environment
    if not exists(folder / ".venv"):
        for name in ("venv", "env"):
            if isfile(folder / name / "pyvenv.cfg"):
                return folder / name
    return None


def application_of(environment: Path) -> Application | None:
    """Return the application that an environment belongs to."""
    application = find_application(environment.parent)
    if application and application.environment == environment:
        return application
    return None
