"""The proof: kernels that run inside the target environment, and the runner outside it."""

from gpuinstall.verify.runner import verify_environment
from gpuinstall.verify.verdict import CheckResult, Device, Verdict, VerifiedEnvironment

__all__ = ["CheckResult", "Device", "Verdict", "VerifiedEnvironment", "verify_environment"]
