"""What a fix may be about, beside the place where it is applied."""

from gpuinstall.catalog.failures.classify import (
    ORIGINS,
    Circumstances,
    causes_of,
    find_matches,
)
from gpuinstall.catalog.failures.table import (
    load_circumstances,
    load_failures,
    load_kinds,
    load_lookalikes,
    load_problems,
)


def subjects():
    """The circumstances and the observations that are keys of a fix, those of a place left aside."""
    tables = (load_failures(), load_lookalikes(), load_problems())
    fixes = [row.fix for rows in tables for row in rows.values() if row.fix]
    keys = {key for fix in fixes for key in fix.commands}
    names = {kind.name for kind in load_kinds()}.union(load_circumstances())
    return sorted(keys & names - {*ORIGINS})


def lookalikes(text):
    """Return errors in a text that resemble a fault of driver or build."""
    circumstances = Circumstances(text)
    matches = find_matches(load_lookalikes(), circumstances)
    return causes_of(matches, circumstances, None)
