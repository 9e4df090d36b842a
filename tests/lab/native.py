"""Compiled libraries with chosen symbols, libraries, and versions."""

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

_LINK = ("cc", "-shared", "-fPIC", "-nostdlib", "-Wl,--no-as-needed", "-Wl,-z,lazy")
GONE = "_ZN5torch7Library4_defEN3c106eitherINS1_12OperatorNameENS1_14FunctionSchemaEEEONS_11CppFunctionE"
"""A torch symbol that no release exports, like a removed one."""


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
    """Compile a small native library.

    ``glibc`` is the required version of libm, ``code`` is the GPU code, and ``modules``
    are names of Python modules.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    stubs = [_stub(name) for name in needs]
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
        stubs.append(_stub("libm.so.6", f"GLIBC_{glibc}"))
        lines.append("extern int newest_of_libm(void);")
        calls.append("newest_of_libm()")
    lines.append(f"int call_them_all(void) {{ return {' + '.join(calls) or '0'}; }}")
    for name in modules:
        # A PyModuleDef has five words of PyModuleDef_Base and a name.
        lines.append(f'static void *def_{name}[13] = {{0, 0, 0, 0, 0, "{name}"}};')
        lines.append("extern void *PyModuleDef_Init(void *);")
        lines.append(
            f"void *PyInit_{name}(void) {{ return PyModuleDef_Init(def_{name}); }}"
        )
    if code:
        lines.append('__asm__(".section .nv_fatbin, \\"a\\"\\n.incbin \\"code\\"");')
    paths = [f"-Wl,-rpath,{rpath}"] if rpath else []
    own_name = [f"-Wl,-soname,{soname}"] if soname else []
    files = [(f"{at}.so", stub) for at, stub in enumerate(stubs)]
    options = [*(name for name, _ in files), *paths, *own_name]
    files.append(("code", code))
    file.write_bytes(_compiled("\n".join(lines), tuple(options), tuple(files)))
    return file


def readelf(file: Path, *options: str) -> str:
    """Return readelf's output for a file."""
    done = subprocess.run(
        ["readelf", "-W", *options, str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _stub(name: str, version: str | None = None) -> bytes:
    """Compile an empty library, or one with a versioned symbol."""
    own_name = f"-Wl,-soname,{name}"
    if version is None:
        return _compiled("", (own_name,))
    return _compiled(
        "int newest_of_libm(void) { return 1; }",
        (own_name, "-Wl,--version-script=versions"),
        (("versions", f"{version} {{ global: newest_of_libm; }};".encode()),),
    )


@cache
def _compiled(
    text: str, options: tuple[str, ...], files: tuple[tuple[str, bytes], ...] = ()
) -> bytes:
    """Compile a source once for all tests that need it."""
    with TemporaryDirectory() as folder:
        for name, content in files:
            Path(folder, name).write_bytes(content)
        subprocess.run(
            [*_LINK, "-x", "c", "-", "-o", "made", "-x", "none", *options],
            input=text,
            text=True,
            check=True,
            cwd=folder,
        )
        return Path(folder, "made").read_bytes()
