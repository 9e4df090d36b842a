"""Arguments that the API passes to an installation."""

from pathlib import Path

from gpuinstall import api
from gpuinstall.install import install


def test_install_into_uses_parent_folder_of_environment(monkeypatch):
    """``verify`` also searches for libraries there."""
    folders = []
    monkeypatch.setattr(
        install, "install", lambda project, _: folders.append(project.paths.folder)
    )

    api.install_into("/p/venv/bin/python")
    assert folders == [Path("/p")]
