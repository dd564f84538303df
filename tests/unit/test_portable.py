"""Keys and ids of code are the same under every Python: a job begun with one goes on with another."""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lineage_kit import write_tree
from merge_kit import OURS, make_world

from npu_upgrade.code.portable import tokens, unparse

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")

SOURCES = [
    """x = f"{a['b']}" """,
    """x = f'{a["b"]}' + f"{a['b']!r:>{w}}" """,
    """x = f"it's {a['b']} \\"now\\"" """,
    """x = f'''{a["it's"]} "''' """,
    """x = f'{x=}' f"{x = !s:>3}" """,
    """x = f"{{}} {{{x}}} {{x}}" """,
    """x = f"{x:\\n}" """,
    """x = f"{now:%H:%M:%S}" f"{n:{w}.{p}f}" """,
    """x = f"\\N{EM DASH}{x}\\t\\x00é" """,
    """x = rf"\\d{x}\\\\" """,
    """x = f"" f"{x:}" "" """,
    """x = f"{'a' if b else 'c'}{(lambda: 'd')()}{(lambda: 1)}" """,
    """x = f"{ {'a': 1}['a'] }{[f'{y}' for y in z]}" """,
    """x = f"{(y := 'z')}{*a, b}{not a}" """,
    """x = f"{f'{a!r}' + 'b'}" "c" """,
    '''x = f"""one
  {a["b"]} two
    {c}
"""''',
    '''def f(self):
    x = g(
        f"""one {
            a
        }
  two""",
        b"\\x00",
    )
    return x''',
    """x = f"one \\
  {two}" """,
    '''def f():
    """One \\\\ two \\n three.

        Four 'five' "six".
    """''',
    '''class A(B, metaclass=C):
    r"""A \\d."""
    x: int = 0xFF + 1_000 + 1e5 + 0b11 + 1.5j + 1e400''',
    """with (open(a) as b, open(c) as d):
    pass""",
    """if (n := len(a)) > 1 and not (lambda *a, b=1, **c: a)(): pass
elif x: pass
else: pass""",
    """a, *b = *c, d
for x, y in *a, b: z[x, 1:2] = z[(*a,)], (yield)""",
    """try:
    pass
except (A, B) as e: raise C from e
finally:
    del a, b""",
    """@f(g)
@h["i"].j
async def k(a, /, b: int = 1, *, c="d", **e) -> "f": await (yield)""",
    """match x:
    case {"a": [1, *_], **rest} | A(b="c") if rest:
        pass
    case (a, b) | -1 | None:
        pass""",
    """x = "a" 'b' "it's" 'say "x"' u"c" if a else ("日本語 é 😀" "\\u200b")
名 = r'\\d' """,
    """x = (a  # why
    + b)  # what

# end""",
    """def f():
    if a:
        b
    # after
  # between
    c""",
]

PROBE = """
import ast, json, sys, warnings
warnings.simplefilter("ignore")
from npu_upgrade.lineage.catalogue.derive import block_id
from npu_upgrade.ground.files import sha256
from npu_upgrade.program.conditions import text_of
from npu_upgrade.code.signatures import plain_text, signature
from npu_upgrade.code.statements import END, render, split_statements
from npu_upgrade.merge.conflict_identity import conflict_key
from npu_upgrade.lineage.dialect import translate
from npu_upgrade.lineage.items import item_id
from npu_upgrade.threeway.expressions import merge_statement

def ids(source):
    found = split_statements(source)
    keys = [s.key for s in found]
    shown = {
        "statements": [[s.indent, s.key, s.lines, s.blanks, len(s.comments)] for s in found],
        "moved": render([s.shifted(4) for s in found]),
        "block": block_id("A.f", keys),
        "conflict": conflict_key(source, source + "\\nx = f'{a}'", source),
        "merged": [merge_statement(k, k.replace("a", "c"), k.replace("x", "y"), frozenset()) for k in keys],
    }
    tree = ast.parse(source)
    defined = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    shown["items"] = [item_id("conflict", plain_text(n), signature(n), text_of(n)) for n in defined]
    shown["whole"] = plain_text(tree)
    shown["translated"] = translate("CUDAGraphWrapper\\n" + source + "\\nf'{torch.cuda.x(CUDAGraphWrapper)}'")
    return shown

print(json.dumps([{"source": s, **ids(s)} for s in json.load(sys.stdin)], default=repr))
"""


def interpreter(version: str) -> str:
    """The Python of a version; skips the test where there is none."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    uv = Path(sys.executable).with_name("uv")
    asked = [str(uv), "python", "find", "--no-project", "--no-python-downloads", version]
    # pyenv's commands answer only for the versions that are chosen.
    environment = os.environ | {"PYENV_VERSION": version}
    found = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"no Python {version} on this machine; get it with: {uv} python install {version}")
    return found.stdout.strip()


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the fixture that gives each test its own cache: environments are made once."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


def python_of(version: str) -> str:
    """A Python of that version with the compiled packages for it, in an environment of its own."""
    own = interpreter(version)
    if own == sys.executable:
        return own
    made = subprocess.run(
        [own, "-m", "npu_upgrade.environments", "tools"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@functools.cache
def ids_under(version: str) -> list[dict]:
    result = subprocess.run(
        [python_of(version), "-c", PROBE],
        input=json.dumps(SOURCES),
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts"), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.network
@pytest.mark.parametrize("version", PYTHONS[1:])
def test_every_python_gives_code_the_same_ids(version):
    for one, other in zip(ids_under(PYTHONS[0]), ids_under(version), strict=True):
        assert one == other


@pytest.mark.parametrize("source", SOURCES)
def test_written_code_is_the_same_code(source):
    tree = ast.parse(source)
    assert ast.dump(ast.parse(unparse(tree))) == ast.dump(tree)


def test_writing_leaves_the_tree_as_it_is():
    tree = ast.parse(SOURCES[0])
    before = ast.dump(tree)
    assert unparse(tree) == """x = f"{a['b']}\""""
    assert ast.dump(tree) == before


def test_an_f_string_is_one_token():
    text = '''x = f"""{a}
{f'{b}'} c""" + d'''
    strings = [token.string for token in tokens(text) if token.string.startswith("f")]
    assert strings == [text[4:-4]]


WINDOWS = """
import ctypes, fcntl, multiprocessing, os, signal, shutil, subprocess, sys, types, warnings

def lock(file, flags, reserved, low, high, place):
    try:
        kind = fcntl.LOCK_EX if flags & 2 else fcntl.LOCK_SH
        fcntl.flock(file.value, kind | (fcntl.LOCK_NB if flags & 1 else 0))
    except BlockingIOError:
        return 0
    return 1

ctypes.WinDLL = lambda name, use_last_error: types.SimpleNamespace(LockFileEx=lock)
ctypes.get_last_error = lambda: 33
sys.modules["msvcrt"] = types.SimpleNamespace(get_osfhandle=lambda number: number)
import psutil  # has a side for each system, this one's here
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in (
    "fork", "forkpty", "getegid", "geteuid", "getgid", "getpgid", "getuid", "killpg", "mkfifo", "pread",
    "pwrite", "sched_getaffinity", "setsid", "uname", "wait4",
):
    delattr(os, name)
del signal.SIGALRM, signal.SIGHUP, signal.SIGKILL, signal.SIGUSR1
multiprocessing.get_all_start_methods = lambda: ["spawn"]
shutil._use_fd_functions = False
opened = os.open

def no_folder(path, *flags, **more):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return opened(path, *flags, **more)

os.open = no_folder
warnings.filterwarnings("error", category=EncodingWarning, module="npu_upgrade")
"""
"""What Windows lacks is gone, and its locks are played by those of this system.

Text that is read or written in the encoding of the locale, which is not UTF-8 there, is an error.
"""


def on_windows(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT / "scripts"), "XDG_CACHE_HOME": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-c", f"{WINDOWS}\n{code}"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_static_commands_run_where_there_is_no_fcntl(tmp_path: Path) -> None:
    code = "sys.argv[1:] = ['env', 'list']\nfrom npu_upgrade.cli.main import upgrade\nsys.exit(upgrade())"
    done = on_windows(code, tmp_path)
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "PASS"), done.stderr


def test_an_upgrade_is_walked_statically_where_there_is_no_fork_and_another_locale(tmp_path: Path) -> None:
    world = make_world(tmp_path, OURS.replace("self.said = batch", "self.said = 'é ☃'"))
    vllm = tmp_path / "vllm-source"
    write_tree(vllm / "vllm", {"__init__.py": "", "config.py": "class VllmConfig:\n    pass\n"})
    log = tmp_path / "serve.log"
    log.write_text("ImportError: cannot import name 'shape' from 'somewhere'\n")
    omni, ascend = f"dir:{world.omni}", ("--ascend", world.target)
    pair = ("--omni", omni, *ascend)
    baseline = (f"git:{world.omni}@main", f"git:{world.ascend}@old", f"dir:{vllm}")
    walk = [
        ("watch", *pair, "--upstream", f"dir:{vllm}"),
        ("watch", "--log", log, "--workspace", world.omni),
        ("lineage", "--omni", omni, "--ascend", f"git:{world.ascend}"),
        ("merge", *pair, "--apply"),
        ("plan",),
        ("audit", "--vllm", f"dir:{vllm}", "--baseline", *baseline),
        ("blocks", *pair),
        ("explain", log),
        ("next",),
        ("status",),
        ("report",),
        ("evidence", "list"),
    ]
    code = f"""
import json
from npu_upgrade.cli import main, programs
for words in {[[str(word) for word in words] for words in walk]!r}:
    print(f"# {{words[0]}}", flush=True)
    print("#", main.main("upgrade.py", "", programs.UPGRADE, [*words, "--format", "json"]), flush=True)
"""
    done = on_windows(f"os.chdir({str(world.omni)!r})\n{code}", tmp_path / "cache")
    told = [line[2:] for line in done.stdout.split("\n") if line.startswith("# ")]
    ended = dict(zip(told[::2], map(int, told[1::2]), strict=True))
    assert ended.keys() == {words[0] for words in walk}, done.stderr
    assert set(ended.values()) <= {0, 1, 4}, f"{ended}\n{done.stdout}\n{done.stderr}"


def test_without_fcntl_a_lock_is_shared_or_held_alone(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from npu_upgrade.ground import locks
folder = Path({str(tmp_path)!r}) / "environment"
locks.use(folder)
with locks.alone_now(folder) as alone:
    print(alone)
with locks._open(folder) as other:
    locks._take(other, locks.fcntl.LOCK_SH, "")
locks.release(folder)
with locks.alone_now(folder) as alone:
    print(alone)
with locks.locked(Path({str(tmp_path)!r}) / "file") as nothing:
    print(nothing)
"""
    done = on_windows(code, tmp_path)
    assert done.stdout.split() == ["False", "True", "None"], done.stderr
