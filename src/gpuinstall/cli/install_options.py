"""The options of the commands that change an environment."""

from __future__ import annotations

import click

from gpuinstall.cli.options import Decorator, bundled
from gpuinstall.install.options import WAIT_S

dry_run_option = click.option(
    "--dry-run",
    is_flag=True,
    help="Show what would change and be downloaded (-v: the commands too); change nothing.",
)
into = click.option(
    "--into",
    is_flag=True,
    help="Install into the existing environment named by --python PATH or --venv DIR, or this application's.",
)
jupyter = click.option(
    "--jupyter", is_flag=True, help="Register it as a Jupyter kernel (ipykernel)."
)
wait = click.option(
    "--wait",
    type=click.FloatRange(0),
    default=WAIT_S,
    metavar="S",
    help="Seconds to wait for another run (600).",
)
_UNASKED = "Do not ask before a larger download."
_CHANGING = {
    "replace": click.option(
        "--replace",
        is_flag=True,
        help="Also replace packages and folders that gpuinstall did not make.",
    ),
    "verify": click.option(
        "--verify", is_flag=True, help="Run the kernels even if nothing changed."
    ),
    "keep": click.option("--keep/--no-keep", default=True, help="Keep the previous environment."),
    "wait": wait,
    "yes": click.option("-y", "--yes", is_flag=True, help=_UNASKED),
}


def changing(*names: str) -> Decorator:
    """Return a decorator that gives a command some options of InstallOptions as a dict."""
    return bundled("changing", dict, {name: _CHANGING[name] for name in names})
