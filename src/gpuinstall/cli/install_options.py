"""The options of the commands that change an environment."""

from __future__ import annotations

import click

from gpuinstall.install.environment_lock import WAIT_S

dry_run = click.option(
    "--dry-run", is_flag=True, help="Show what would change and what it costs, with -v the commands; change nothing."
)
replacing = click.option(
    "--replace", "replacing", is_flag=True, help="Replace packages and folders that are not ours too."
)
into = click.option(
    "--into", is_flag=True, help="Put torch into the environment that --python PATH or --venv DIR names."
)
verify = click.option("--verify", is_flag=True, help="Run the kernels even where nothing has changed.")
keep = click.option("--keep/--no-keep", default=True, help="Keep one previous environment.")
jupyter = click.option("--jupyter", is_flag=True, help="Offer it as a kernel to every Jupyter of yours (ipykernel).")
wait = click.option(
    "--wait", type=click.FloatRange(0), default=WAIT_S, metavar="S", help="Seconds to wait for another run (600)."
)
