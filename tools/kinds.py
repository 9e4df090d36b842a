"""Makes ``docs/evidence/kinds.md``: kinds of wrong answers, before the rules that mend them and after.

``tools/kinds.toml`` holds, for each kind, requests and what must hold of their locks, which was found without this
project's code. ``python -m tools.kinds RESULTS`` locks each with the source as it was and as it is, where the folder
has no result yet, with no wheel known beforehand.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tomli
from tests.lab.index import StandInIndex
from tests.lab.wheels import make_wheel

from tools.counted import TITLE
from tools.programs import stand_in_session
from tools.unseen import Case, KnownMachine, Outcome, Truth, Verdict, judge, lock, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "evidence" / "kinds.md"
DATA = Path(__file__).with_suffix(".toml")
BEFORE = "876ae297"
"""The last commit without any of the rules."""
LONGEST = 300
"""The letters of an answer that are shown."""
OF_THIS_PLACE = re.compile("can be installed only where|is unreachable")
"""Warnings that are about the stand-in, or a network that lacks a maker's page."""


class Example(NamedTuple):
    """A request of a kind, and how the truth about it is known."""

    case: Case
    source: str
    false: str
    """A pattern of sentences that are not true."""
    files: Sequence[str]
    """The wheels of a page that is named as a source of extensions."""

    @property
    def words(self) -> str:
        """The request as it is shown."""
        option = " --extension-source PAGE" if self.files else ""
        return f"`{self.case.request}{option}`"


class Kind(NamedTuple):
    """Wrong answers with one cause."""

    title: str
    examples: Sequence[Example]


class Answer(NamedTuple):
    """What an example came to with one commit."""

    outcome: Outcome
    verdict: str
    reason: str

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.verdict == Verdict.RIGHT.value


def read_kinds() -> list[Kind]:
    """Return the kinds with their examples."""
    document = tomli.loads(DATA.read_text(encoding="utf-8"))
    machines = {row["gpu"]: KnownMachine(**row) for row in document["machine"]}
    return [
        Kind(
            kind["title"],
            [
                Example(
                    Case(row["request"], machines[row["gpu"]], Truth(**row.get("truth", {}))),
                    row["source"],
                    row.get("false", ""),
                    row.get("files", ()),
                )
                for row in kind["example"]
            ],
        )
        for kind in document["kind"]
    ]


def answer_of(example: Example, outcome: Outcome) -> Answer:
    """Compare what came of an example with the truth, its sentences too."""
    judgement = judge(example.case, outcome)
    false = [line for line in outcome.lines if example.false and re.search(example.false, line)]
    if judgement.verdict is Verdict.RIGHT and false:
        return Answer(outcome, "right, with a false sentence", false[0])
    return Answer(outcome, judgement.verdict.value, judgement.reason)


def answer_in_words(example: Example, outcome: Outcome) -> str:
    """Return the versions that were locked and the first warning, or the refusal."""
    errors = [line for line in outcome.lines if line.startswith("error:")]
    if not outcome.versions:
        return _shortened(errors[0]) if errors else "no answer"
    truth = example.case.truth
    packages = [*example.case.packages, *truth.newest, *truth.needs, *truth.beside, "torch"]
    versions = [
        f"{name} {outcome.versions[name]}"
        for name in dict.fromkeys(packages)
        if name in outcome.versions
    ]
    warnings = [
        line
        for line in outcome.lines
        if line.startswith("warning:") and not OF_THIS_PLACE.search(line)
    ]
    said = _shortened(warnings[0]) if warnings else ""
    rest = f" (and {len(warnings) - 1} more)" if warnings[1:] else ""
    return "; ".join(filter(None, [", ".join(versions), said + rest]))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def page_of(
    kinds: Sequence[Kind], answers: Mapping[str, Sequence[Sequence[Answer]]]
) -> Iterator[str]:
    """Yield the lines below the introduction.

    Args:
        kinds: What was run.
        answers: For each commit, the answers to the examples of each kind.
    """
    yield "| kind | " + " | ".join(f"{name}: right" for name in answers) + " |"
    yield "|---|" + "---|" * len(answers)
    for number, kind in enumerate(kinds):
        counts = [sum(answer.is_right for answer in rows[number]) for rows in answers.values()]
        shown = " | ".join(f"{count} of {len(kind.examples)}" for count in counts)
        yield f"| {number + 1}. {kind.title} | {shown} |"
    for number, kind in enumerate(kinds):
        yield f"\n## {number + 1}. {kind.title}\n"
        yield "| request | machine | source | answer | read of wheels | lock | verdict |"
        yield "|---|---|---|---|---|---|---|"
        for position, example in enumerate(kind.examples):
            machine = example.case.machine
            for name, rows in answers.items():
                answer = rows[number][position]
                cells = [
                    example.words,
                    f"{machine.gpu}, {machine.driver}",
                    name,
                    answer_in_words(example, answer.outcome),
                    _reading(answer.outcome),
                    f"{answer.outcome.seconds:.0f} s",
                    ": ".join(filter(None, [answer.verdict, answer.reason])),
                ]
                yield "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"
        yield ""
        for example in kind.examples:
            yield f"- {example.words}: {example.source}"


def _reading(outcome: Outcome) -> str:
    amounts = [line.partition(TITLE)[2] for line in outcome.lines if line.startswith(TITLE)]
    return amounts[0] if amounts else "unknown"


@contextmanager
def page_of_files(package: str, names: Sequence[str]) -> Iterator[str]:
    """Serve empty wheels of a package under their maker's names; METADATA has the version without its label."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for filename in names:
            _, version, tags = filename.removesuffix(".whl").split("-", 2)
            wheel = make_wheel(folder / "whl" / "files", package, version.partition("+")[0], tags)
            wheel.rename(wheel.with_name(filename))
        with StandInIndex(folder) as index:
            yield f"{index.torch_index}/files/{package}/"


def answer_with(source: Path, example: Example, results: Path, torch_index: str) -> Answer:
    """Lock an example with the code of a folder, with an empty cache of wheels."""
    pages = page_of_files(example.case.packages[0], example.files)
    with tempfile.TemporaryDirectory() as cache, pages as page:
        variables = {"PYTHONPATH": f"{source / 'src'}:{ROOT}", "XDG_CACHE_HOME": cache}
        options = ["--extension-source", page] if example.files else []
        run_lock = partial(
            lock,
            torch_index=torch_index,
            module="tools.counted",
            more_options=options,
            more_variables=variables,
        )
        return answer_of(example, run(example.case, results, run_lock))


def _source_of(commit: str, folder: Path) -> None:
    archive = folder / "source.tar"
    subprocess.run(
        ["git", "archive", "--output", str(archive), commit, "src"], cwd=ROOT, check=True
    )
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")


def main() -> None:
    """Run what has no result yet, and write the page."""
    kinds = read_kinds()
    answers = {}
    with stand_in_session() as session, tempfile.TemporaryDirectory() as old:
        _source_of(BEFORE, Path(old))
        for name, source in (("before", Path(old)), ("after", ROOT)):
            results = Path(sys.argv[1]) / name
            results.mkdir(parents=True, exist_ok=True)
            index = session.sources.torch_index
            answers[name] = [
                [answer_with(source, example, results, index) for example in kind.examples]
                for kind in kinds
            ]
    # What is above the first table is written by hand.
    introduction = PAGE.read_text(encoding="utf-8").partition("\n| kind |")[0]
    lines = [introduction, *page_of(kinds, answers)]
    PAGE.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
