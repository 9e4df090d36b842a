"""Frozen dataclasses that cost little to make, for the values that every command loads.

For each class, the standard decorator writes six methods as text and compiles them; for the forty classes of ``plan``
that took a fourth of its time. Here nothing is compiled. A class is a dataclass in every other respect: ``fields``,
``replace``, ``asdict`` and ``match`` take it. ``__post_init__`` is not called, and a class that inherits from one of
these is made here too.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass"]

if TYPE_CHECKING:
    # Nothing differs for the code that uses such a class.
    from dataclasses import dataclass
else:

    def dataclass(*, frozen, eq=True):  # noqa: ARG001
        """Return the decorator.

        Args:
            frozen: Always true: for the reader and the type checker.
            eq: Whether values are compared by their fields.
        """

        def make(cls):
            own_methods = frozenset(vars(cls))
            cls = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
            methods = {
                "__init__": _initializer(cls),
                "__repr__": _repr,
                "__setattr__": _refuse_change,
                "__delattr__": _refuse_change,
            }
            if eq:
                methods |= _comparison(cls)
            for name, method in methods.items():
                if name not in own_methods:
                    setattr(cls, name, method)
            return cls

        return make


def _initializer(cls: type) -> Any:
    names = []
    defaults = {}
    factories = {}
    for field in dataclasses.fields(cls):
        names.append(field.name)
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default
        if field.default_factory is not dataclasses.MISSING:
            factories[field.name] = field.default_factory
    expected = frozenset(names)

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        # Past __setattr__, which refuses; all at once is also faster than one by one.
        values = self.__dict__
        if len(args) == len(names) and not kwargs:
            values.update(zip(names, args, strict=True))
            return
        values.update(defaults)
        values.update(zip(names, args, strict=False))
        values.update(kwargs)
        for name, make in factories.items():
            if name not in values:
                values[name] = make()
        if values.keys() != expected or len(args) > len(names):
            raise TypeError(f"{cls.__name__} takes {', '.join(names)}")

    return __init__


def _comparison(cls: type) -> dict[str, Any]:
    fields = [field for field in dataclasses.fields(cls) if field.compare]
    compared = attrgetter(*(field.name for field in fields))
    hashed = attrgetter(*(field.name for field in fields if field.hash is not False))

    def __eq__(self: object, other: object) -> Any:  # noqa: N807
        if type(other) is not type(self):
            return NotImplemented
        return compared(self) == compared(other)

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(hashed(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [field.name for field in dataclasses.fields(self) if field.repr]
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({fields})"


def _refuse_change(self: object, name: str, *_value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(
        f"cannot change {name!r} of a {type(self).__name__}"
    )
