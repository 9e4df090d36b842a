"""One run in a folder: its request, sources, catalog, and machine.

Commands and API calls open the same kind of run, so that they read the same request.
"""

from gpuinstall.project.folder import Settings
from gpuinstall.project.run import Project, open_project

__all__ = ["Project", "Settings", "open_project"]
