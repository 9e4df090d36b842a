"""Lists of nodes, as schedulers write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.errors import UsageError
from gpuinstall.fleet.hostlist import chosen, compress, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("gpu[008-011]", ["gpu008", "gpu009", "gpu010", "gpu011"]),
        ("a,b2,c[1-2].x", ["a", "b2", "c1.x", "c2.x"]),
        ("rack1-node[1-2],login", ["rack1-node1", "rack1-node2", "login"]),
        ("n1,n1", ["n1"]),
        ("", []),
    ],
)
def test_a_list_is_read(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize(
    "text", ["n[1-", "n[a]", "n[1]]", "../x", "n[1-99999999]", "a b", ",,", "n[2-1"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        expand(text)


def test_names_that_differ_in_their_last_number_are_put_together() -> None:
    assert (
        compress(["n3", "n1", "n2", "m01", "m02", "login", "a1.x", "a2.x"])
        == "login,a[1-2].x,m[01-02],n[1-3]"
    )


@given(st.sets(st.from_regex(r"[a-z]{1,3}(-[a-z])?[0-9]{0,3}(\.x)?", fullmatch=True)))
def test_what_is_written_is_read_again(names: set[str]) -> None:
    assert set(expand(compress(names))) == names


def test_a_node_that_an_engine_does_not_have_is_named() -> None:
    assert chosen(["n2"], {"n1": "", "n2": "idle"}) == {"n2": "idle"}
    with pytest.raises(UsageError, match=r"no node n\[3-4\]"):
        chosen(["n3", "n4"], {"n1": ""})
