"""The decision: pure rules over a Machine, a Request and a Catalog. Nothing here touches the world."""

from gpuinstall.plan.choice import choose
from gpuinstall.plan.values import Plan, Rejected

__all__ = ["Plan", "Rejected", "choose"]
