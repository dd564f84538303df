"""Validate an upgrade on this machine, without a network; further options are those of validate.

The interpreter that serves is that of the vllm on PATH, or --python. Around it a thin environment is made in
which the packed checkout is what is imported; nothing is installed into it or written outside of DIR. The
evidence is left as one file, for `upgrade.py evidence import` where the upgrade is.
"""

# Run alone, by any Python: imports nothing of this bundle.

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

STARTED_BY = "NPU_UPGRADE_PACK_STARTED_BY"


class Stop(Exception):
    """Why it cannot go on: ``code`` 2 for wrong input, 3 for what this machine lacks."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code


def main(argv: list[str], source: Path) -> int:
    parser = argparse.ArgumentParser(prog=f"python3 {source.name}", description=__doc__)
    parser.add_argument("--into", type=Path, metavar="DIR", help="a new folder, or that of an earlier run")
    parser.add_argument("--python", default="", help="the interpreter that serves")
    at = argv.index("--") if "--" in argv else len(argv)
    args, more = parser.parse_known_args(argv[:at])
    try:
        _go_on_in(_serving(args.python), argv, source)
        with zipfile.ZipFile(source) as packed:
            index = _checked(packed)
            folder = (args.into or Path(f"validate-{index['job']}")).absolute()
            _unpack(packed, index, folder, _digest(source.read_bytes()))
        return _validate(index, folder, _environment(index["version"], folder), [*more, *argv[at:]])
    except Stop as stop:
        sys.stderr.write(f"error: {stop}\n")
        return stop.code


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _checked(packed: zipfile.ZipFile) -> dict:
    """The index of a pack whose files are all as they were packed."""
    index = json.loads(packed.read("pack.json"))
    there = {name: _digest(packed.read(name)) for name in packed.namelist()}
    del there["__main__.py"], there["pack.json"]
    wrong = sorted({name for name, _ in there.items() ^ index["files"].items()})
    if wrong:
        raise Stop(2, f"the pack is damaged ({', '.join(wrong[:5])}); copy it again from where it was made")
    return index


def _serving(text: str) -> Path:
    """The interpreter that has vLLM; the tools run in it, too, so it has to be new enough for them."""
    script = shutil.which("vllm")
    if not text and script is None:
        raise Stop(3, "there is no vllm on PATH; name the interpreter that serves: --python /path/to/python")
    return (Path(text) if text else interpreter_of(Path(script or ""))).absolute()


def interpreter_of(script: Path) -> Path:
    """The interpreter that a console script names in its first line, or the one beside it."""
    with open(script, "rb") as stream:
        named = Path(stream.readline(4096).decode("utf-8", "replace").removeprefix("#!").strip())
    if named.name.startswith("python") and named.is_absolute() and named.exists():
        return named
    beside = script.resolve().with_name("python")
    return beside if beside.exists() else beside.with_name("python3")


def _go_on_in(python: Path, argv: list[str], source: Path) -> None:
    """Return in the interpreter that serves, whichever began."""
    if sys.executable != str(python) and STARTED_BY not in os.environ:
        os.environ[STARTED_BY] = sys.executable
        try:
            os.execv(python, [str(python), str(source), *argv])
        except OSError as error:
            raise Stop(3, f"{python} does not run: {error}") from error
    if sys.version_info < (3, 11):  # noqa: UP036 - nobody has checked it before
        raise Stop(3, f"{python} is older than Python 3.11")


def _unpack(packed: zipfile.ZipFile, index: dict, folder: Path, digest: str) -> None:
    """Lay out skill, checkout and job once; a later run of the same pack goes on in the same folder."""
    done = folder / "unpacked"
    if done.exists() and done.read_text("utf-8") == digest:
        return
    if folder.exists() and any(folder.iterdir()):
        raise Stop(2, f"{folder} holds something else; name another folder: --into DIR")
    with tarfile.open(fileobj=io.BytesIO(packed.read("checkout.tar"))) as archive:
        archive.extractall(folder / "checkout", filter="data")
    for name in index["gone"]:
        (folder / "checkout" / name).unlink(missing_ok=True)
    for name in index["files"].keys() - {"checkout.tar"}:  # over the commit's own
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(packed.read(name))
    job = folder / "checkout/.npu-upgrade/jobs" / index["job"] / "job.json"
    here = {"repo": str(folder / "checkout"), "out": None, "branch": None}
    job.write_text(json.dumps(json.loads(job.read_text("utf-8")) | here), "utf-8")
    done.write_text(digest, "utf-8")


def _environment(version: str, folder: Path) -> Path:
    """An interpreter with all that this one has, but for the packed checkout, which comes first."""
    checkout, root = folder / "checkout", folder / "venv"
    if not root.exists():
        venv.create(root, symlinks=True)
    (packages,) = (root / "lib").glob("python3*/site-packages")
    more = [f"import site; site.addsitedir({place!r})" for place in site.getsitepackages()]
    (packages / "checkout.pth").write_text("\n".join([str(checkout), *more]) + "\n", "utf-8")
    _tell(version, checkout, packages)
    return root / "bin/python"


def _tell(version: str, checkout: Path, packages: Path) -> None:
    """What an editable install writes of a checkout: its name, version, entry points and place."""
    import tomllib  # here: the Python that began may be too old for it

    told = checkout / "pyproject.toml"
    project = tomllib.loads(told.read_text("utf-8")).get("project", {}) if told.exists() else {}
    if not (name := project.get("name")):
        return
    groups = {"console_scripts": project.get("scripts", {})} | project.get("entry-points", {})
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    info = packages / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8")
    (info / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    origin = {"url": checkout.as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(origin), "utf-8")


def _validate(index: dict, folder: Path, python: Path, more: list[str]) -> int:
    workspace = folder / "checkout"
    program = [str(python), str(folder / "skill/scripts/upgrade.py")]
    words = index["arguments"]
    at = words.index("--") if "--" in words else len(words)
    asked = [*words[:at], "--python", str(python), "--workspace", str(workspace)]
    passed_on = words[at:] if "--" not in more else []  # what is given here counts
    code = subprocess.run([*program, "validate", "--format", "text", *asked, *more, *passed_on]).returncode
    if runs := _runs(workspace):
        out = folder / "evidence.tar.gz"
        packing = ["evidence", "pack", *runs, "--out", str(out), "--workspace", str(workspace)]
        packed = subprocess.run([*program, *packing], stdout=subprocess.PIPE).returncode
        if packed:
            return code or packed
        sys.stderr.write(
            f"the evidence of {len(runs)} runs is {out}\n  there: upgrade.py evidence import FILE\n"
        )
    else:
        sys.stderr.write("nothing was run, so there is no evidence to take along\n")
    return code


def _runs(workspace: Path) -> list[str]:
    """The runs of this machine, oldest first: of those before them the pack has the records only."""
    evidence = workspace / ".npu-upgrade/evidence"
    lines = (evidence / "evidence.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line)["data"].get("run") for line in lines if not line.endswith("#torn")]
    return [run for run in found if run and (evidence / "runs" / run).is_dir()]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main(sys.argv[1:], Path(sys.argv[0])))
