"""Whether the default index answers, found out before uv asks it: uv alone tries for up to a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall import uv
from gpuinstall.web import UnreachableError

if TYPE_CHECKING:
    from gpuinstall.lock.means import Means


def silence(means: Means) -> UnreachableError | None:
    """Ask the default index whether it is there, unless uv is to ask nobody; None where it answers.

    A certificate that we do not trust is left to uv, which may know another authority.
    """
    if means.environment.get("UV_OFFLINE"):
        return None
    address = means.sources.default_index or uv.default_index(means.environment)
    try:
        if address and address.startswith(("http://", "https://")):
            means.client.head(f"{address}/")
    except UnreachableError as error:
        error.hint = f"{error.hint}; behind a proxy set HTTPS_PROXY, behind a mirror UV_DEFAULT_INDEX"
        return None if error.untrusted else error
    return None
