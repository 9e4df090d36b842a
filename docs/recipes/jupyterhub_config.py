"""For jupyterhub_config.py: every user's server starts in the environment whose lock runs on the node.

In /shared/project, once: gpuinstall lock torch jupyterhub jupyterlab ipykernel --target cu126 --target cu130
and for each of them: gpuinstall sync --target cu126 --venv .venv-cu126
"""

c = get_config()  # noqa: F821

# Where no lock runs, the server ends with the reason in its log, instead of a torch that finds no GPU.
c.Spawner.cmd = [
    "gpuinstall", "run", "--any", "--venv", "/shared/project/.venv", "jupyterhub-singleuser",
]  # fmt: skip
# Kernels run once on each node, and may take a minute there.
c.Spawner.start_timeout = 600

# With batchspawner on Slurm, the line of: gpuinstall export needs --for slurm --feature a100=8.0
# c.SlurmSpawner.req_options = "--gres=gpu:1 --constraint='a100|h100'"
# With KubeSpawner, the expressions of: gpuinstall export needs --for kubernetes
# c.KubeSpawner.node_affinity_required = [{"matchExpressions": [...]}, ...]
