"""The options of the commands that change an environment."""

from __future__ import annotations

import click

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
replace = click.option(
    "--replace",
    is_flag=True,
    help="Also replace packages and folders that gpuinstall did not make.",
)
