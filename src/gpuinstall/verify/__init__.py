"""The proof: kernels that run inside the target environment, and the runner outside it."""

from gpuinstall.finding import CheckResult
from gpuinstall.verify.runner import verify_environment
from gpuinstall.verify.verdict import Device, Verdict, VerifiedEnvironment

__all__ = ["CheckResult", "Device", "Verdict", "VerifiedEnvironment", "verify_environment"]
