import pytest

from tests.lab.shared import once


def test_what_could_not_be_made_is_made_anew_for_the_next_one(
    tmp_path_factory,
):
    def half(folder):
        folder.mkdir()
        pytest.skip("the second half needs the network")

    for _ in range(2):
        with pytest.raises(pytest.skip.Exception):
            once(tmp_path_factory, "half", half)
