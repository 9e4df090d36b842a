"""Documents as values: each field is read by its type, or named with its place, and written as JSON has it.

A field may be a ``str``, an ``int`` from 0 up, a ``float``, a ``bool``, a ``dict`` or another Mapping, a tuple, one that may be
None, a class that parses a string, ``Annotated`` with a function that parses one, or a class of such fields.
A key that is null is missing: the field then has its default.
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
    """A field that is not what it must be: its place in the document, and what is wrong with it."""


def read_object(
    kind: type[_Value],
    body: object,
    place: str = "",
) -> _Value:
    """Return an object of a document as a value of a class, whose fields have the names of its keys.

    Args:
        kind: A NamedTuple or a Value.
        body: The object. Keys that are no fields are ignored.
        place: How it is reached from the document: ``"gpus[0]"``.

    Raises:
        MalformedError: It is no object, lacks a field, or has one of another type.
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
    """Return the part of a document at a place as a value of a type.

    Args:
        kind: The type, as a field is annotated with it.
        value: The part, as JSON or TOML has it.
        place: How it is reached from the document, for the message of a fault.

    Raises:
        MalformedError: It is of another type.
    """
    if kind in _NAMES:
        # Its very type: in Python, true is an integer.
        if type(value) is not kind:
            # Shortened: it may be a whole document of another kind.
            shown = reprlib.repr(value)
            raise MalformedError(f"{place} is {shown}, not {_NAMES[kind]}")
        # No document counts below zero, and a negative index would reach an item from behind.
        if kind is int and value < 0:  # type: ignore[operator]
            raise MalformedError(f"{place} is {value!r}, not a number from 0 up")
        return value
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        # A union of these documents is of one type and None.
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
    """Return a tuple, or a table, of values of one type.

    Args:
        origin: ``tuple``, or that of a table.
        arguments: The types of what is in it, as the annotation has them.
        value: The part, as JSON or TOML has it.
        place: How it is reached from the document.
    """
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


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a function that returns one of ``choices`` as it is, and raises ValueError for anything else."""

    def parse(text: str) -> str:
        if text in choices:
            return text
        raise ValueError(f"is {text!r}, not one of {', '.join(choices)}")

    return parse


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())


Words = Annotated[tuple[str, ...], words]
"""A text of words."""
WordSet = Annotated[frozenset[str], lambda text: frozenset(text.split())]
"""A text of words, in no order."""


def write_object(value: Any, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a value as the object that ``read_object`` reads.

    Args:
        value: A NamedTuple or a Value.
        optional: The fields that are left out if they are empty.
    """
    document = {}
    for name in _fields(value.__class__):
        field = getattr(value, name)
        if field or name not in optional:
            document[name] = write(field)
    return document


def write(value: Any) -> Any:
    """Return a value of a document as JSON has it."""
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


# A hundred rows of a table have one class, whose annotations are texts that have to be evaluated.
@cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return the types of a class's fields by their names, and whether a field is required."""
    if issubclass(kind, Value):
        return {field.name: (field.type, field.required) for field in fields(kind)}
    types = get_type_hints(kind, include_extras=True)
    return {name: (types[name], name not in kind._field_defaults) for name in types}
