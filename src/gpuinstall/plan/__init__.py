"""Select a torch build from a catalog for a machine and a request.

``choose`` returns a ``Plan`` or a ``Rejected``. Both list rejected builds with the reasons.
"""

from gpuinstall.plan.choice import choose
from gpuinstall.plan.values import Plan, Rejected

__all__ = ["Plan", "Rejected", "choose"]
