"""Values: frozen, compared and hashed by their fields, made by msgspec in a fortieth of a dataclass's time.

A command loads a hundred of their classes before it does anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import asdict, astuple, fields, replace

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options):
        """Return a decorator for the type checker alone."""
        return lambda cls: cls


__all__ = ["Value", "asdict", "astuple", "field", "fields", "replace"]


# It has a __dict__, for what is computed once and kept: functools.cached_property.
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value(Struct, frozen=True, dict=True):
    """A value; its fields are annotated in its class, as those of a dataclass are."""
