"""The proof: kernels that run inside the target environment, and the runner outside it.

``verify_environment`` starts ``kernels`` with that environment's Python and returns a ``Verdict``: passed,
failed or unproven for each device. ``kernels`` imports torch and the standard library alone.
"""
