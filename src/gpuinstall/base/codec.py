"""Read documents into typed values, and write them as JSON.

A field is a ``str``, a non-negative ``int``, a ``float``, a ``bool``, a Mapping, a
tuple, an optional one of these, a class with a ``parse`` method for strings,
``Annotated`` with such a function, or a class with such fields. A null is treated as
a missing key, so that the field has its default.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from gpuinstall.base.values import Value, fields

_Value = TypeVar("_Value")

_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


class MalformedError(ValueError):
    """Error for a field with a wrong type, with the position of the field."""


def read_object(
    kind: type[_Value],
    body: object,
    place: str = "",
) -> _Value:
    """Read a JSON object into a class with a field for each key.

    Args:
        kind: A NamedTuple or a Value.
        body: The object. Unknown keys are ignored.
        place: The position of the object in the document, such as ``"gpus[0]"``.

    Raises:
        MalformedError: The body is not an object, lacks a field, or has a wrong type.
    """
    if not isinstance(body, dict):
        raise MalformedError(f"{place or 'the document'} is not {_NAMES[dict]}")
    prefix = f"{place}." if place else ""
    values = {}
    for name, (annotation, is_required) in _fields(cast("Any", kind)).items():
        value = body.get(name)
        if value is not None:
            values[name] = read(annotation, value, prefix + name)
        elif is_required:
            raise MalformedError(f"{prefix}{name} is missing")
    return kind(**values)


def read(
    kind: Any,
    value: object,
    place: str,
) -> Any:
    """Convert a value of a JSON or TOML document to a type.

    Args:
        kind: The type, as in a field's annotation.
        value: The parsed JSON or TOML.
        place: The position of the value in the document, for errors.

    Raises:
        MalformedError: The value has another type.
    """
    if kind in _NAMES:
        # Do not use isinstance, because a bool is an int.
        if type(value) is not kind:
            shown = reprlib.repr(value)
            raise MalformedError(f"{place} is {shown}, not {_NAMES[kind]}")
        # Reject negative integers: a negative index would count from the end.
        if kind is int and value < 0:  # type: ignore[operator]
            raise MalformedError(f"{place} is {value!r}, not a non-negative integer")
        return value
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        # The only supported union is an optional type.
        (kind,) = (argument for argument in arguments if argument is not NoneType)
        return read(kind, value, place)
    if origin in (tuple, dict, Mapping):
        return _read_all(origin, arguments, value, place)
    parse = arguments[1] if origin is Annotated else getattr(kind, "parse", None)
    if parse:
        text = read(str, value, place)
        try:
            return parse(text)
        except ValueError as error:
            raise MalformedError(f"{place} {error}") from None
    if hasattr(kind, "from_document"):
        return kind.from_document(value, place)
    return read_object(kind, value, place)


def _read_all(
    origin: Any,
    arguments: Any,
    value: object,
    place: str,
) -> Any:
    """Read a tuple or a mapping whose items have the types ``arguments``."""
    if origin is tuple:
        items = read(list, value, place)
        return tuple(
            read(arguments[0], item, f"{place}[{n}]") for n, item in enumerate(items)
        )
    table = read(dict, value, place)
    if arguments[1] is Any:
        return table
    key_of = getattr(arguments[0], "parse", arguments[0])
    return {
        key_of(key): read(arguments[1], item, f"{place}.{key}")
        for key, item in table.items()
    }


def create_choice_parser(*choices: str) -> Callable[[str], str]:
    """Return a parser that accepts only the given strings."""

    def parse(text: str) -> str:
        if text in choices:
            return text
        raise ValueError(f"is {text!r}, not one of {', '.join(choices)}")

    return parse


def words(text: str) -> tuple[str, ...]:
    """Split text at whitespace."""
    return tuple(text.split())


Words = Annotated[tuple[str, ...], words]
"""Type of a field with words separated by spaces."""
WordSet = Annotated[frozenset[str], lambda text: frozenset(text.split())]
"""Type of a field with words separated by spaces, in any order."""


def write_object(value: Any, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a value as a JSON object, for ``read_object``.

    Args:
        value: A NamedTuple or a Value.
        optional: The fields to omit if empty.
    """
    document = {}
    for name in _fields(value.__class__):
        field = getattr(value, name)
        if field or name not in optional:
            document[name] = write(field)
    return document


def write(value: Any) -> Any:
    """Convert a field's value to JSON types."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "parse"):
        return str(value)
    if type(value) is tuple:
        return list(map(write, value))
    return write_object(value)


# Evaluating the annotations, which are strings, is slow for every row of a table.
@cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return the type of each field of a class, and whether it is required."""
    if issubclass(kind, Value):
        return {field.name: (field.type, field.required) for field in fields(kind)}
    types = get_type_hints(kind, include_extras=True)
    return {name: (types[name], name not in kind._field_defaults) for name in types}
