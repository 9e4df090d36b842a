"""CA certificates of the client and of uv."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ssl import SSLContext

_HAS_STORE = {"darwin", "win32"}
"""Platforms with a store that is not a file."""

_STORES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Paths of the system's store on Linux."""

_CHOICES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS")
"""Variables with which the user selects uv's certificates."""


def create_context(bundle: str | None) -> SSLContext:
    """Create a TLS context for a CA bundle.

    Args:
        bundle: The path of a file, or the paths of folders. None: certifi's
            certificates, and the system's store.
    """
    import certifi
    from urllib3.util.ssl_ import create_urllib3_context

    context = create_urllib3_context()
    if bundle is None and sys.platform in _HAS_STORE:
        import ssl

        import truststore

        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    elif bundle is None:
        # On Linux, truststore would load the store for each connection.
        context.set_default_verify_paths()
        if store := _find_store():
            context.load_verify_locations(store)
    bundle = bundle or certifi.where()
    files = (None, bundle) if are_folders(bundle) else (bundle, None)
    context.load_verify_locations(*files)
    return context


def are_folders(bundle: str) -> bool:
    """Return whether a CA bundle is a list of folders, as in SSL_CERT_DIR."""
    return os.path.isdir(bundle.partition(os.pathsep)[0])


def select_uv_certificates(
    variables: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Return uv's variables for the certificates of ``create_context``.

    uv trusts its own certificates or the system's. On Linux, the system's store can be
    empty or old. Therefore uv receives both in one file.

    Args:
        variables: The user's variables, which have precedence.
        folder: The private folder of this run.
    """
    if any(map(variables.get, _CHOICES)):
        return {}
    if sys.platform in _HAS_STORE:
        return {"UV_SYSTEM_CERTS": "1"}
    store = _find_store()
    if store is None:
        return {}
    import certifi

    file = folder / "certificates.pem"
    parts = [Path(path).read_bytes() for path in (certifi.where(), store)]
    file.write_bytes(b"\n".join(parts))
    return {"SSL_CERT_FILE": str(file)}


def _find_store() -> str | None:
    """Return the path of the system's store on Linux, unless it is empty."""
    files = filter(os.path.isfile, _STORES)
    return next((file for file in files if Path(file).stat().st_size), None)
