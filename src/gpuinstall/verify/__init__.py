"""Verification of an environment by kernels that run in it.

``verify_environment`` starts ``kernels`` with the environment's Python and returns a ``Verdict``: passed, failed, or
unproven for each device. ``kernels`` imports only torch and the standard library.
"""
