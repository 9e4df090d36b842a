"""Native libraries, compiled here: with symbols left open, libraries needed and versions asked for as a test wants."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

_LINK = ("cc", "-shared", "-fPIC", "-nostdlib", "-Wl,--no-as-needed", "-Wl,-z,lazy")
GONE = "_ZN5torch7Library4_defEN3c106eitherINS1_12OperatorNameENS1_14FunctionSchemaEEEONS_11CppFunctionE"
"""A name of torch's that no release has exported: any stands for those that were removed."""


def native_library(
    file: Path,
    *,
    undefined: Iterable[str] = (),
    weak: Iterable[str] = (),
    defines: Iterable[str] = (),
    needs: Iterable[str] = (),
    strings: Iterable[str] = (),
    glibc: str | None = None,
    rpath: str | None = None,
    soname: str | None = None,
    code: bytes = b"",
    modules: Iterable[str] = (),
) -> Path:
    """Compile a library.

    ``glibc`` is a version of libm that it asks for, ``code`` the GPU code in it; Python imports it as ``modules``.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    work = file.with_name(f"{file.name}.made")
    work.mkdir()
    stubs = [_stub(work, name) for name in needs]
    lines = [
        f'extern int u{at}(void) __asm__("{name}");'
        for at, name in enumerate(undefined)
    ]
    lines += [
        f'extern int w{at}(void) __asm__("{name}") __attribute__((weak));'
        for at, name in enumerate(weak)
    ]
    calls = [f"u{at}()" for at, _ in enumerate(undefined)] + [
        f"(w{at} ? w{at}() : 0)" for at, _ in enumerate(weak)
    ]
    for at, name in enumerate(defines):
        lines.append(
            f'int d{at}(void) __asm__("{name}"); int d{at}(void) {{ return {at}; }}'
        )
    lines += [f'const char s{at}[] = "\\0{name}";' for at, name in enumerate(strings)]
    if glibc:
        stubs.append(_stub(work, "libm.so.6", f"GLIBC_{glibc}"))
        lines.append("extern int newest_of_libm(void);")
        calls.append("newest_of_libm()")
    lines.append(f"int call_them_all(void) {{ return {' + '.join(calls) or '0'}; }}")
    for name in modules:
        # A PyModuleDef: five words of its base, its name, and nothing else.
        lines.append(f'static void *def_{name}[13] = {{0, 0, 0, 0, 0, "{name}"}};')
        lines.append("extern void *PyModuleDef_Init(void *);")
        lines.append(
            f"void *PyInit_{name}(void) {{ return PyModuleDef_Init(def_{name}); }}"
        )
    if code:
        (work / "code").write_bytes(code)
        lines.append(
            f'__asm__(".section .nv_fatbin, \\"a\\"\\n.incbin \\"{work / "code"}\\"");'
        )
    paths = [f"-Wl,-rpath,{rpath}"] if rpath else []
    own_name = [f"-Wl,-soname,{soname}"] if soname else []
    _compile(file, "\n".join(lines), *map(str, stubs), *paths, *own_name)
    return file


def readelf(file: Path, *options: str) -> str:
    """What readelf says of a file."""
    done = subprocess.run(
        ["readelf", "-W", *options, str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _stub(folder: Path, name: str, version: str | None = None) -> Path:
    """An empty library of a name, or one with a symbol of a version."""
    stub = folder / name
    script = folder / "versions"
    script.write_text(
        f"{version} {{ global: newest_of_libm; }};" if version else "{ global: *; };"
    )
    _compile(
        stub,
        "int newest_of_libm(void) { return 1; }" if version else "",
        f"-Wl,-soname,{name}",
        *([f"-Wl,--version-script={script}"] if version else []),
    )
    return stub


def _compile(file: Path, text: str, *more: str):
    subprocess.run(
        [*_LINK, "-x", "c", "-", "-o", str(file), "-x", "none", *more],
        input=text,
        text=True,
        check=True,
    )
