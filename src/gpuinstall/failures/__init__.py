"""The one table of failures, and how an entry is recognised in a text and said for one machine."""

from gpuinstall.failures.problems import FixContext, fix

__all__ = ["FixContext", "fix"]
