"""One run in a folder: its request, sources, catalog, and machine.

Every command and API call opens a run, so their requests cannot differ.
"""

from gpuinstall.project.folder import Settings
from gpuinstall.project.run import Project, open_project

__all__ = ["Project", "Settings", "open_project"]
