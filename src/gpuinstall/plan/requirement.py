"""One requirement, parsed as far as the choice needs, a bare name without loading a parser; and its marker, judged."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from packaging.markers import Marker
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    from gpuinstall.machine import Machine

_SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "macos": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}
_PROCESSORS = {
    ("linux", "arm64"): "aarch64",
    ("macos", "aarch64"): "arm64",
    ("windows", "x86_64"): "AMD64",
    ("windows", "aarch64"): "ARM64",
    ("windows", "arm64"): "ARM64",
}

_SHOWN = 200
"""The characters of a malformed requirement that an error shows."""
_REPOSITORIES = {
    "pytorch/pytorch": "torch",
    "pytorch/vision": "torchvision",
    "pytorch/audio": "torchaudio",
}
"""Whose repositories are not called as their packages are."""

_LINE_BREAK = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")
_EDITABLE = r"(?:-e|--editable)(?:[\s=]+)(?P<rest>.+)"
_NAMED = r"(?a:[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\]\s*)?@\s*(?P<rest>\S.*))"
_BLANKS = r" +(?=[^\s;\[#])(?!--?[A-Za-z])"
"""The blanks of a path: behind them is no marker, comment or option, for uv reads the line too."""
_REST = rf"(?:[^\s;\[]|{_BLANKS})*"
_FOLDER = rf"\w(?:[\w.-]|{_BLANKS})*(?:\[[^\]]*\])?"
_RELATIVE = rf"(?:[^\s;\[@<>=!~/\\]*|\w[\w.-]*(?: +\w[\w.-]*)+)[/\\]{_REST}"
_PATH = rf"\.{{1,2}}(?:[/\\]{_REST})?|[/~]{_REST}|[A-Za-z]:[\\/]{_REST}|{_RELATIVE}"
_PATH_WITH_BLANKS = rf"(?P<path>(?![a-z+]{{2,}}:)\S+(?:{_BLANKS}\S+)+)(?P<marker>\s+;.*)?"
_BLANK_MARK = "\x1f"
"""What stands for a blank of a path while packaging parses it; no text from outside can have it."""
_REMOTE = r"(?:git\+[a-z]+|https?|file):[^\s;\[]+"
_FILE = r"[^\s;\[]+\.(?:whl|tar\.gz|zip)"
_UNNAMED = (
    rf"(?P<address>{_REMOTE}|{_PATH}|{_FILE})(?P<extras>\[[^\]]*\])?(?:\s*;\s*(?P<marker>.+))?"
)


class Asked(NamedTuple):
    """A requirement: its normalised name, extras as in ``[opt-einsum]``, specifier (None: any version), its text.

    ``url`` is the address that it is asked for by, a path among them; without a name before it, ``name`` is what the
    address tells. ``editable`` is a folder that is used where it lies.
    """

    name: str
    text: str
    extras: str = ""
    specifier: SpecifierSet | None = None
    url: str | None = None
    marker: Marker | None = None
    editable: bool = False

    @property
    def extra_names(self) -> tuple[str, ...]:
        """The names of the extras."""
        return tuple(name for part in self.extras.strip("[]").split(",") if (name := part.strip()))

    @property
    def is_remote(self) -> bool:
        """Whether its address is no path of this machine."""
        return re.match(r"[a-z+]{2,}:", self.url or "") is not None

    def allows(self, version: Version | str) -> bool:
        """Whether a version satisfies it."""
        return self.specifier is None or self.specifier.contains(version)

    def narrowed(self, other: Asked) -> Asked:
        """Join two requirements of one package: the extras of both, the versions that both allow."""
        extras = _brackets({*self.extra_names, *other.extra_names})
        specifiers = [
            requirement.specifier
            for requirement in (self, other)
            if requirement.specifier is not None
        ]
        both = specifiers[0] & specifiers[-1] if specifiers else None
        return Asked(self.name, f"{self.name}{extras}{both or ''}", extras, both)


@lru_cache(maxsize=10_000)
def parse_requirement(text: str) -> Asked:
    """Parse one requirement; raise UsageError for a malformed one, and for the package that is called otherwise."""
    if _LINE_BREAK.search(text.strip()):  # it would be a second line of a file for uv
        raise UsageError(
            "requirement-malformed", "a requirement has a line break or a control character in it"
        )
    if misnamed := re.match(r"\s*pytorch(?![\w.-])", text, re.IGNORECASE):
        right = "torch" + re.sub(r"\s", "", text[misnamed.end() :])
        hint = f"the same with {right} in place of {text.strip()}"
        raise UsageError(
            "requirement-misnamed", "the package is called torch, not pytorch", hint=hint
        )
    is_file = text.strip().endswith((".whl", ".tar.gz", ".zip"))
    if re.fullmatch(r"\s*[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?\s*", text, re.ASCII) and not is_file:
        return Asked(normalised(text.strip()), text.strip())
    editable = re.fullmatch(_EDITABLE, text.strip())
    plain = (editable["rest"] if editable else text).strip()
    plain = f"./{plain}" if editable and re.fullmatch(_FOLDER, plain) else plain
    requirement = _unnamed(plain) or _named(plain)
    if editable and not requirement.url:
        raise UsageError(
            "requirement-malformed",
            f"{text!r} is not a folder",
            hint="gpuinstall install -e ./folder",
        )
    return (
        requirement._replace(editable=True, text=f"-e {requirement.text}")
        if editable
        else requirement
    )


def requirement_names(requirements: Iterable[str]) -> frozenset[str]:
    """Return the names of the packages of requirements; raise UsageError for a malformed one."""
    return frozenset(parse_requirement(text).name for text in requirements)


def parse_specifier(text: str) -> SpecifierSet:
    """Parse a specifier; raise ValueError for a malformed one."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)


def normalised(name: str) -> str:
    """Write a package's name as the indexes do."""
    return re.sub(r"[-_.]+", "-", name).lower()


def marker_holds(marker: Marker, machine: Machine, python: str, extra: str = "") -> bool:
    """Whether a marker holds on a machine with the CPython ``X.Y``, for one extra of the package or for none."""
    return marker.evaluate(
        {**marker_environment(machine.os, machine.arch, python.removesuffix("t")), "extra": extra}
    )


def marker_environment(os: str, arch: str, python: str) -> dict[str, str]:
    """The values of the markers of a system, this one or another, for CPython ``X.Y`` or ``X.Y.Z``."""
    full = python if python.count(".") > 1 else f"{python}.0"
    return {
        **_SYSTEMS[os],
        "implementation_name": "cpython",
        "implementation_version": full,
        "platform_machine": _PROCESSORS.get((os, arch), arch),
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_version": "",
        "python_full_version": full,
        "python_version": ".".join(full.split(".")[:2]),
    }


def _named(text: str) -> Asked:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        parsed = Requirement(_without_blanks_in_path(text))
    except RecursionError:
        raise _malformed(text, "requirement", "it is nested too deep") from None
    except InvalidRequirement as error:
        form = re.fullmatch(r"([\w.-]+(?:\[[\w,.-]*\])?)=([^=].*)", text.strip())
        malformed = _malformed(text, "requirement", str(error).splitlines()[0])
        if form and re.fullmatch(r"[\w.+*!-]+", form[2]):
            malformed.hint = f"the same with {form[1]}=={form[2]} in place of {text.strip()}"
        raise malformed from None
    extras = _brackets(parsed.extras)
    written = str(parsed).replace(_BLANK_MARK, " ")
    url = parsed.url and parsed.url.replace(_BLANK_MARK, " ")
    return Asked(
        normalised(parsed.name), written, extras, parsed.specifier or None, url, parsed.marker
    )


def _without_blanks_in_path(text: str) -> str:
    """Write a mark for each blank in the path behind a name: packaging knows addresses only, which have none."""
    form = re.fullmatch(_NAMED, text)
    located = form and re.fullmatch(_PATH_WITH_BLANKS, form["rest"])
    if not (form and located):
        return text
    path = located["path"].replace(" ", _BLANK_MARK)
    return f"{text[: form.start('rest')]}{path}{located['marker'] or ''}"


def _unnamed(text: str) -> Asked | None:
    """Read an address without a name before it."""
    form = None if re.fullmatch(_NAMED, text) else re.fullmatch(_UNNAMED, text)
    if form is None:
        return None
    address, extras, marker = form["address"], form["extras"] or "", _marker(form["marker"] or "")
    written = f"{address}{extras}" + (f" ; {marker}" if marker else "")
    name = _name_in(address)
    return Asked(normalised(name) if name else address, written, extras, None, address, marker)


def _marker(text: str) -> Marker | None:
    from packaging.markers import InvalidMarker, Marker

    try:
        return Marker(text) if text else None
    except RecursionError:
        raise _malformed(text, "marker", "it is nested too deep") from None
    except InvalidMarker as error:
        raise _malformed(text, "marker", str(error).splitlines()[0]) from None


def _malformed(text: str, kind: str, reason: str) -> UsageError:
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}…"
    return UsageError("requirement-malformed", f"{text!r} is not a {kind}: {reason}")


def _name_in(address: str) -> str:
    """The name that an address tells: of its ``#egg=``, of its file, or of its last part."""
    plain, _, fragment = address.partition("#")
    if egg := re.search(r"egg=([A-Za-z0-9][\w.-]*)", fragment):
        return egg[1]
    last = re.split(r"[/\\]", plain.rstrip("/\\"))[-1].partition("@")[0]
    if file := re.fullmatch(r"(.+?)-\d.*\.(?:whl|tar\.gz|zip)", last):
        return file[1]
    last = re.sub(r"\s+", "-", last)
    name = re.sub(r"\.git$", "", last) if re.match(r"[A-Za-z0-9]", last) else ""
    repository = "/".join(re.split(r"[/\\:]", plain.partition("@")[0].rstrip("/"))[-2:])
    return _REPOSITORIES.get(repository.removesuffix(".git").lower(), name)


def _brackets(extras: Collection[str]) -> str:
    return f"[{','.join(sorted(extras))}]" if extras else ""
