"""Check subdirectories of Git repositories before a build."""

from __future__ import annotations

import hashlib
import posixpath
from os.path import isdir
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.process import Finished, find_program, run
from gpuinstall.base.text import redact, shorten

if TYPE_CHECKING:
    from gpuinstall.sources.session import Session

_DOWNLOAD_S = 600


def check_subdirectory(
    session: Session, repository: str, revision: str, subdirectory: str
) -> None:
    """Check that a subdirectory exists in a Git repository.

    The subdirectory must not be a symbolic link, which uv would follow.

    Args:
        session: The clients of the run. An offline run checks nothing, because uv uses
            repositories from previous runs.
        repository: The URL or path.
        revision: The commit, branch, or tag. Empty: the default branch.
        subdirectory: The path in the repository.

    Raises:
        InstallationError: The repository cannot be fetched.
        UsageError: The subdirectory is missing or a symbolic link.
    """
    # Without git, uv reports that it is missing.
    is_offline = session.environment.get("UV_OFFLINE")
    if not subdirectory or is_offline or not find_program("git"):
        return
    name = hashlib.sha256(f"{repository}\0{revision}".encode()).hexdigest()
    folder = session.scratch / "repositories" / name

    def git(*words: str) -> Finished:
        command = ["git", "-C", str(folder), *words]
        return run(command, env=session.environment, seconds=_DOWNLOAD_S)

    if not isdir(folder):
        folder.mkdir(parents=True)
        git("init", "--quiet", "--bare")
    fetch = ("fetch", "--quiet", "--no-tags")
    everything = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
    # Some servers do not support shallow clones, or single commits.
    done = git(*fetch, "--depth=1", "--", repository, revision or "HEAD")
    commit = "FETCH_HEAD"
    if not done.ok:
        done = git(*fetch, "--", repository, "HEAD", *everything)
        commit = revision or commit
    if not done.ok:
        raise InstallationError(
            "repository", "a Git repository could not be fetched", why=done.err.strip()
        )
    inner = posixpath.normpath(subdirectory)
    if git("cat-file", "-t", f"{commit}:{inner}").out.strip() != "tree":
        raise UsageError(
            "lock-traversal",
            f"{shorten(redact(repository))} has no folder {shorten(subdirectory)}",
            why="symbolic links are not followed, because they could lead outside the repository",
        )
