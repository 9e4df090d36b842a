"""The decision: pure rules over a Machine, a Request and a Catalog. Nothing here touches the world.

``choose`` gives a ``Plan``, which is a build with its reasons and every other with the reason against it,
or ``Rejected``, which knows the error to raise.
"""

from gpuinstall.plan.choice import choose
from gpuinstall.plan.values import Plan, Rejected

__all__ = ["Plan", "Rejected", "choose"]
