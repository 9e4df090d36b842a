"""The seal of a lock: a digest of all that it says, by which a change by another hand shows.

It is evidence and no signature: who edits a lock can make it anew, and is then seen by what the sources hold.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SEAL = "contents-digest"


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same document of a lock with its seal."""
    own = document["tool"]["gpuinstall"] | {SEAL: contents_digest(document)}
    return {**document, "tool": document["tool"] | {"gpuinstall": own}}


def contents_digest(document: Mapping[str, Any]) -> str:
    """Digest a lock without its seal."""
    own = {key: value for key, value in document.get("tool", {}).get("gpuinstall", {}).items() if key != SEAL}
    plain = {**document, "tool": {**document.get("tool", {}), "gpuinstall": own}}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()
