"""Remove unneeded items of ``explain``: ``python -m tools.prune [--write]``.

An item is a sign, an alternative in its pattern, its condition, a refuting condition, a pattern or value of a
condition, or a fix for a subject. It is removed if no first answer changes, and no certainty. The answers are those to
the labeled texts in ``tests/data/logs``, their single lines, and random windows of them. Half of the sources select
the removals. An item is kept if the other half, or ``held-out.toml``, would lose a right answer.

Literal messages of programs are always kept, and conditions that a machine can fulfill.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import tomli
from tests.unit.plan import machines

from gpuinstall.base.codec import read_object
from gpuinstall.base.machine import Environment, Machine
from gpuinstall.base.values import replace
from gpuinstall.catalog.failures import classify, problems, table
from gpuinstall.catalog.failures.transcript import Passage, TextLines, Transcript
from gpuinstall.diagnose import explanation, predicates
from gpuinstall.diagnose.reading import LocalReading

LOGS = Path("tests/data/logs")
HERE = Machine("linux", "x86_64", distribution="Ubuntu 22.04")
_machine: Callable[..., Machine] = machines.machine
_jetson: Callable[..., Machine] = machines.jetson
MACHINES: list[Machine] = [
    _machine(driver=None, environment=Environment(container="docker")),
    _machine("RTX 4090", driver="580.95.05", environment=Environment(wsl=True)),
    _machine("RTX 5090", driver="570.86", cuda="12.8"),
    _machine("GTX 1080", driver="590.48.01"),
    _machine("RTX 4090", "GTX 1080", driver="535.183.01", cuda="12.2"),
    _machine("A100", driver="525.60.13", cuda="12.0", os="windows"),
    _machine("H100", driver="580.95.05", cuda="13.0", arch="aarch64"),
    _jetson("Orin", "36.4.0", driver=None),
    Machine("macos", "arm64"),
]
READINGS = [LocalReading(each, Path("absent"), environ={}) for each in MACHINES]
# Conditions that a machine can fulfill: see diagnose/explanation.py.
OF_MACHINE = {"gfx-override", "devices-hidden", "same-cuda-major", "other-cuda-major"}
OF_MACHINE.update(chain.from_iterable(map(classify.known_of, MACHINES)))
OF_MACHINE.update([f"!{name}" for name in OF_MACHINE])
FACTS: dict[tuple[str, int], predicates.LocalFact | None] = {}
PLATFORMS = {"jetson", "macos", "windows", "wsl"}
# Keys of fixes that the probe selects: see machine/symptoms.toml.
OF_PROBE = {"several-blackwells", "fabric-in-progress", "cuda 34", "cuda 805"}
SHORTEST_MESSAGE = 24
"""The minimum length of a literal that is a program's own message."""
WINDOW = 6

FILES = (*table.GROUPS, "lookalikes")
OF_FAILURE = {"group": "", "date": ""}
Row = dict[str, Any]


class Label(NamedTuple):
    """A text with its right answers."""

    text: str
    right: tuple[str | None, ...] | None = None
    """The right first causes; None for a part of a text."""
    is_fitted: bool = True
    here: LocalReading | None = None
    """The machine that printed the text, if known."""


def read_labels() -> Iterator[Label]:
    """Yield all labeled texts, and their parts."""
    sources = [*_read_sources()]
    yield from sources
    for row in tomli.loads((LOGS / "held-out.toml").read_text("utf-8"))["text"]:
        right = tuple(_cause(entry) for entry in (row["is"], *row.get("also", ())))
        yield Label(row["says"], right, is_fitted=False)
    yield from map(Label, dict.fromkeys(_read_parts(sources)))
    failures = table.load_failures().values()
    messages = chain.from_iterable(failure.messages for failure in failures)
    for text, here in product(messages, [None, *READINGS]):
        yield Label(text, here=here)


def _cause(entry: str) -> str | None:
    return entry if re.fullmatch(r"F\d+", entry) else None


def _read_sources() -> Iterator[Label]:
    """Yield the texts that patterns were derived from, and healthy ones."""
    for name in ("variants", "wordings", "counterparts"):
        for key, texts in tomli.loads((LOGS / f"{name}.toml").read_text()).items():
            for text in [texts] if isinstance(texts, str) else texts:
                yield _label(text, _cause(key) if name != "counterparts" else None)
    for row in tomli.loads((LOGS / "kinds.toml").read_text("utf-8"))["text"]:
        yield Label(row["says"], (row.get("is"),))
    for path in sorted(LOGS.glob("*.txt")):
        text, entry = path.read_text("utf-8"), _cause(path.stem)
        yield _label(text, entry)
        if entry is None:
            yield from (_label(line, None) for line in text.splitlines())


def _label(text: str, entry: str | None) -> Label:
    # No removal may accuse a text without a failure.
    is_fitted = entry is None or crc32(text.encode()) % 2 == 0
    return Label(text, (entry,), is_fitted)


def _read_parts(sources: list[Label]) -> Iterator[str]:
    """Yield the single lines and a random window of each fitted text."""
    chance = random.Random(1)  # noqa: S311  anyone draws the same
    for label in sources:
        lines = label.text.splitlines()
        if len(lines) > 1 and label.is_fitted:
            yield from filter(str.strip, lines)
            start = chance.randrange(len(lines))
            yield "\n".join(lines[start : start + WINDOW])


def record_matches() -> None:
    """Search each text for a pattern only once."""
    search = TextLines.passages

    def passages(lines: TextLines, pattern: table.Pattern) -> Iterator[Passage]:
        found = vars(lines).setdefault("found", {})
        if pattern not in found:
            found[pattern] = (*search(lines, pattern),)
        return iter(found[pattern])

    TextLines.passages = passages  # type: ignore[method-assign, assignment]


class Judged:
    """A labeled text with its present answer."""

    matches: Mapping[str, classify.Match] = {}
    """The failures and similar errors in the text."""

    def __init__(self, label: Label, transcript: Transcript) -> None:
        self.label = label
        self.transcript = transcript
        self.known = classify.known_of(label.here.machine) if label.here else ()
        self.read("", is_of_fix=True)
        self.answer = self.judge()

    def read(self, entry: str, *, is_of_fix: bool) -> None:
        """Find the conditions and failures in the text after a removal.

        Args:
            entry: The changed failure; empty for a condition, which can change any.
            is_of_fix: Whether the fixes can differ.
        """
        failures = {**table.load_failures(), **table.load_lookalikes()}
        matches: dict[str, classify.Match] = {}
        if entry:
            matches.update(self.matches)
            matches.pop(entry, None)
            failures = {entry: failures[entry]}
        else:
            self.conditions = classify.Conditions(self.transcript, self.known)
        for match in classify.find_matches(failures, self.conditions):
            matches[match.failure.id] = match
        self.matches = matches
        if is_of_fix:
            self.told: tuple[Any, ...] = ()

    @property
    def state(self) -> tuple[Any, ...]:
        """What ``read`` changes."""
        return self.conditions, self.matches, self.told

    @state.setter
    def state(self, state: tuple[Any, ...]) -> None:
        self.conditions, self.matches, self.told = state

    @property
    def names(self) -> Iterable[str]:
        """The names of the conditions that the text meets."""
        return self.conditions.passages

    def judge(self) -> tuple[Any, ...]:
        """Return the first cause, its certainty, and the errors like it.

        The first cause on another platform, and for a whole text, its fix and reason
        follow.
        """
        conditions, label, found = self.conditions, self.label, self.matches
        names = [*filter(found.get, table.load_lookalikes())]
        failures: Sequence[classify.Match]
        failures = [found[one] for one in table.load_failures() if one in found]
        if label.here:
            failures, _ = explanation.compare(failures, label.here)
        anywhere = [one for one in failures if one.failure.here not in PLATFORMS]
        ids = [one.failure.id for one in classify.rank(anywhere)[:1]]
        matches = classify.rank(failures)
        if not matches:
            return (None, False, names, ids)
        first = matches[0]
        is_certain = len(matches) == 1 and conditions.confirm(first)
        of_first = (first.failure.id, first.evidence)
        if label.right and label.is_fitted and self.told[:2] != of_first:
            words = explanation.library_placeholders(first, conditions, {})
            cause, *_ = classify.causes_of([first], conditions, HERE, words)
            self.told = (*of_first, cause.fix, cause.why)
        return (first.failure.id, is_certain, names, ids, *self.told[2:])

    def accepts(self, answer: tuple[Any, ...]) -> bool:
        """Return whether an answer may replace the present one."""
        right = self.label.right or ()
        if self.label.is_fitted:
            return answer == self.answer
        # A wrong answer may change, but not become certain.
        return answer[0] in right or (self.answer[0] not in right and not answer[1])

    def has(self, pattern: table.Pattern) -> bool:
        """Return whether a pattern was found in the text."""
        lines = (self.transcript, self.transcript.messages)
        return any(vars(each).get("found", {}).get(pattern) for each in lines)


def find_fact(
    failure: table.Failure, reading: LocalReading
) -> predicates.LocalFact | None:
    """Return a fact about a machine, which no removal changes."""
    key = failure.id, id(reading)
    if key not in FACTS:
        FACTS[key] = predicates.local_fact(failure, reading)
    return FACTS[key]


def is_message(says: str) -> bool:
    """Return whether a pattern contains a literal message of a program."""
    literal = re.sub(r"\[[^\]]*\]|\\.|\.\S|[?*+…]|\{[^}]*\}|<[a-z-]+>", "\0", says)
    longest = max(re.split(r"[\0()|^$]", literal), key=len).strip()
    return len(longest) >= SHORTEST_MESSAGE and longest.count(" ") >= 2


class Pruner:
    """The rows of the table of failures, without the items removed so far."""

    def __init__(self) -> None:
        self.removed = Counter[str]()
        self.entry = ""
        """The failure whose items are removed; empty for conditions."""
        self.failures = dict(table.load_failures())
        self.similar = dict(table.load_lookalikes())
        self.rows = {name: table.read_table(name)["failure"] for name in FILES}
        document = table.read_table("conditions")
        self.condition_rows: list[Row] = document["condition"]
        self.macros = document["macros"]
        self.conditions = [*map(self.parse_condition, self.condition_rows)]
        for module in (table, problems):
            vars(module)["load_failures"] = lambda: self.failures
            vars(module)["load_lookalikes"] = lambda: self.similar
        vars(table)["load_conditions"] = lambda: self.conditions
        vars(explanation)["local_fact"] = find_fact
        record_matches()
        transcripts: dict[str, Transcript] = {}
        self.texts = []
        for label in read_labels():
            transcript = transcripts.setdefault(label.text, Transcript(label.text))
            self.texts.append(Judged(label, transcript))

    def parse_condition(self, row: Row) -> table.Condition:
        """Parse the row of a condition."""
        return table.parse_condition(row, self.macros)

    def prune(self) -> None:
        """Remove all items that no text needs."""
        for row in chain(*self.rows.values()):
            self.prune_failure(row)
        for row in self.condition_rows:
            # The platform in a text decides whether it is from this machine.
            if row.get("name") not in classify.ORIGINS:
                self.prune_condition(row)

    def prune_failure(self, row: Row) -> None:
        """Remove signs, conditions, and subjects of a failure."""
        rows = self.failures if row["id"] in self.failures else self.similar
        whole = rows[row["id"]]
        self.entry = row["id"]
        fields = ("signs", "unless", "why", "fix")

        def parse() -> None:
            parsed = read_object(table.Failure, {**OF_FAILURE, **row})
            changed = {name: getattr(parsed, name) for name in fields}
            rows[row["id"]] = replace(whole, **changed)

        for sign in [*row["signs"]]:
            affected = self.located(read_object(table.Sign, sign))
            is_free = len(row["signs"]) > 1 and not is_message(sign.get("says", ""))
            if is_free and self.remove("sign", row["signs"], sign, parse, affected):
                continue
            # No text shows the conditions that only a machine fulfills.
            shown = {name for name in sign.get("when", ()) if name not in OF_MACHINE}
            for name in sorted(shown):
                self.remove("when", sign["when"], name, parse, affected)
            for key in {"says", "runs", "sees"} & sign.keys():
                self.shorten(sign, key, parse, affected)
        signs = rows[row["id"]].signs
        affected = [text for sign in signs for text in self.located(sign)]
        for name in [*row.get("unless", ())]:
            # doctor uses the consequences of the problems that it finds.
            if not (name in self.failures and self.failures[name].problems):
                self.remove("unless", row["unless"], name, parse, affected)
        affected = [text for text in self.texts if text.answer[0] == row["id"]]
        for part in (row.get("fix", {}), row.get("why", {})):
            for name in (
                self.subjects.intersection(part) if rows is self.failures else ()
            ):
                self.remove("subject", part, name, parse, affected)

    @property
    def subjects(self) -> set[str]:
        """The keys of fixes that only a text selects."""
        names = {row.name for row in self.conditions}
        names.update(chain(*(row.fills for row in self.conditions)))
        return names - {*classify.ORIGINS, *OF_PROBE}

    def prune_condition(self, row: Row) -> None:
        """Remove patterns, and values by family, of a condition."""
        index = self.condition_rows.index(row)
        self.entry = ""

        def parse() -> None:
            self.conditions[index] = self.parse_condition(row)

        for key in ("says", "runs"):
            for says in [*row.get(key, ())]:
                place = row[key].index(says)
                affected = self.having([getattr(self.conditions[index], key)[place]])
                if row.get("fills") or not is_message(says):
                    self.remove("pattern", row[key], says, parse, affected)
        affected = self.having(self.conditions[index].says)
        for name in [*row.get("of", ())]:
            self.remove("value", row["of"], name, parse, affected)

    def having(self, patterns: Collection[table.Pattern]) -> list[Judged]:
        """Return the texts in which a pattern was found."""
        return [text for text in self.texts if any(map(text.has, patterns))]

    def located(self, sign: table.Sign) -> list[Judged]:
        """Return the texts with a sign."""
        if sign.sees:
            seen = sign.sees.fullmatch
            return [text for text in self.texts if any(map(seen, text.names))]
        return self.having([pattern for pattern in (sign.says, sign.runs) if pattern])

    def remove(
        self,
        kind: str,
        items: Any,
        item: Any,
        parse: Callable[[], None],
        affected: list[Judged],
    ) -> bool:
        """Remove an item of a list or table, if possible."""
        whole = items.copy()
        del items[item if isinstance(items, dict) else whole.index(item)]
        if self.attempt(kind, parse, affected):
            return True
        items.clear()
        (items.update if isinstance(items, dict) else items.extend)(whole)
        parse()
        return False

    def shorten(
        self, items: Any, key: Any, parse: Callable[[], None], affected: list[Judged]
    ) -> None:
        """Remove alternatives of a pattern."""
        number = 0
        while number < len(options := [*alternatives(items[key])]):
            removed, shorter = options[number]
            says, items[key] = items[key], shorter
            # If the alternative is kept, continue with the next one.
            if is_message(removed) or not self.attempt("alternative", parse, affected):
                items[key] = says
                parse()
                number += 1

    def attempt(
        self, kind: str, parse: Callable[[], None], affected: list[Judged]
    ) -> bool:
        """Return whether every affected text accepts its new answer."""
        parse()
        answers = []
        for text in affected:
            state = text.state
            text.read(self.entry, is_of_fix=not self.entry or kind == "subject")
            answers.append((text, text.judge(), state))
            if not text.accepts(answers[-1][1]):
                for other, _, before in answers:
                    other.state = before
                return False
        for text, answer, _ in answers:
            text.answer = answer
        self.removed[kind] += 1
        return True


def alternatives(says: str) -> Iterator[tuple[str, str]]:
    """Yield each alternative of a pattern, and the pattern without it."""
    groups: list[list[int]] = []
    for sign in re.finditer(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[(|)]", says):
        if sign[0] == "(":
            head = re.compile(r"\((\?(:|P<\w+>|<?[=!]))?").match(says, sign.start())
            groups.append([head.end() if head else 0])
        elif sign[0] == "|" and groups:
            groups[-1].append(sign.end())
        elif sign[0] == ")" and groups:
            starts = groups.pop()
            # Without an alternative of a negation, a pattern matches more texts.
            heads = (says[: group[0]] for group in (*groups, starts))
            if len(starts) > 1 and not any(head.endswith("!") for head in heads):
                for start, end in pairwise((*starts, sign.end())):
                    rest = says[:start] + says[end:]
                    if end == sign.end():
                        rest = says[: start - 1] + says[end - 1 :]
                    yield says[start : end - 1], rest


def write(pruner: Pruner) -> None:
    """Write the remaining items to the TOML files."""
    remaining = {row.name for row in pruner.conditions if row.says or row.runs}
    machine = table.read_table("conditions")["machine"]
    of_machine = OF_MACHINE.union(*(row["holds"] for row in machine))
    gone = {row.name for row in pruner.conditions} - remaining - of_machine
    for name, rows in pruner.rows.items():
        _rewrite(name, "failure", rows, lambda block, row: _failure(block, row, gone))
    _rewrite("conditions", "condition", pruner.condition_rows, _condition)


def _rewrite(
    file: str, kind: str, rows: list[Row], convert: Callable[[str, Row], str]
) -> None:
    """Convert each row of a TOML file."""
    path = table.DATA / f"{file}.toml"
    head, *blocks = re.split(rf"(?m)^(?=\[\[{kind}\]\]$)", path.read_text("utf-8"))
    path.write_text("".join((head, *map(convert, blocks, rows))), "utf-8")


def _failure(block: str, row: Row, gone: set[str]) -> str:
    """Return the row of a failure with its remaining items."""
    signs = "".join(
        f"  {_sign(sign, gone)},\n"
        for sign in row["signs"]
        if gone.isdisjoint(sign.get("when", ()))
    )
    block = _replace_key(block, "signs", f"signs = [\n{signs}]\n")
    unless = [name for name in row.get("unless", ()) if name not in gone]
    line = f"unless = {json.dumps(unless)}\n" if unless else ""
    block = _replace_key(block, "unless", line)
    for part in ("fix", "why"):
        for name in tomli.loads(block)["failure"][0].get(part, ()):
            # Without its condition, a row for a subject is never selected.
            if name not in row[part] or name in gone:
                block = re.sub(rf"(?m)^{part}\.{name} = .*\n", "", block)
    return block


def _sign(sign: Row, gone: set[str]) -> str:
    values = {
        key: str(value) if key == "weight" else _quoted(value)
        for key, value in sign.items()
        if key != "when"
    }
    names = sign.get("when", ())
    when = [name for name in names if name.removeprefix("!") not in gone]
    if when:
        values["when"] = json.dumps(when)
    return f"{{ {', '.join(f'{key} = {value}' for key, value in values.items())} }}"


def _condition(block: str, row: Row) -> str:
    """Return the row of a condition with its remaining items."""
    comment = "".join(re.findall(r"(?m)^#.*\n", block))
    if not (row.get("says") or row.get("runs")):
        return comment
    for key in ("says", "runs"):
        lines = "".join(f"  {_quoted(says)},\n" for says in row.get(key, ()))
        array = f"[\n{lines}]" if lines.count("\n") > 1 else f"[{lines.strip()[:-1]}]"
        block = _replace_key(block, key, f"{key} = {array}\n" if lines else "")
    of = tomli.loads(block)["condition"][0].get("of", {})
    for name in of.keys() - row.get("of", {}).keys():
        block = re.sub(rf'(?m)^"?{re.escape(name)}"? = .*\n', "", block)
    return block


def _replace_key(block: str, key: str, line: str) -> str:
    """Replace a key with an array, of which the last line ends with ``]``."""
    row = rf"(?ms)^{key} = \[(?:\n.*?^\]|[^\n]*\])\n"
    return re.sub(row, lambda _: line, block, count=1)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if "'" in text else f"'{text}'"


def main(arguments: list[str]) -> None:
    """Print how many items of each kind no text needs, and remove them."""
    pruner = Pruner()
    pruner.prune()
    sys.stdout.write(f"{dict(pruner.removed)}\n")
    if arguments == ["--write"]:
        write(pruner)


if __name__ == "__main__":
    main(sys.argv[1:])
