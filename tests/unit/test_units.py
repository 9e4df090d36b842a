"""Numbers as people write them."""

from gpuinstall.base.units import number_of


def test_one_of_a_thing_is_no_plural():
    numbers = [number_of(count, "package") for count in (0, 1, 2)]
    assert numbers == ["0 packages", "1 package", "2 packages"]
