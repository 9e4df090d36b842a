"""The examination of a machine, an environment and a project: evidence, findings, fixes."""
