"""Selection of a build: pure rules over a Machine, a Request, and a Catalog.

``choose`` returns a ``Plan`` or a ``Rejected``. Both list the reason against each rejected build.
"""

from gpuinstall.plan.choice import choose
from gpuinstall.plan.values import Plan, Rejected

__all__ = ["Plan", "Rejected", "choose"]
