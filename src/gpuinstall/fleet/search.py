"""Which node, or which link, spoils an all-reduce: by what each says, else by halving the group. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.fleet.hostlist import compress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Nodes = tuple[str, ...]


@dataclass(frozen=True)
class GroupResult:
    """One try of a group: what went wrong by node (empty: nothing), and what is each node's own fault of that.

    ``gb_s`` is the bus bandwidth in GB/s.
    """

    wrong: Mapping[str, str]
    suspects: Mapping[str, str]
    gb_s: float | None = None


@dataclass(frozen=True)
class Culprit:
    """A node, or two nodes and what is between them."""

    nodes: Nodes
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Write it for the document."""
        return {"nodes": list(self.nodes), "why": self.why}


@dataclass(frozen=True)
class Findings:
    """The largest group that went well at last, with its bandwidth, and who spoiled the others."""

    good: Nodes
    culprits: tuple[Culprit, ...] = ()
    gb_s: float | None = None


def search(nodes: Nodes, run: Callable[[Nodes], GroupResult]) -> Findings:
    """Find who spoils a group; what is left is tried again, so that a name is a proof."""
    if len(nodes) < 2:
        return Findings(nodes)
    result = run(nodes)
    if not result.wrong:
        return Findings(nodes, gb_s=result.gb_s)
    if result.suspects:
        named = tuple(Culprit((node,), why) for node, why in result.suspects.items())
        rest = search(tuple(node for node in nodes if node not in result.suspects), run)
        return replace(rest, culprits=(*named, *rest.culprits))
    if len(nodes) == 2:
        return Findings((), (Culprit(nodes, next(iter(result.wrong.values()))),))
    return _halved(nodes, result, run)


def _halved(nodes: Nodes, result: GroupResult, run: Callable[[Nodes], GroupResult]) -> Findings:
    first, second = nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]
    found = [search(half, run) for half in (first, second)]
    good = tuple(node for half in found for node in half.good)
    culprits: list[Culprit] = []
    for culprit in (culprit for half in found for culprit in half.culprits):
        named, cleared = _narrowed(culprit, good, run)
        culprits += named
        good += cleared
    if culprits:
        rest = search(good, run)
        return replace(rest, culprits=(*culprits, *rest.culprits))
    one = _part(first, second, run)
    pair = one, _part(second, (one,), run)
    why = f"their link: {next(iter(result.wrong.values()))}"
    rest = search(tuple(node for node in nodes if node != pair[1]), run)
    return replace(rest, culprits=(Culprit(pair, why), *rest.culprits))


def _narrowed(culprit: Culprit, good: Nodes, run: Callable[[Nodes], GroupResult]) -> tuple[list[Culprit], Nodes]:
    """Try each of two nodes that fail together beside one that is good; return who is at fault, and who is not.

    Where both pass it is their link, and the first of them may stay.
    """
    if len(culprit.nodes) < 2 or not good or {*culprit.nodes} & {*good}:
        return [culprit], ()
    bad = [node for node in culprit.nodes if run((good[0], node)).wrong]
    if not bad:
        return [replace(culprit, why=f"their link: {culprit.why}")], culprit.nodes[:1]
    return [Culprit((node,), culprit.why) for node in bad], tuple(node for node in culprit.nodes if node not in bad)


def _part(wide: Nodes, other: Nodes, run: Callable[[Nodes], GroupResult]) -> str:
    """Two groups are good and not together: find the node of the first that does not go with the second."""
    while len(wide) > 1:
        half, rest = wide[: len(wide) // 2], wide[len(wide) // 2 :]
        wide = half if run((*half, *other)).wrong else rest
    return wide[0]


def result_of(nodes: Sequence[str], ranks: Mapping[str, Sequence[Mapping[str, Any]] | str]) -> GroupResult:
    """Read what the ranks of each node said; a node without a word, or with a reason instead, is a suspect.

    A rank that waited in vain is a victim: at fault is who died, stood still, or failed before it met the others.
    """
    wrong: dict[str, str] = {}
    suspects: dict[str, str] = {}
    speeds: list[float] = []
    for node in nodes:
        said = ranks.get(node, "it never answered")
        if isinstance(said, str):
            wrong[node] = suspects[node] = said
            continue
        for rank in said:
            if rank["status"] == "ok":
                speeds.append(rank["gb_s"])
                continue
            wrong[node] = f"rank {rank['rank']} {rank['status']}: {rank['message']}"
            if rank["status"] in {"died", "hung"} or rank["stage"] == "start":
                suspects[node] = wrong[node]
    if wrong and len(suspects) == len(nodes):
        suspects = {}
    return GroupResult(wrong, suspects, min(speeds, default=None) if not wrong else None)


def described(culprits: Sequence[Culprit]) -> str:
    """Name who spoiled it, for people."""
    return "; ".join(f"{compress(culprit.nodes)}: {culprit.why}" for culprit in culprits)
