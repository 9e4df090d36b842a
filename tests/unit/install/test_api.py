"""What a call of the API is for, before it does anything."""

from pathlib import Path

from gpuinstall import api
from gpuinstall.install import into


def test_an_environment_of_others_has_the_libraries_that_lie_beside_it(monkeypatch):
    """``verify`` looks for them there too."""
    folders = []
    monkeypatch.setattr(
        into, "install_into", lambda project, _: folders.append(project.paths.folder)
    )

    api.install_into("/p/venv/bin/python")
    assert folders == [Path("/p")]
