"""Selection of a build: pure rules over a Machine, a Request, and a Catalog.

``choose`` returns a ``Plan`` or ``Rejected``, each with the reason against every other build.
"""

from gpuinstall.plan.choice import choose
from gpuinstall.plan.values import Plan, Rejected

__all__ = ["Plan", "Rejected", "choose"]
