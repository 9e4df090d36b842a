"""The fields of a document that others wrote: each is read as what it must be, or named with its place in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

_Value = TypeVar("_Value")

_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    dict: "an object",
}


class MalformedError(ValueError):
    """A field that is not what it must be: its place in the document, and what is wrong with it."""


class Fields:
    """An object in a document. A field that is null is missing."""

    def __init__(
        self,
        body: object,
        place: str = "",
    ) -> None:
        """Take the object at a place.

        Args:
            body: The object.
            place: How it is reached from the document: ``"gpus[0]."``.

        Raises:
            MalformedError: It is no object.
        """
        if not isinstance(body, dict):
            if place:
                raise MalformedError(f"{place[:-1]} is not {_NAMES[dict]}")
            raise MalformedError("the document is not a JSON object")
        self.body: Mapping[str, Any] = body
        self.place = place

    def malformed(
        self,
        key: str,
        fault: str,
    ) -> MalformedError:
        """Return the error for a field."""
        return MalformedError(f"{self.place}{key} {fault}")

    def text(
        self,
        key: str,
        choices: tuple[str, ...] = (),
    ) -> str | None:
        """Return a string, one of ``choices`` if there are any."""
        value = self._of(key, str)
        if value is None or not choices:
            return value
        return self.required(key, choices)

    def required(
        self,
        key: str,
        choices: tuple[str, ...],
    ) -> str:
        """Return one of ``choices``, which may not be missing."""
        value = self.body.get(key)
        if value not in choices:
            expected = ", ".join(choices)
            raise self.malformed(key, f"is {value!r}, not one of {expected}")
        return str(value)

    def flag(self, key: str) -> bool | None:
        """Return true or false."""
        return self._of(key, bool)

    def number(self, key: str) -> int | None:
        """Return an integer from 0 up."""
        value = self._of(key, int)
        if value is None:
            return None
        return self._natural(value, key)

    def parsed(
        self,
        key: str,
        parse: Callable[[str], _Value],
    ) -> _Value | None:
        """Return a string as ``parse`` reads it, which raises ValueError if it cannot."""
        text = self._of(key, str)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            raise self.malformed(key, str(error)) from None

    def needed(
        self,
        key: str,
        parse: Callable[[str], _Value],
    ) -> _Value:
        """Return the same of a string which may not be missing."""
        value = self.parsed(key, parse)
        if value is None:
            raise self.malformed(key, "is missing")
        return value

    def fields(self, key: str) -> Fields | None:
        """Return an object."""
        value = self._of(key, dict)
        if value is None:
            return None
        return Fields(value, f"{self.place}{key}.")

    def items(self, key: str) -> list[Any]:
        """Return a list; an empty one if it is missing."""
        value = self.body.get(key)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        raise self.malformed(key, "is not a list")

    def each(self, key: str) -> Iterator[Fields]:
        """Yield the objects in a list."""
        for position, item in enumerate(self.items(key)):
            yield Fields(item, f"{self.place}{key}[{position}].")

    def numbers(self, key: str) -> tuple[int, ...]:
        """Return a list of integers from 0 up."""
        items = self.items(key)
        return tuple(self._natural(item, key) for item in items)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list, each item written as a string."""
        return tuple(map(str, self.items(key)))

    def _of(
        self,
        key: str,
        kind: type[_Value],
    ) -> _Value | None:
        value: _Value | None = self.body.get(key)
        # Its very type: in Python, true is an integer.
        if value is None or type(value) is kind:
            return value
        raise self.malformed(key, f"is {value!r}, not {_NAMES[kind]}")

    def _natural(
        self,
        value: object,
        key: str,
    ) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        raise self.malformed(key, f"is {value!r}, not a number from 0 up")
