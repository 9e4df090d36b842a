"""What keeps plain pip and uv to the build of an environment: constraints, and the settings that name them.

Everything that constrains other installers is written here: the hook's section and the guard of our environments.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpuinstall.base.files import parse_toml, read_document, write_atomically
from gpuinstall.base.text import checksum, guard_text, has_login, is_guard_text
from gpuinstall.base.values import Value
from gpuinstall.environments.application import application_of

CONSTRAINTS = "constraints.txt"
UV_SETTINGS = "uv.toml"
"""What uv reads in the folder that it is run in, or in the nearest one above."""
GUARD_FILES = (CONSTRAINTS, "pip.conf", "pip.ini")


class FamilyMember(Value):
    """A package of PyTorch's family that is not installed.

    Without version and address there is none for this build.
    """

    name: str
    version: str | None = None
    address: str | None = None
    sha256: str | None = None


def constraint_lines(
    versions: Mapping[str, str],
    beside: Iterable[FamilyMember],
    backend: str,
) -> list[str]:
    """Return the lines of a constraints file that keep the family to one build.

    What is installed is constrained by its version, which pip and uv find installed and do not fetch again; what may
    come in later by the address of its file, since no other index has that build.

    Args:
        versions: The versions of the installed members.
        beside: The other members.
        backend: The tag of the build, for the version of those that it does not have.
    """
    lines = [f"{name}=={version}" for name, version in versions.items()]
    for member in beside:
        if member.address:
            digest = f"#sha256={member.sha256}" if member.sha256 else ""
            lines.append(f"{member.name} @ {member.address}{digest}")
        elif member.version:
            lines.append(f"{member.name}=={member.version}")
        else:
            label = backend.replace("-", ".")
            lines += [
                f"# no {member.name} is known for {backend}:",
                f"{member.name}==0+none.for.{label}",
            ]
    return lines


def pip_section(
    constraints: Sequence[str],
    links: Sequence[str] = (),
) -> list[str]:
    """Return the lines of a ``pip.conf`` that name constraints files and pages of files, each by its address.

    They are addresses because pip splits a list of paths at spaces.
    """
    lines = ["[install]", f"constraint = {' '.join(constraints)}"]
    if links:
        lines += ["find-links =", *(f"    {link}" for link in links)]
    return lines


def pip_configuration() -> str:
    """Return the name of pip's settings in an environment."""
    return "pip.ini" if os.name == "nt" else "pip.conf"


def write_guard(
    built: Path,
    final: Path,
    source: str,
    lines: Sequence[str],
    constraints: Sequence[str] = (),
) -> None:
    """Write the guard of the environment at ``built``, right for ``final``, where it will lie.

    Args:
        built: The folder of the environment.
        final: The folder that it will be in.
        source: The lock that the lines were made from, or the torch.
        lines: The constraints.
        constraints: Further constraints files, the user's own, which pip would pass over otherwise.
    """
    text = "".join(f"{line}\n" for line in lines)
    lift = f"{pip_configuration()} beside this file names it; to lift it, delete that file."
    write_atomically(built / CONSTRAINTS, guard_text(text, source, lift))
    section = pip_section((*constraints, (final / CONSTRAINTS).as_uri()))
    configuration = "\n".join([*section, ""])
    write_atomically(
        built / pip_configuration(),
        guard_text(configuration, source, "To lift them, delete this file."),
        # An address in the user's own file may have a login that no other user can read.
        is_private=has_login(configuration),
    )


def move_guard(environment: Path, before: Path) -> None:
    """Have pip's settings in an environment that was moved name the constraints where they lie now."""
    file = environment / pip_configuration()
    if not is_own_guard_file(file):
        return
    head, _, text = read_document(file, environment).partition("\n")
    moved = text.replace(
        (before / CONSTRAINTS).as_uri(), (environment / CONSTRAINTS).as_uri()
    )
    head = head.replace(f"({checksum(text)})", f"({checksum(moved)})")
    write_atomically(file, f"{head}\n{moved}", is_private=has_login(moved))


def renew_uv_guard(environment: Path) -> Path | None:
    """Keep uv, run in the folder of an environment's application or below it, to the constraints of the environment.

    Without constraints of ours the settings go that we wrote before. Settings of others stay as they are.

    Returns:
        The settings; None if uv is not kept to anything.
    """
    application = application_of(environment)
    if application is None:
        return None
    settings = application.root / UV_SETTINGS
    # The user's own, or an application's.
    if os.path.lexists(settings) and not is_own_guard_file(settings):
        return None
    lines = guarded_lines(environment)
    # uv reads one file only: ours would hide what pyproject.toml says to it.
    if not lines or _has_uv_table(application.root):
        settings.unlink(missing_ok=True)
        return None
    constraints = "".join(f"    {json.dumps(line)},\n" for line in lines)
    text = f"constraint-dependencies = [\n{constraints}]\n"
    source = next((line for line in lines if line.startswith("torch==")), "torch")
    lift = f"They are those of {environment.name}/{CONSTRAINTS}; to lift them, delete this file."
    write_atomically(settings, guard_text(text, source, lift))
    return settings


def guarded_lines(environment: Path) -> list[str]:
    """Return the constraints of the guard in an environment; none if there is none, or somebody has edited it."""
    file = environment / CONSTRAINTS
    if not is_own_guard_file(file):
        return []
    lines = read_document(file, environment).splitlines()
    return [line for line in lines if not line.startswith("#")]


def _has_uv_table(folder: Path) -> bool:
    """Whether the pyproject.toml of a folder has settings of uv."""
    with suppress(OSError, ValueError):
        document = parse_toml(read_document(folder / "pyproject.toml", folder))
        return "uv" in document.get("tool", {})
    return False


def is_own_guard_file(file: Path) -> bool:
    """Whether a file is as the guard writes it, and not edited since."""
    with suppress(OSError, ValueError):
        return is_guard_text(read_document(file, file.parent))
    return False
