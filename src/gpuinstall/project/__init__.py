"""A run in a project folder: its request, sources, catalog, and machine.

Commands and API calls both open a ``Project``, so that they read the same request.
"""

from gpuinstall.project.folder import Settings
from gpuinstall.project.run import Project, open_project

__all__ = ["Project", "Settings", "open_project"]
