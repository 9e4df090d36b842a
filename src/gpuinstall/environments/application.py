"""Applications whose add-ons install packages into their environment."""

from __future__ import annotations

from os.path import exists, isdir
from pathlib import Path

from gpuinstall.base.values import Value

# Sources: Comfy-Org/ComfyUI (.github/workflows/stable-release.yml), Comfy-Org/Comfy-Desktop (envPaths.ts),
# Comfy-Org/desktop (src/virtualEnvironment.ts), and modules/launch_utils.py of AUTOMATIC1111 and Forge. StabilityMatrix,
# Pinokio, and SwarmUI install a clone with an environment in it.
_LAYOUTS = (
    # ComfyUI portable
    (("python_embeded", "ComfyUI/main.py"), ("python_embeded",)),
    # ComfyUI Desktop
    (("standalone-env", "ComfyUI/main.py"), ("ComfyUI/.venv", ".venv")),
    (("custom_nodes", "uv-cache"), (".venv",)),
    # ComfyUI in a clone
    (("main.py", "comfy", "custom_nodes"), ("venv", ".venv", "env")),
    # Stable Diffusion WebUI
    (("modules/launch_utils.py",), ("venv",)),
)
"""Paths that identify each application, and paths of its environments."""


class Application(Value):
    """An application whose add-ons install packages."""

    root: Path
    """The folder in which add-ons run their installers."""
    environment: Path


def find_application(folder: Path) -> Application | None:
    """Return the known application in a folder or its two parents, if any.

    The folder may belong to an add-on. The application must have an environment.
    """
    for root in (folder, *folder.parents[:2]):
        for signs, environments in _LAYOUTS:
            if not all(exists(root / sign) for sign in signs):
                continue
            for name in environments:
                if isdir(root / name):
                    return Application(root, root / name)
    return None


def find_started_environment(folder: Path) -> Path | None:
    """Return the environment that the programs of a folder use.

    Returns:
        The application's environment, or the only one in the folder. None for
        ``.venv``, which may be missing.
    """
    application = find_application(folder)
    if application:
        return application.environment
    found = [*folder.glob("[!.]*/pyvenv.cfg")]
    if len(found) == 1 and not exists(folder / ".venv"):
        return found[0].parent
    return None


def find_owning_application(environment: Path) -> Application | None:
    """Return the application to which an environment belongs, if any."""
    application = find_application(environment.parent)
    if application and application.environment == environment:
        return application
    return None
