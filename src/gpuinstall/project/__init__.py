"""One run: what a folder says and its caller asks, where packages come from, what is known of builds, the machine.

Every command and every call of the API begins here, so that they cannot differ.
"""

from gpuinstall.project.folder import Settings
from gpuinstall.project.run import Project, open_project

__all__ = ["Project", "Settings", "open_project"]
