"""Code of packages that has to run before it is known what they require: named first, or refused.

uv is run with a Python that cannot start, so that it stops where it would run such code and names the package. That
one is announced and built alone; uv keeps what it learned of it, and is asked again.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from gpuinstall import process

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from gpuinstall.process import Finished
    from gpuinstall.session import Session

WHEELS_ALONE = ("--only-binary", ":all:")
_NO_CODE = {"PYTHONHOME": os.devnull}
"""With it an interpreter ends before it reads a line, but for the isolated one that uv asks for its version."""
_STOPPED = re.compile(r"Failed to build `([^`]+)`")
_BY_ADDRESS = re.compile(r"Building source distributions for `([^`]+)` is disabled")


def resolve(
    command: Sequence[str], inputs: Iterable[str], folder: Path, session: Session, addresses: Iterable[str] = ()
) -> Finished:
    """Run uv's resolver on ``inputs``, files of ``folder``; every package whose code has to run is named before.

    With ``session.only_binary`` only what is asked for by ``addresses`` may be built; what ``command`` says is never
    built is not in either case.
    """
    command = [*command, *(WHEELS_ALONE if session.only_binary else ())]
    variables, tried = _with_cache(session.environment, folder), set[str]()
    while True:
        done = _run([*command, *inputs], {**variables, **_NO_CODE}, folder, session)
        stopped, meant = _STOPPED.search(done.err), _BY_ADDRESS.search(done.err)
        if session.only_binary and meant and not {meant[1], _built(meant[1])} & set(command):
            command.append(_built(meant[1]))
            continue
        if done.ok or meant or not stopped:
            return done
        if stopped[1] in tried:  # uv has not kept what it learned
            return _run([*command, *inputs], variables, folder, session)
        tried.add(stopped[1])
        _announce(stopped[1], session)
        (folder / "alone.in").write_text(_as_asked(stopped[1], addresses), encoding="utf-8")
        only = [*WHEELS_ALONE, _built(re.split(r"[ =]", stopped[1])[0])]
        alone = _run([*command, *only, "alone.in"], variables, folder, session)
        if f"Failed to build `{stopped[1]}`" in alone.err:
            return alone


def _built(package: str) -> str:
    return f"--no-binary={package}"


def _run(command: list[str], variables: dict[str, str], folder: Path, session: Session) -> Finished:
    return process.run(command, env=variables, cwd=folder, patience=session.patience)


def _announce(package: str, session: Session) -> None:
    if package not in session.announced:
        session.announced.add(package)
        name = package.replace("==", " ")
        session.reporter.warn(f"{name} says what it requires only when it is built: its own code runs now")


def _as_asked(package: str, addresses: Iterable[str]) -> str:
    """The requirement as it was asked for: a folder that is editable is built otherwise than one that is not."""
    place = unquote(urlsplit(package.partition(" @ ")[2]).path)
    return next((text for text in addresses if place and place in unquote(text)), package)


def _with_cache(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The variables with a cache of this resolution where there is to be none: what is learned is asked for again."""
    variables = dict(environment)
    if variables.pop("UV_NO_CACHE", ""):
        variables["UV_CACHE_DIR"] = str(folder / "cache")
    return variables
