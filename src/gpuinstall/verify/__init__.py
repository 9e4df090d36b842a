"""The proof: kernels that run inside the target environment, and the runner outside it."""

from gpuinstall.verify.runner import verify_environment
from gpuinstall.verify.verdict import Check, Device, Tested, Verdict

__all__ = ["Check", "Device", "Tested", "Verdict", "verify_environment"]
