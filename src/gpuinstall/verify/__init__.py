"""The proof: kernels that run inside the target environment, and the runner outside it."""

from gpuinstall.verify.runner import verify_environment
from gpuinstall.verify.verdict import Check, Device, Subject, Verdict

__all__ = ["Check", "Device", "Subject", "Verdict", "verify_environment"]
