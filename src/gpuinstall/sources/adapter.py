"""HTTP adapter that loads the CA certificates once for all connections."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from requests.adapters import HTTPAdapter
from requests.utils import should_bypass_proxies
from urllib3.util import Retry

from gpuinstall.sources.certificates import create_context

if TYPE_CHECKING:
    from requests import PreparedRequest, Response


class SharedContextAdapter(HTTPAdapter):
    """Adapter with one TLS context for all connections of a CA bundle.

    Args:
        direct: The hosts to reach without a proxy, as in ``NO_PROXY``.
        options: The options of the requests library's adapter.
    """

    def __init__(self, direct: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._direct = direct
        self._lock = threading.Lock()
        self._load_context = cache(create_context)

    def send(self, request: PreparedRequest, *words: Any, **named: Any) -> Response:
        """Send a request, without a proxy to a direct host."""
        url = request.url or ""
        if self._direct and should_bypass_proxies(url, self._direct):
            named["proxies"] = {}
        return super().send(request, *words, **named)

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
