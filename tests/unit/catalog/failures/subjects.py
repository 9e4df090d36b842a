"""Subjects of fixes, in addition to the platform."""

from gpuinstall.catalog.failures.classify import (
    ORIGINS,
    Circumstances,
    causes_of,
    find_matches,
    rank,
)
from gpuinstall.catalog.failures.table import (
    load_circumstances,
    load_failures,
    load_kinds,
    load_lookalikes,
    load_problems,
)
from gpuinstall.diagnose.explanation import library_placeholders


def subjects():
    """Return circumstances and observations that are keys of fixes."""
    tables = (load_failures(), load_lookalikes(), load_problems())
    fixes = [row.fix for rows in tables for row in rows.values() if row.fix]
    keys = {key for fix in fixes for key in fix.commands}
    names = {kind.name for kind in load_kinds()}.union(load_circumstances())
    return sorted(keys & names - {*ORIGINS})


def explained(text, here=None):
    """Return the causes of a text with the packages of missing libraries."""
    circumstances = Circumstances(text)
    matches = rank(find_matches(load_failures(), circumstances))
    words = library_placeholders(matches[0], circumstances, {}) if matches else {}
    return causes_of(matches, circumstances, here, words)


def lookalikes(text):
    """Return errors in a text that resemble a fault of driver or build."""
    circumstances = Circumstances(text)
    matches = find_matches(load_lookalikes(), circumstances)
    return causes_of(matches, circumstances, None)
