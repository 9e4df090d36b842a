"""Values: frozen dataclasses whose methods are not compiled."""

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from functools import cached_property

import pytest

from gpuinstall.base.values import dataclass


@dataclass(frozen=True)
class Card:
    """A card for a test."""

    name: str
    memory: int = 24
    notes: list[str] = field(default_factory=list, compare=False, repr=False)

    @cached_property
    def label(self):
        """Its name and memory."""
        return f"{self.name} {self.memory} GB"


@dataclass(frozen=True)
class Board:
    """A board for a test."""

    name: str
    parts: dict[int, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, eq=False)
class Slot:
    """A slot for a test."""

    number: int


def test_fields_are_given_by_place_name_or_default():
    card = Card("A100", memory=80)

    assert (card.name, card.memory, card.notes) == ("A100", 80, [])
    assert Card("L4").memory == 24
    assert Card("L4").notes is not Card("L4").notes


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), (("L4",), {"cores": 1}), (("L4", 24, [], 1), {}), ((), {"nmae": "L4"})],
)
def test_other_fields_are_refused(args, kwargs):
    with pytest.raises(TypeError, match="Card takes name, memory, notes"):
        Card(*args, **kwargs)


def test_a_value_cannot_be_changed():
    card = Card("L4")

    with pytest.raises(FrozenInstanceError):
        card.name = "A100"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del card.name
    assert card.name == "L4"


def test_values_are_equal_by_the_fields_that_are_compared():
    assert Card("L4") == Card("L4", notes=["worn"])
    assert hash(Card("L4")) == hash(Card("L4", notes=["worn"]))
    others = [Card("L4", 48), Slot(24), None]
    assert Card("L4") not in others


def test_a_field_that_cannot_be_hashed_is_left_out():
    assert hash(Board("A", {1: "fan"})) == hash(Board("A"))
    assert Board("A", {1: "fan"}) != Board("A")


def test_what_takes_a_dataclass_takes_a_value():
    card = Card("L4")

    assert [one.name for one in fields(card)] == ["name", "memory", "notes"]
    assert replace(card, memory=48) == Card("L4", 48)
    assert asdict(card) == {"name": "L4", "memory": 24, "notes": []}
    assert pickle.loads(pickle.dumps(card)) == card  # noqa: S301
    assert copy.deepcopy(card) == card
    match card:
        case Card(name, memory):
            assert (name, memory) == ("L4", 24)
