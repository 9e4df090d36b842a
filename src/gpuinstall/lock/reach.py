"""Whether the default index answers, found out before uv asks it: uv alone tries for up to a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall import uv
from gpuinstall.web import UnreachableError

if TYPE_CHECKING:
    from gpuinstall.session import Session


def silence(session: Session) -> UnreachableError | None:
    """Ask the default index whether it is there, unless uv is to ask nobody; None where it answers.

    A certificate that we do not trust is left to uv, which may know another authority.
    """
    if session.environment.get("UV_OFFLINE"):
        return None
    address = session.sources.default_index or uv.default_index(session.environment)
    try:
        if address and address.startswith(("http://", "https://")):
            session.client.head(f"{address}/")
    except UnreachableError as error:
        error.hint = f"{error.hint}; behind a proxy set HTTPS_PROXY, behind a mirror UV_DEFAULT_INDEX"
        return None if error.untrusted else error
    return None
