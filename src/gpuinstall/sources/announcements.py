"""Report the sources that a folder selects, and ignored settings."""

from __future__ import annotations

from gpuinstall.base.reporter import Reporter
from gpuinstall.sources.provenance import SourceSetting
from gpuinstall.sources.sources import Sources, make_entry
from gpuinstall.sources.uv_settings import KeyList, UvSetting


def report_folder_sources(sources: Sources, reporter: Reporter) -> None:
    """Report the sources that the folder selects, even with ``--quiet``.

    Raises:
        UsageError: The user does not trust the folder to select sources.
    """
    sources.policy.check(map(make_entry, sources.addresses.folder_sources))
    for setting in sources.addresses.folder_sources:
        has_login = sources.credentials.has(setting.value)
        login = "; credentials are sent to it" if has_login else ""
        reporter.notice("Index", f"{setting}{login}")


def report_ignored_settings(sources: Sources, reporter: Reporter) -> None:
    """Report ignored settings, and warn about unknown ones."""
    settings: list[SourceSetting | UvSetting] = [*sources.addresses.settings]
    settings += sources.uv.settings
    # Each extra and group has the project's sources.
    explained = {
        (one.key, one.file.absolute(), one.line, one.ignore_reason): one
        for one in settings
    }
    for one in explained.values():
        reason = f"{one.shown}: {one.ignore_reason}"
        if isinstance(one, UvSetting) and one.list is KeyList.UNKNOWN:
            reporter.warn(reason)
        elif one.ignore_reason:
            label = "Index" if one.key == "no-index" else "Ignored"
            reporter.step(label, reason)
    for row in sources.uv.settings:
        if names := sources.uv.list_family_rows(row):
            reporter.step(
                "Ignored",
                f"{row.shown}: {', '.join(names)} is selected with the build; --into keeps an environment's own torch",
            )
