"""Make the native parts of the emulator for the torch and torch_npu of one environment.

    python -m npu_emulator.build FOLDER

runs with that environment's interpreter and fills FOLDER: ``lib`` with the emulated CANN libraries,
``opp`` (an empty operator package) and ``_aten_kernels.so``. Needs g++ and nm. Standard library only: it
looks at files and imports neither torch nor torch_npu.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "native"
COMPILER = "g++"
SYMBOLS = "nm"
# the libraries of CANN that torch_npu, its ATB plug-in and torchair are linked to
EMPTY = (
    "hccl", "acl_op_compiler", "ge_runner", "graph", "acl_tdt_channel", "runtime", "opapi", "cust_opapi",
    "atb", "fmk_parser", "ascend_protobuf",
)  # fmt: skip
CHECKED = ("opp", "runtime", "compiler")  # torch_npu wants these folders of a CANN installation
_SYSTEM = (
    "libc.so.6",
    "libm.so.6",
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
)
_DATA = ("_ZTI", "_ZTV", "_ZTS")
_SKIPPED = ("Py", "_Py", "_ITM", "__")


class BuildError(Exception):
    """The compiler or the symbol reader failed; the text is what it printed."""


def build(folder: Path, packages: Path) -> None:
    """Fill ``folder`` for the torch and torch_npu in ``packages`` (a site-packages folder)."""
    lib = folder / "lib"
    lib.mkdir(parents=True, exist_ok=True)
    for name in CHECKED:
        (folder / name).mkdir(exist_ok=True)
    _build_runtime(lib, packages)
    _build_empty(lib)
    _build_kernels(folder, packages)


def _build_runtime(lib: Path, packages: Path) -> None:
    """libascendcl.so: the written functions, and a stub for each symbol nothing else defines."""
    headers = packages / "torch_npu" / "include" / "third_party" / "acl" / "inc"
    written = lib / "acl_runtime.o"
    _run(
        COMPILER,
        "-O1",
        "-std=c++17",
        "-fPIC",
        "-c",
        f"-I{headers}",
        SOURCES / "acl_runtime.cpp",
        "-o",
        written,
    )
    stubs = lib / "stubs.c"
    stubs.write_text(_stub_source(_undefined(packages, written)), encoding="utf-8")
    name = "libascendcl.so"
    _run(
        COMPILER, "-shared", "-fPIC", "-o", lib / name, f"-Wl,-soname,{name}", written, "-x", "c", "-w", stubs
    )


def _undefined(packages: Path, written: Path) -> list[str]:
    """The strong symbols that torch_npu's libraries ask for and nothing defines."""
    asking = _libraries(packages / "torch_npu")
    defining = [
        *asking,
        *_libraries(packages / "torch" / "lib"),
        *_libraries(packages / "torch_npu.libs"),
        written,
    ]
    defined = set().union(
        *(_symbols(library, undefined=False) for library in [*defining, *_system_libraries()])
    )
    wanted = set().union(*(_symbols(library, undefined=True) for library in asking))
    return sorted(name for name in wanted - defined if not name.startswith(_SKIPPED))


def _stub_source(symbols: list[str]) -> str:
    """C for symbols nobody calls on the way: data is zero, CANN's functions succeed, ATB's fail."""
    lines = []
    for symbol in symbols:
        if symbol.startswith(_DATA) or "default_instance" in symbol:
            lines.append(f"char {symbol}[8192];")
        else:
            lines.append(f"long {symbol}() {{ return {1 if symbol.startswith('_ZN3atb') else 0}; }}")
    return "\n".join(lines) + "\n"


def _build_empty(lib: Path) -> None:
    empty = lib / "empty.c"
    empty.write_text("", encoding="utf-8")
    for name in EMPTY:
        target = f"lib{name}.so"
        # a look-up in one of them is to find what libascendcl.so has
        linked = ("-Wl,--no-as-needed", f"-L{lib}", "-lascendcl", "-Wl,-rpath,$ORIGIN")
        _run(
            COMPILER,
            "-shared",
            "-fPIC",
            "-o",
            lib / target,
            f"-Wl,-soname,{target}",
            "-x",
            "c",
            empty,
            *linked,
        )


def _build_kernels(folder: Path, packages: Path) -> None:
    torch = packages / "torch"
    headers = (torch / "include", torch / "include/torch/csrc/api/include", sysconfig.get_paths()["include"])
    _run(
        COMPILER, "-O1", "-std=c++17", "-fPIC", "-shared", "-w",
        "-DTORCH_EXTENSION_NAME=_aten_kernels", "-DTORCH_API_INCLUDE_EXTENSION_H",
        *(f"-I{path}" for path in headers),
        SOURCES / "aten_kernels.cpp", "-o", folder / "_aten_kernels.so",
        f"-L{torch / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10", "-ltorch_python",
    )  # fmt: skip


def _libraries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.so*") if path.is_file())


def _system_libraries() -> list[Path]:
    found = (Path(_run(COMPILER, f"-print-file-name={name}").strip()) for name in _SYSTEM)
    return [path for path in found if path.is_absolute() and path.exists()]


def _symbols(library: Path, *, undefined: bool) -> set[str]:
    """The dynamic symbols a library asks for (strong ones), or defines."""
    which = "--undefined-only" if undefined else "--defined-only"
    dynamic = [] if library.suffix == ".o" else ["-D"]
    names = set()
    for line in _run(SYMBOLS, *dynamic, which, library).splitlines():
        kind, name = line.split()[-2:]
        if not undefined or kind == "U":
            names.add(name.partition("@")[0])
    return names


def _run(*command: str | Path) -> str:
    try:
        ended = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be started: {error.strerror}") from error
    if ended.returncode != 0:
        tail = "\n".join(ended.stderr.strip().splitlines()[-12:])
        raise BuildError(f"{command[0]} failed (exit {ended.returncode}):\n{tail}")
    return ended.stdout


def main(arguments: list[str]) -> int:
    """Build into the one argument; print what failed on stderr."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m npu_emulator.build FOLDER\n")
        return 2
    try:
        build(Path(arguments[0]), Path(sysconfig.get_paths()["platlib"]))
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
