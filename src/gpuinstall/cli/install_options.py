"""The options of the commands that change an environment."""

from __future__ import annotations

import click

from gpuinstall.install.environment_lock import WAIT_S

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would change and be downloaded (-v: the commands too); change nothing."
)
replacing = click.option(
    "--replace", "replacing", is_flag=True, help="Also replace packages and folders that gpuinstall did not make."
)
into = click.option(
    "--into", is_flag=True, help="Install into the existing environment named by --python PATH or --venv DIR."
)
verify_option = click.option("--verify", is_flag=True, help="Run the kernels even if nothing changed.")
keep = click.option("--keep/--no-keep", default=True, help="Keep the previous environment.")
jupyter = click.option("--jupyter", is_flag=True, help="Register it as a Jupyter kernel (ipykernel).")
yes = click.option("-y", "--yes", is_flag=True, help="Do not ask before downloading a larger build than requested.")
wait = click.option(
    "--wait", type=click.FloatRange(0), default=WAIT_S, metavar="S", help="Seconds to wait for another run (600)."
)
