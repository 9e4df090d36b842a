"""Remove patterns that no text needs: ``python -m tools.prune [--write]``.

Each item (a sign, a pattern of a circumstance or observation, or a consequence) is removed if no answer changes. The
answers are those to the labeled texts in ``tests/data/logs``, their single lines, and random windows of them. Half of
the sources select the removals. An item is kept if the other half, or ``held-out.toml``, would lose a right answer.

These items are always kept: literal messages, conditions that a machine can fulfill, and consequences of problems
that ``doctor`` finds.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import tomli
from tests.unit.plan import machines

from gpuinstall.base.machine import Environment, Machine
from gpuinstall.base.values import replace
from gpuinstall.catalog.failures import classify, table
from gpuinstall.catalog.failures.transcript import Passage, TextLines, Transcript
from gpuinstall.diagnose.explanation import library_placeholders

LOGS = Path("tests/data/logs")
HERE = Machine("linux", "x86_64", distribution="Ubuntu 22.04")
_machine: Callable[..., Machine] = machines.machine
_jetson: Callable[..., Machine] = machines.jetson
MACHINES: list[Machine] = [
    _machine(driver=None, environment=Environment(container="docker")),
    _machine(
        "RTX 4090", driver="580.95.05", cuda="13.0", environment=Environment(wsl=True)
    ),
    _machine("RTX 5090", driver="570.86", cuda="12.8"),
    _machine("GTX 1080", driver="590.48.01"),
    _machine("RTX 4090", "GTX 1080", driver="535.183.01", cuda="12.2"),
    _machine("A100", driver="525.60.13", cuda="12.0", os="windows"),
    _machine("H100", driver="580.95.05", cuda="13.0", arch="aarch64"),
    _jetson("Orin", "36.4.0", driver=None),
    Machine("macos", "arm64"),
]
SHORTEST_MESSAGE = 24
"""The minimum length of a literal that is a program's own message."""
PACKAGES = (LOGS / "healthy-packages.txt").read_text("utf-8")
WINDOW = 6
# Circumstances that explanations of a machine add: see diagnose/explanation.py.
OF_MACHINE = {"gfx-override", "devices-hidden", "same-cuda-major", "other-cuda-major"}


class Label(NamedTuple):
    """A text with its right answers."""

    text: str
    right: tuple[str | None, ...] | None
    """The right first causes; None for a part of a text."""
    is_fitted: bool
    names: bool = False
    """Whether the names of observations must not change."""
    machine: Machine | None = None


def read_labels() -> Iterator[Label]:
    """Yield all labeled texts, and their parts."""
    sources = [*_read_rows(), *_read_logs()]
    yield from sources
    for row in tomli.loads((LOGS / "held-out.toml").read_text("utf-8"))["text"]:
        entries = (row["is"], *row.get("also", ()))
        right = tuple(None if entry == "none" else entry for entry in entries)
        yield Label(row["says"], right, is_fitted=False)
    sentences = dict.fromkeys(_read_sentences())
    parts = {**sentences, **dict.fromkeys(_read_parts(sources))}
    for text in parts:
        yield Label(text, None, is_fitted=True, names=text in sentences)
    messages = [
        text for failure in table.load_failures().values() for text in failure.messages
    ]
    for known, text in product([None, *MACHINES], messages):
        yield Label(text, None, is_fitted=True, machine=known)


def _read_rows() -> Iterator[Label]:
    """Yield the texts of TOML files that patterns were derived from."""
    for name in ("variants", "wordings", "counterparts"):
        document = tomli.loads((LOGS / f"{name}.toml").read_text("utf-8"))
        for entry, texts in document.items():
            right = None if name == "counterparts" or entry == "none" else entry
            for text in [texts] if isinstance(texts, str) else texts:
                yield _label(text, right)
    for row in tomli.loads((LOGS / "kinds.toml").read_text("utf-8"))["text"]:
        yield Label(row["says"], (row.get("is"),), is_fitted=True)


def _read_logs() -> Iterator[Label]:
    """Yield the logs, also with wrapped lines, and lines without a failure."""
    for path in sorted(LOGS.glob("*.txt")):
        text = path.read_text("utf-8")
        if path.stem.startswith("F"):
            yield _label(text, path.stem)
            wrapped = re.sub(r"([^\n\\]{60,}?[^:]) (?=\S)", r"\1\n", text)
            yield _label(wrapped, path.stem)
            yield _label(PACKAGES + text, path.stem)
            yield _label(f"{text}\n{PACKAGES}", path.stem)
            continue
        yield _label(text, None)
        yield _label(re.sub(r"(.{80})(?=.)", r"\1\n", text), None)
        for line in text.splitlines():
            yield _label(line, None)


def _read_parts(sources: list[Label]) -> Iterator[str]:
    """Yield the single lines and a random window of each fitted text."""
    chance = random.Random(1)  # noqa: S311  anyone draws the same
    for label in sources:
        lines = label.text.splitlines()
        if len(lines) > 1 and label.is_fitted:
            yield from filter(str.strip, lines)
            start = chance.randrange(len(lines))
            yield "\n".join(lines[start : start + WINDOW])


def _label(text: str, entry: str | None) -> Label:
    # No removal may accuse a text without a failure.
    is_fitted = entry is None or crc32(text.encode()) % 2 == 0
    return Label(text, (entry,), is_fitted)


def _read_sentences() -> Iterator[str]:
    """Yield the generated wordings of observations."""
    said = tomli.loads((LOGS / "observations.toml").read_text("utf-8"))
    for kinds in said["about"].values():
        for kind, values in kinds.items():
            for wording in said["wordings"][kind]:
                yield from (wording.replace("$it", value) for value in values)
    for part in chain(said["sentences"].values(), (said["memory"]["texts"],)):
        yield from part


class Recorded(Transcript):
    """A transcript that records its matches."""

    def __init__(
        self, text: str, of_text: set[table.Pattern], of_messages: set[table.Pattern]
    ) -> None:
        super().__init__(text)
        self.found = {
            each: found
            for each in of_text
            if (found := (*super(Recorded, self).passages(each),))
        }
        self.said = Said(super().messages, of_messages)

    @property
    def messages(self) -> Said:  # type: ignore[override]
        """The recorded matches in messages."""
        return self.said

    def find(self, pattern: table.Pattern) -> Passage | None:
        """Return the first recorded match."""
        found = self.found.get(pattern)
        return found[0] if found else None


class Said:
    """Recorded matches in the lines of a text that are messages."""

    def __init__(self, lines: TextLines, patterns: set[table.Pattern]) -> None:
        self.lines = lines
        self.found = {
            each: found for each in patterns if (found := (*lines.passages(each),))
        }

    def find(self, pattern: table.Pattern) -> Passage | None:
        """Return the first recorded match."""
        found = self.found.get(pattern)
        return found[0] if found else None

    def passages(self, pattern: table.Pattern) -> tuple[Passage, ...]:
        """Return all recorded matches."""
        return self.found.get(pattern, ())


Answer = tuple[Any, ...]
Undo = Callable[[], None]


class Judged:
    """A labeled text with its present answer."""

    def __init__(self, label: Label, transcript: Recorded) -> None:
        self.label = label
        self.transcript = transcript
        self.known = classify.known_of(label.machine) if label.machine else ()
        self.is_whole = label.right is not None
        self.answer: Answer = ()

    def judge(self) -> Answer:
        """Return the causes, and the details of the first."""
        circumstances = classify.Circumstances(self.transcript, self.known)
        failures, lookalikes = table.load_failures(), table.load_lookalikes()
        matches = classify.rank(classify.find_matches(failures, circumstances))
        others = classify.find_matches(lookalikes, circumstances)
        names = tuple(sorted({seen.name for seen in circumstances.observations}))
        first: tuple[Any, ...] = ()
        if self.is_whole:
            words = (
                library_placeholders(matches[0], circumstances, {}) if matches else {}
            )
            found = classify.causes_of(matches, circumstances, HERE, words)[:1]
            found += classify.causes_of(others, circumstances, HERE)
            first = tuple((cause.is_certain, cause.why, cause.fix) for cause in found)
        elif matches:
            first = (len(matches) == 1 and circumstances.confirm(matches[0]),)
        causes = tuple(match.failure.id for match in matches[:3])
        return (causes, first, tuple(match.failure.id for match in others), names)

    def accepts(self, answer: Answer) -> bool:
        """Return whether an answer may replace the present one."""
        if self.label.is_fitted:
            count = 4 if self.label.names else 3
            return answer[:count] == self.answer[:count]
        causes, first, *_ = answer
        if (causes[0] if causes else None) in (self.label.right or ()):
            return True
        # A wrong answer may remain, but not become certain.
        was_certain = [cause[0] for cause in self.answer[1][:1]]
        return (
            causes == self.answer[0]
            and [cause[0] for cause in first[:1]] == was_certain
        )


class Tables:
    """The rows of the table of failures, from which items are removed."""

    def __init__(self) -> None:
        self.failures = dict(table.load_failures())
        self.lookalikes = dict(table.load_lookalikes())
        self.circumstances = {
            name: list(each) for name, each in table.load_circumstances().items()
        }
        self.kinds = list(table.load_kinds())
        self.readings = list(table.load_readings())
        table.load_failures = lambda: self.failures  # type: ignore[assignment]
        table.load_lookalikes = lambda: self.lookalikes  # type: ignore[assignment]
        table.load_circumstances = lambda: self.circumstances  # type: ignore[assignment]
        table.load_kinds = lambda: self.kinds  # type: ignore[assignment]
        table.load_readings = lambda: self.readings  # type: ignore[assignment]

    @property
    def all_failures(self) -> list[table.Failure]:
        """All failures, and similar errors."""
        return [*self.failures.values(), *self.lookalikes.values()]

    def of_text(self) -> set[table.Pattern]:
        """Return the patterns that are searched in whole texts."""
        runs = {
            sign.runs
            for failure in self.all_failures
            for sign in failure.signs
            if sign.runs
        }
        readings = {row.says for row in self.readings}
        return runs | readings | {*chain(*self.circumstances.values())}

    def of_messages(self) -> set[table.Pattern]:
        """Return the patterns that are searched in messages."""
        says = {
            sign.says
            for failure in self.all_failures
            for sign in failure.signs
            if sign.says
        }
        return says | {*chain(*(kind.says for kind in self.kinds))} | {classify.ERROR}

    def set_failure(self, failure: table.Failure) -> None:
        """Replace a failure."""
        rows = self.failures if failure.id in self.failures else self.lookalikes
        rows[failure.id] = failure


def is_message(says: str) -> bool:
    """Return whether a pattern contains a literal message of a program."""
    literal = re.sub(r"\[[^\]]*\]|\\.|\.\S|[?*+…]|\{[^}]*\}|<[a-z-]+>", "\0", says)
    longest = max(re.split(r"[\0()|^$]", literal), key=len).strip()
    return len(longest) >= SHORTEST_MESSAGE and longest.count(" ") >= 2


class Pruner:
    """The removal of items, one at a time."""

    def __init__(self) -> None:
        self.tables = Tables()
        self.raw = [
            list(row["says"]) for row in table.read_table("observations")["observation"]
        ]
        self.removed = Counter[str]()
        of_text, of_messages = self.tables.of_text(), self.tables.of_messages()
        transcripts: dict[str, Recorded] = {}
        self.texts = []
        for label in read_labels():
            if label.text not in transcripts:
                transcripts[label.text] = Recorded(label.text, of_text, of_messages)
            self.texts.append(Judged(label, transcripts[label.text]))
        self.in_text: dict[table.Pattern, list[Judged]] = defaultdict(list)
        self.in_messages: dict[table.Pattern, list[Judged]] = defaultdict(list)
        self.named: dict[str, set[int]] = defaultdict(set)
        for number, text in enumerate(self.texts):
            text.answer = text.judge()
            for pattern in text.transcript.found:
                self.in_text[pattern].append(text)
            for pattern in text.transcript.said.found:
                self.in_messages[pattern].append(text)
            for name in text.answer[3]:
                self.named[name].add(number)

    def attempt(self, kind: str, affected: list[Judged], undo: Undo) -> bool:
        """Keep a removal if every affected text accepts its new answer."""
        answers = []
        for text in affected:
            answer = text.judge()
            if not text.accepts(answer):
                undo()
                return False
            answers.append((text, answer))
        for text, answer in answers:
            text.answer = answer
        self.removed[kind] += 1
        return True

    def prune(self) -> Iterator[str]:
        """Remove all items that no text needs, and yield each kind of item."""
        entries = [failure.id for failure in self.tables.all_failures]
        for entry in entries:
            self.prune_signs(entry)
        yield "signs"
        self.prune_circumstances()
        yield "circumstances"
        self.prune_observations()
        yield "observations"
        for entry in entries:
            self.prune_consequences(entry)
        yield "consequences"

    def failure(self, entry: str) -> table.Failure:
        """Return the present row of a failure."""
        return {**self.tables.failures, **self.tables.lookalikes}[entry]

    def located(self, sign: table.Sign) -> list[Judged]:
        """Return the texts with a sign."""
        if sign.says:
            return self.in_messages.get(sign.says, [])
        if sign.runs:
            return self.in_text.get(sign.runs, [])
        numbers = {
            number
            for name, found in self.named.items()
            if sign.sees and sign.sees.fullmatch(name)
            for number in found
        }
        return [self.texts[number] for number in sorted(numbers)]

    def change(
        self, kind: str, failure: table.Failure, affected: list[Judged], **parts: Any
    ) -> bool:
        """Attempt to replace fields of a failure."""
        self.tables.set_failure(replace(failure, **parts))
        return self.attempt(kind, affected, lambda: self.tables.set_failure(failure))

    def prune_signs(self, entry: str) -> None:
        """Remove signs of a failure. At least one remains."""
        signs = self.failure(entry).signs
        for sign in sorted(signs, key=lambda sign: len(self.located(sign))):
            failure = self.failure(entry)
            others = tuple(each for each in failure.signs if each is not sign)
            if others and not (sign.says and is_message(sign.says.says)):
                self.change("sign", failure, self.located(sign), signs=others)

    def prune_consequences(self, entry: str) -> None:
        """Remove consequences of a failure."""
        # doctor uses the consequences of its own problems.
        if self.failure(entry).problems:
            return
        for name in self.failure(entry).consequences:
            failure = self.failure(entry)
            others = {id(text) for text in self.located_failure(name)}
            both = [text for text in self.located_failure(entry) if id(text) in others]
            consequences = tuple(each for each in failure.consequences if each != name)
            self.change("consequence", failure, both, consequences=consequences)

    def located_failure(self, entry: str) -> list[Judged]:
        """Return the texts with a sign of a failure."""
        return [
            text for sign in self.failure(entry).signs for text in self.located(sign)
        ]

    def prune_circumstances(self) -> None:
        """Remove patterns of circumstances."""
        machine_names = set(chain(*map(classify.known_of, MACHINES))) | OF_MACHINE
        machine_names.update(
            chain(
                *(row["holds"] for row in table.read_table("circumstances")["machine"])
            )
        )
        machine_names.update(classify.ORIGINS, classify.OTHER_VENDORS)
        for name, patterns in self.tables.circumstances.items():
            least = name in machine_names
            for pattern in sorted(
                patterns, key=lambda each: len(self.in_text.get(each, ()))
            ):
                index = patterns.index(pattern)
                if not is_message(pattern.says) and len(patterns) > least:
                    present = [*patterns]
                    del patterns[index]
                    undo = partial(_restore, patterns, present)
                    self.attempt("circumstance", self.unheld(name, pattern), undo)

    def unheld(self, name: str, pattern: table.Pattern) -> list[Judged]:
        """Return texts that only this pattern of a circumstance matches."""
        others = self.tables.circumstances[name]
        return [
            text
            for text in self.in_text.get(pattern, ())
            if not any(map(text.transcript.find, others))
        ]

    def prune_observations(self) -> None:
        """Remove patterns of observations."""
        for number, kind in enumerate(self.tables.kinds):
            for pattern in sorted(
                kind.says, key=lambda each: len(self.in_messages.get(each, ()))
            ):
                present = self.tables.kinds[number]
                index = present.says.index(pattern)
                says = (*present.says[:index], *present.says[index + 1 :])
                if not says or is_message(self.raw[number][index]):
                    continue
                affected = self.in_messages.get(pattern, [])
                if self.change_kind(
                    "observation", number, replace(present, says=says), affected
                ):
                    del self.raw[number][index]

    def change_kind(
        self, kind: str, number: int, row: table.ObservationKind, affected: list[Judged]
    ) -> bool:
        """Attempt to replace a kind of observation."""
        present = self.tables.kinds[number]
        self.tables.kinds[number] = row

        def undo() -> None:
            self.tables.kinds[number] = present

        return self.attempt(kind, affected, undo)


def _restore(rows: list[Any], present: list[Any]) -> None:
    rows[:] = present


def write(pruner: Pruner) -> None:
    """Write the remaining items to the TOML files."""
    tables = pruner.tables
    gone = {name for name, patterns in tables.circumstances.items() if not patterns}
    for name in (*table.GROUPS, "lookalikes"):
        _rewrite(name, "failure", lambda block: _format_failure(block, pruner, gone))
    kinds = iter(pruner.raw)
    _rewrite(
        "observations", "observation", lambda block: _format_kind(block, next(kinds))
    )
    path = table.DATA / "circumstances.toml"
    text = path.read_text("utf-8")
    for name, patterns in tables.circumstances.items():
        line = f"{name} = {_array(_quoted(each.says) for each in patterns)}\n"
        text = _replace_row(text, name, line if patterns else "")
    path.write_text(text, "utf-8")


def _replace_row(text: str, key: str, line: str) -> str:
    """Replace a key with an array, of which the last line ends with ``]``."""
    row = rf"(?ms)^{key} = \[(?:\n.*?^\]|[^\n]*\])\n"
    return re.sub(row, lambda _: line, text, count=1)


def _rewrite(file: str, kind: str, convert: Callable[[str], str]) -> None:
    """Convert each row of a TOML file."""
    path = table.DATA / f"{file}.toml"
    head, *blocks = re.split(rf"(?m)^(?=\[\[{kind}\]\]$)", path.read_text("utf-8"))
    path.write_text("".join((head, *map(convert, blocks))), "utf-8")


def _format_failure(block: str, pruner: Pruner, gone: set[str]) -> str:
    """Return the row of a failure with its remaining signs and references."""
    failure = pruner.failure(tomli.loads(block)["failure"][0]["id"])
    lines = [
        _format_sign(sign, gone) for sign in failure.signs if gone.isdisjoint(sign.when)
    ]
    signs = "signs = [\n" + "".join(f"  {line},\n" for line in lines) + "]\n"
    block = _replace_row(block, "signs", signs)
    for key in ("unless", "consequences"):
        names = [name for name in getattr(failure, key) if name not in gone]
        row = f"{key} = {_array(map(json.dumps, names))}\n" if names else ""
        block = _replace_row(block, key, row)
    # Without its circumstance, a row for a subject is never selected.
    for name in gone:
        block = re.sub(rf"(?m)^(fix|why)\.{name} = .*\n", "", block)
    return block


def _format_sign(sign: table.Sign, gone: set[str]) -> str:
    values = {
        "says": sign.says and _quoted(sign.says.says),
        "runs": sign.runs and _quoted(sign.runs.says),
        "sees": sign.sees and _quoted(sign.sees.pattern),
        "weight": str(sign.weight),
    }
    when = [name for name in sign.when if name.removeprefix("!") not in gone]
    if when:
        values["when"] = _array(map(json.dumps, when))
    return (
        "{ "
        + ", ".join(f"{key} = {value}" for key, value in values.items() if value)
        + " }"
    )


def _format_kind(block: str, raw: list[str]) -> str:
    """Return the row of an observation with its remaining patterns."""
    lines = "".join(f"  {_quoted(says)},\n" for says in raw)
    return _replace_row(block, "says", f"says = [\n{lines}]\n")


def _array(items: Iterable[str]) -> str:
    return f"[{', '.join(items)}]"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if "'" in text else f"'{text}'"


def main(arguments: list[str]) -> None:
    """Print how many items of each kind no text needs, and remove them."""
    pruner = Pruner()
    for _ in pruner.prune():
        sys.stdout.write(f"{dict(pruner.removed)}\n")
    if arguments == ["--write"]:
        write(pruner)


if __name__ == "__main__":
    main(sys.argv[1:])
