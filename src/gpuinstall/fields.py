"""The fields of a document somebody else wrote: each is read as what it must be, or named with its place in it."""

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
    """An object in a document; ``place`` is how it is reached, ``"gpus[0]."``. A field that is null is missing."""

    def __init__(self, body: object, place: str = "") -> None:
        if not isinstance(body, dict):
            raise MalformedError(
                f"{place[:-1] or 'the document'} is not {_NAMES[dict] if place else 'a JSON object'}"
            )
        self.body: Mapping[str, Any] = body
        self.place = place

    def malformed(self, key: str, fault: str) -> MalformedError:
        """Make the error for a field."""
        return MalformedError(f"{self.place}{key} {fault}")

    def text(self, key: str, choices: tuple[str, ...] = ()) -> str | None:
        """A string, one of ``choices`` where there are any."""
        value = self._of(key, str)
        if choices and value is not None and value not in choices:
            raise self.malformed(key, f"is {value!r}, not one of {', '.join(choices)}")
        return value

    def required(self, key: str, choices: tuple[str, ...]) -> str:
        """One of ``choices``, which may not be missing."""
        value = self.body.get(key)
        if value not in choices:
            raise self.malformed(key, f"is {value!r}, not one of {', '.join(choices)}")
        return str(value)

    def flag(self, key: str) -> bool | None:
        """True or false."""
        return self._of(key, bool)

    def number(self, key: str) -> int | None:
        """An integer from 0 up."""
        value = self._of(key, int)
        return None if value is None else self._natural(value, key)

    def parsed(self, key: str, parse: Callable[[str], _Value]) -> _Value | None:
        """A string that ``parse`` reads; it raises ValueError where it cannot."""
        text = self._of(key, str)
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise self.malformed(key, str(error)) from None

    def needed(self, key: str, parse: Callable[[str], _Value]) -> _Value:
        """The same, which may not be missing."""
        value = self.parsed(key, parse)
        if value is None:
            raise self.malformed(key, "is missing")
        return value

    def quantity(self, key: str) -> float | None:
        """A number from 0 up, whole or not."""
        value = self.body.get(key)
        if value is not None and (type(value) not in {int, float} or not 0 <= value < float("inf")):
            raise self.malformed(key, f"is {value!r}, not a number from 0 up")
        return value

    def fields(self, key: str) -> Fields | None:
        """An object."""
        value = self._of(key, dict)
        return None if value is None else Fields(value, f"{self.place}{key}.")

    def items(self, key: str) -> list[Any]:
        """A list; an empty one where it is missing."""
        value = self.body.get(key)
        if value is not None and not isinstance(value, list):
            raise self.malformed(key, "is not a list")
        return value or []

    def each(self, key: str) -> Iterator[Fields]:
        """The objects in a list."""
        return (Fields(item, f"{self.place}{key}[{i}].") for i, item in enumerate(self.items(key)))

    def numbers(self, key: str) -> tuple[int, ...]:
        """A list of integers from 0 up."""
        return tuple(self._natural(item, key) for item in self.items(key))

    def each_parsed(self, key: str, parse: Callable[[object], _Value]) -> tuple[_Value, ...]:
        """A list, each item as ``parse`` reads it; it raises ValueError where it cannot."""
        values: list[_Value] = []
        items = self.items(key)
        try:
            values.extend(map(parse, items))
        except ValueError as error:
            raise self.malformed(f"{key}[{len(values)}]", str(error)) from None
        return tuple(values)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list, each item written as a string."""
        return tuple(map(str, self.items(key)))

    def _of(self, key: str, kind: type[_Value]) -> _Value | None:
        value = self.body.get(key)
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.malformed(key, f"is {value!r}, not {_NAMES[kind]}")
        return value

    def _natural(self, value: object, key: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.malformed(key, f"is {value!r}, not a number from 0 up")
        return value
