"""The examination of a machine, an environment and a project: evidence, findings, fixes.

``examine`` reads without running what others made; ``run_repairs`` carries out the fixes that are ours.
"""
