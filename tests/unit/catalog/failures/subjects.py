"""Subjects of fixes, in addition to the platform."""

from gpuinstall.catalog.failures.classify import (
    ORIGINS,
    Conditions,
    causes_of,
    find_matches,
    rank,
)
from gpuinstall.catalog.failures.table import (
    load_conditions,
    load_failures,
    load_lookalikes,
    load_problems,
)
from gpuinstall.diagnose.explanation import library_placeholders


def subjects():
    """Return conditions that are keys of fixes."""
    tables = (load_failures(), load_lookalikes(), load_problems())
    fixes = [row.fix for rows in tables for row in rows.values() if row.fix]
    keys = {key for fix in fixes for key in fix.commands}
    names = {row.name for row in load_conditions()}
    return sorted(keys & names - {*ORIGINS})


def explained(text, here=None):
    """Return the causes of a text with the packages of missing libraries."""
    conditions = Conditions(text)
    matches = rank(find_matches(load_failures(), conditions))
    words = library_placeholders(matches[0], conditions, {}) if matches else {}
    return causes_of(matches, conditions, here, words)


def lookalikes(text):
    """Return errors in a text that resemble a fault of driver or build."""
    conditions = Conditions(text)
    matches = find_matches(load_lookalikes(), conditions)
    return causes_of(matches, conditions, None)
