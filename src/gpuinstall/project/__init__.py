"""Read the request, package indexes, and machine for a project folder.

Commands and API calls open a ``Project``, so that both read the same request.
"""

from gpuinstall.project.folder import Settings
from gpuinstall.project.run import Project, open_project, reread_project

__all__ = ["Project", "Settings", "open_project", "reread_project"]
