"""Fixtures for tests with malicious input: a folder, a user, and a host."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.driver import NO_GPU
from tests.lab.host import NOT_FOUND, Answer, Host

TOKEN = "hunter2-hunter3"


@pytest.fixture
def here(workshop, play):
    """Return a workshop folder on a machine without a GPU."""
    play(NO_GPU)
    return workshop.having(HF_TOKEN=TOKEN)


class Stranger(Host):
    """A hostile host with the same filelock."""

    def __init__(self, wheel: Path):
        """Serve the wheel on any path."""

        def respond(path, _headers):
            if path.endswith(wheel.name):
                return Answer(body=wheel.read_bytes())
            if path == "/simple/filelock/":
                link = f'<a href="/{wheel.name}">{wheel.name}</a>'
                return Answer(body=link.encode(), content_type="text/html")
            return NOT_FOUND

        super().__init__("stranger", respond)
        self.wheel = f"{self.url}/{wheel.name}"
        """The URL of the hostile host."""


@pytest.fixture
def stranger(stand_in) -> Iterator[Stranger]:
    """Start a hostile host."""
    stranger = Stranger(next((stand_in.folder / "simple").glob("filelock-*.whl")))
    yield stranger
    stranger.close()
