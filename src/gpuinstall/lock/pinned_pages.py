"""When pinned versions came out, as the pages of their indexes tell."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from packaging.utils import parse_sdist_filename, parse_wheel_filename

from gpuinstall.base.files import parse_json
from gpuinstall.base.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.version import Version

    from gpuinstall.base.requirement import ParsedRequirement
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Page


def date_of_pins(limits: Sequence[ParsedRequirement], session: Session) -> str | None:
    """Return the day after the newest of the pinned versions came out, as uv reads a date.

    Args:
        limits: Requirements with specifiers.
        session: The sources and the clients of the run.

    Returns:
        None if nothing is pinned to one version, or no source tells when that came out.
    """
    pins = [limit for limit in limits if _is_exact(limit)]
    pages = side_by_side(session.known_page, [pin.name for pin in pins])
    days = [release_day(page, pin) for page, pin in zip(pages, pins, strict=True) if page]
    newest = max(filter(None, days), default=None)
    if newest is None:
        return None
    day_after = newest + timedelta(days=1)
    return f"{day_after:%Y-%m-%d}T00:00:00Z"


def release_day(page: Page, pin: ParsedRequirement) -> datetime | None:
    """Return when the first file of a pinned version was uploaded, if the page tells it (PEP 700).

    Later files of a version are wheels for newer Pythons: their dates are not that of the version.
    """
    if "json" not in page.content_type:
        return None
    days = []
    for file in parse_json(page.text).get("files", ()):
        version = _version_of(file.get("filename", ""))
        uploaded = file.get("upload-time")
        if version is None or not pin.allows(version):
            continue
        if isinstance(uploaded, str):
            with suppress(ValueError):
                days.append(datetime.fromisoformat(uploaded[:10]))
    return min(days, default=None)


def _is_exact(requirement: ParsedRequirement) -> bool:
    """Whether a requirement pins one version."""
    parts = requirement.specifier or ()
    return any(part.operator == "==" and not part.version.endswith("*") for part in parts)


def _version_of(filename: str) -> Version | None:
    with suppress(ValueError):
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    return None
