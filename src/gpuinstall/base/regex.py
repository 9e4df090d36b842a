"""Regular expressions that are compiled when they are first used: a command uses few of those in its modules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

__all__ = ["regex"]

if TYPE_CHECKING:
    # Nothing differs for the code that uses one.
    from re import compile as regex
else:

    class regex:  # noqa: N801  it stands for re.compile
        """The methods of a compiled pattern, which is made for the first of them."""

        def __init__(self, *arguments: Any) -> None:
            self._arguments = arguments

        def __getattr__(self, name: str) -> Any:
            method = getattr(re.compile(*self._arguments), name)
            # From now on it is found without coming here.
            setattr(self, name, method)
            return method
