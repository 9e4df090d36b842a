"""HTTP adapter that loads the CA certificates once for all connections."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from gpuinstall.sources.certificates import create_context

if TYPE_CHECKING:
    from requests import PreparedRequest


class SharedContextAdapter(HTTPAdapter):
    """Adapter with one TLS context for all connections of a CA bundle."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lock = threading.Lock()
        self._load_context = cache(create_context)

    def build_connection_pool_key_attributes(
        self, request: PreparedRequest, verify: Any, cert: Any = None
    ) -> tuple[Any, Any]:
        """Add the TLS context to the settings of a connection."""
        host, settings = super().build_connection_pool_key_attributes(
            request, verify, cert
        )
        bundle = None if verify is True else verify
        if verify and host["scheme"] == "https":
            with self._lock:
                settings["ssl_context"] = self._load_context(bundle)
        return host, settings

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Load no CA bundle, because the TLS context has loaded it."""
        super().cert_verify(conn, url, bool(verify), cert)  # type: ignore[no-untyped-call]
        conn.ca_certs = conn.ca_cert_dir = None


class CertificateRetry(Retry):
    """Retries that end if a certificate is not trusted."""

    def increment(self, *words: Any, **named: Any) -> Any:
        """Count a retry, or raise the error of an untrusted certificate."""
        if "CERTIFICATE_VERIFY_FAILED" in str(named.get("error")):
            raise named["error"]
        return super().increment(*words, **named)
