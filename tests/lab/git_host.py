"""A host that serves Git repositories, optionally only with a login."""

import base64
from pathlib import Path
from urllib.parse import urlsplit

from gpuinstall.base import process
from tests.lab.host import NOT_FOUND, UNAUTHORIZED, Answer, Host

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b.example")


class GitHost(Host):
    """A host that serves all repositories below a folder."""

    def __init__(self, folder: Path, login: str | None = None):
        """Serve Git's files. With a login, all other requests are rejected."""
        expected = None
        if login:
            expected = f"Basic {base64.b64encode(login.encode()).decode()}"

        def respond(path, headers):
            if expected and headers.get("authorization") != expected:
                return UNAUTHORIZED
            file = folder / urlsplit(path).path.lstrip("/")
            if not file.is_file():
                return NOT_FOUND
            return Answer(body=file.read_bytes(), content_type="text/plain")

        super().__init__("git", respond)


def commit(folder: Path, files: dict[str, str], *words: tuple[str, ...]) -> str:
    """Commit files to a new repository, and return the commit ID.

    Args:
        folder: The work tree.
        files: The files.
        words: Further Git commands to run before the commit.
    """
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    commands = [("init", "-q"), ("add", "."), *words]
    commands.append((*AUTHOR, "commit", "-q", "-m", "x"))
    # Clients read this list, because the host runs no Git.
    commands.append(("update-server-info",))
    for command in commands:
        done = process.run(["git", *command], cwd=folder)
        assert done.ok, done.err
    return process.run(["git", "rev-parse", "HEAD"], cwd=folder).out.strip()
