"""Load the table of failures from ``data/*.toml``.

The docstrings of the fields explain the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

from gpuinstall.base.advice import NOTE
from gpuinstall.base.codec import read, read_object
from gpuinstall.base.values import Value, replace
from gpuinstall.base.vendors import VENDOR_ROWS
from gpuinstall.catalog import data_files

# A named group, (?P<it>…), is not a macro.
_MACRO = re.compile(r"(?<!\?P)<(?P<name>[a-z-]+)>")
_FOR_TORCH = re.compile(
    r"gpuinstall install(\{\w+\}| --(python|venv|backend|gpus) \S+| --[\w-]+)*( *#|$)"
    r"|\btorch\b|TORCH_"
)
DATA = Path(__file__).with_name("data")
_Row = TypeVar("_Row")
GROUPS = (
    "driver",
    "detection",
    "wheel",
    "libraries",
    "runtime",
    *(row.name for row in VENDOR_ROWS[1:]),
    "symptoms",
)


# A class, escape, or character in a pattern, with its repetition, and the parts that can match different texts.
_PIECE = r"(\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|[^\\\[])([*+]?)"
_CLASS = r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]"
_GROUP = r"(?<!\\)\((?:\\.|[^()\\])*\)"
_VARYING = r"\\?.(?:[?*]|\{[^}]*\})|\\\w|[\0 .^$…+?|]"
# Limit repetitions, to keep the search linear.
_REPEATS = {"*": "{0,100}", "+": "{1,100}"}
_BREAKS = {"": r"\s+", "+": r"\s+", "*": r"\s*"}


class Pattern(Value):
    """Pattern of an error message."""

    says: str
    """A regular expression in lower case.

    A space matches any whitespace, and an ellipsis matches anything up to the end of a line.
    """

    @classmethod
    def parse(cls, says: str) -> Pattern:
        """Parse the pattern of a message in a table row."""
        return cls(says)

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled regular expression of the pattern."""
        says = re.sub(_PIECE, _translated, self.says.replace(" ?", r"\s*"))
        # With re.ASCII, a word also ends before letters of another script: 显卡RTX 5090上.
        return re.compile(says, re.MULTILINE | re.ASCII)

    @cached_property
    def needle(self) -> str:
        """The longest text that every match contains, if any."""
        says = re.sub(_CLASS, "\0", self.says.replace(r"\\", "\0"))
        while (outside := re.sub(_GROUP, "\0", says)) != says:
            says = outside
        fixed = re.sub(_VARYING, "\0", says).replace("\\", "")
        return max(fixed.split("\0"), key=len)


def _translated(piece: re.Match[str]) -> str:
    character, repeat = piece.groups()
    if character == " ":
        return _BREAKS[repeat]
    if character == "…":
        return r"[^\n]{0,160}?"
    return character.replace(" ", r"\s") + _REPEATS.get(repeat, "")


class Sign(Value):
    """Sign of a failure: a message or a condition."""

    weight: float = 0.88
    """How strongly the sign indicates the failure, from 0 to 1.

    The cause can be certain from 0.9 on.
    """
    says: Pattern | None = None
    """The pattern of an error message."""
    sees: Annotated[re.Pattern[str], re.compile] | None = None
    """The pattern of the names of conditions (``conditions.toml``)."""
    when: tuple[str, ...] = ()
    """The conditions that the sign requires.

    A name that starts with ``!`` rules out the sign.
    """


class Step(Value):
    """A step of a fix: a command or an instruction."""

    run: str = ""
    """A command, or an instruction that begins with a capital letter."""
    note: str = ""
    unset: tuple[str, ...] = ()
    """The environment variables to unset."""
    export: Mapping[str, str] = {}
    """The environment variables to export."""
    root: bool = False
    """Whether the command requires root."""
    restart: bool = False
    """Whether the machine must be restarted after the step."""
    place: str = ""
    """Where the command applies; empty if everywhere.

    ``linux`` is a shell on Linux, ``host`` is the host of a container, and ``kernel``
    is the machine with the kernel module. ``driver`` is the machine with the driver,
    which can be Windows. ``packages`` is a system with its own driver packages, except
    containers, in which the packages would be a second driver.
    """

    @classmethod
    def from_document(
        cls,
        body: str | dict[str, Any],
        place: str,
    ) -> Step:
        """Parse a step from a TOML table or a line of text."""
        if isinstance(body, dict):
            return read_object(cls, body, place)
        run, _, note = body.partition(NOTE)
        command = run.removeprefix("sudo ")
        return cls(run=command, note=note, root=command != run)

    @property
    def is_for_torch(self) -> bool:
        """Whether the step installs, configures, or requires torch."""
        return bool(_FOR_TORCH.search(str(self)))

    @property
    def command(self) -> str:
        """The command line of the step for a shell on Linux."""
        exports = [f"{name}={value}" for name, value in self.export.items()]
        commands = (
            " ".join(("unset", *self.unset)) if self.unset else "",
            " ".join(("export", *exports)) if exports else "",
            f"sudo {self.run}" if self.root else self.run,
            "sudo reboot" if self.restart else "",
        )
        return " && ".join(filter(None, commands))

    def __str__(self) -> str:
        return f"{self.command}{NOTE}{self.note}" if self.note else self.command


class FixTable(Value):
    """The steps of a fix, by system and subject.

    A fix consists of these steps:

    1. Only the steps of the first key that is a condition or placeholder of the text, if any.
    2. Otherwise the steps of ``packages``, then the steps of the most specific key of the context: a container engine or
       ``container``, ``wsl``, ``jetson``, ``conda``, a distribution, its package manager, or the operating system. A key with
       ``-legacy`` is for GPUs that require an older driver, and has priority over the key without it.
    3. Without such a key, the steps of the failures and codes in ``like``, as for a GPU that requires an older driver if
       the name ends with ``-legacy``.
    4. In addition, the steps of ``any``.
    5. If there are still none, the steps of ``linux``, adapted according to ``place``.

    The values of placeholders are from the environment, from the text (``conditions.toml``), or defaults.
    """

    commands: Mapping[str, tuple[Step, ...]]
    like: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """The actions of ``packages.toml`` for a system with its own driver."""

    @classmethod
    def from_document(
        cls,
        body: Mapping[str, list[Any]],
        place: str,
    ) -> FixTable:
        """Parse a fix from a TOML table."""
        steps = dict(body)
        fields = {
            name: tuple(steps.pop(name, ())) for name in cls.__struct_fields__[1:]
        }
        return cls(read(dict[str, tuple[Step, ...]], steps, place), **fields)


class ProblemKind(Value):
    """A kind of problem, identified by its code."""

    code: str
    id: str | None = None
    """The ID of the only failure with this problem, if there is one."""
    message: str = ""
    """The default message of findings about the problem."""
    why: str = ""
    fix: FixTable | None = None
    """The fix of the problem, if it differs from the failure's fix."""
    told: tuple[str, ...] = ()
    """The messages of gpuinstall's checks that identify the problem."""
    cuda_errors: Mapping[str, str] | None = None
    """CUDA's error numbers, with their names in NVIDIA's headers."""


class Failure(Value):
    """A failure of the GPU stack with its signs, cause, and fix."""

    id: str
    group: str
    title: str
    cause: str
    signs: tuple[Sign, ...]
    fix: FixTable
    messages: tuple[str, ...] = ()
    apart: str = ""
    """How the failure differs from similar failures."""
    sources: tuple[str, ...] = ()
    """Sources: GitHub threads (owner/repository#number) or URLs."""
    here: str | None = None
    """The predicate in ``diagnose/predicates.py`` that detects the failure."""
    problems: tuple[ProblemKind, ...] = ()
    """The problems that the failure causes."""
    about: Annotated[re.Pattern[str], re.compile] | None = None
    """The pattern of the files and packages that the failure is about.

    The failure is not certain if the lines with the sign name another file or package.
    """
    unless: tuple[str, ...] = ()
    """The conditions and causes of this failure that exclude it."""
    narrows: tuple[str, ...] = ()
    """The likely causes of a symptom, likeliest first."""
    why: Mapping[str, str] = {}
    """More specific causes, by condition or placeholder.

    The first whose key the text contains is used, if the text has values for its placeholders.
    """
    another: str | None = None
    """What must differ in a build that may work: code or toolkit."""

    @property
    def is_symptom(self) -> bool:
        """Whether the failure is a symptom, which does not show a cause."""
        return bool(self.narrows)


class Condition(Value):
    """A condition that a text can meet: a row of ``conditions.toml``."""

    name: str = ""
    """The name in signs and fixes, if any."""
    says: tuple[Pattern, ...] = ()
    """The patterns of messages that show the condition."""
    runs: tuple[Pattern, ...] = ()
    """The patterns of any lines that show it, including commands."""
    of: Mapping[str, Annotated[re.Pattern[str], re.compile]] = {}
    """The patterns of values, by the group that becomes a part of the name."""
    fills: Mapping[str, str] = {}
    """The values by placeholder, which may refer to pattern groups."""
    of_line: bool = False
    """Whether to prefer values from the failure's own line."""

    def name_of(self, match: re.Match[str]) -> str:
        """Return the name of the condition, with the value from the text."""
        value = (match.groupdict().get("it") or "").rstrip(".")
        if not value or not self.name:
            return self.name
        for family, values in self.of.items():
            if values.fullmatch(value):
                return f"{self.name} {family}"
        return f"{self.name} {value}"


class Distribution(Value):
    """A family of distributions."""

    key: str
    """The key of the distribution's fixes."""
    manager: str
    """The key of the package manager."""
    names: tuple[str, ...]
    """The prefixes of the names of distributions in the family."""


@cache
def load_failures() -> Mapping[str, Failure]:
    """Load the table of failures by ID, in the order of the files."""
    failures = [failure for name in GROUPS for failure in _read_group(name)]
    # Sort F9 before F10.
    failures.sort(key=lambda failure: (len(failure.id), failure.id))
    return {failure.id: failure for failure in failures}


@cache
def load_lookalikes() -> Mapping[str, Failure]:
    """Load errors that only resemble a failure of the GPU stack, by name."""
    return {failure.id: failure for failure in _read_group("lookalikes")}


def _read_group(name: str) -> Iterator[Failure]:
    page = read_table(name)
    for row in page["failure"]:
        failure = read_object(Failure, {"group": page["group"], **row}, row["id"])
        problems = [replace(problem, id=failure.id) for problem in failure.problems]
        yield replace(failure, problems=tuple(problems))


@cache
def load_problems() -> Mapping[str, ProblemKind]:
    """Load all problems by code, starting with the problems of failures."""
    kinds: list[ProblemKind] = []
    for failure in load_failures().values():
        kinds += failure.problems
    kinds += rows_of(ProblemKind, "problems")
    return {kind.code: kind for kind in kinds}


@cache
def load_cuda_errors() -> Mapping[int, tuple[str, str]]:
    """Return the name and code of each CUDA error."""
    errors = {}
    for kind in load_problems().values():
        for number, name in (kind.cuda_errors or {}).items():
            errors[int(number)] = (name, kind.code)
    return errors


@cache
def load_distributions() -> tuple[Distribution, ...]:
    """Load the families of Linux distributions."""
    return rows_of(Distribution, "distributions")


@cache
def load_conditions() -> tuple[Condition, ...]:
    """Load the conditions that a text can meet."""
    table = read_table("conditions")
    rows = [{"name": name, "runs": runs} for name, runs in table["runs"].items()]
    rows += [{"name": name, "says": says} for name, says in table["says"].items()]
    macros = table["macros"]
    conditions = []
    for row in rows + table["condition"]:
        says = [
            _MACRO.sub(lambda match: macros[match["name"]], text)
            for text in row.get("says", ())
        ]
        conditions.append(read_object(Condition, {**row, "says": says}))
    return tuple(conditions)


@cache
def read_table(name: str) -> dict[str, Any]:
    """Read a TOML file of the table of failures."""
    return data_files.read_data(str(DATA / f"{name}.toml"))


def rows_of(kind: type[_Row], file: str) -> tuple[_Row, ...]:
    """Load the rows of a TOML file of the table of failures."""
    key = file.removesuffix("s")
    rows: tuple[_Row, ...] = read(tuple[kind, ...], read_table(file)[key], key)  # type: ignore[valid-type]
    return rows
