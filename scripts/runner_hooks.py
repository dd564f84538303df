"""Which hooks of vLLM and vllm-ascend the runners rely on, release by release.

  runner_hooks.py --check    does references/runner-hooks.md hold, and has every release what is needed?
  runner_hooks.py --write    write it anew
  runner_hooks.py --check --vllm 0.33.0    ask a release that is not in the table

Exit codes: 0 it holds, 1 it does not, 2 wrong arguments, 3 no network or package index.
"""

import sys

sys.dont_write_bytecode = True  # nothing is written into the skill; ensure_tools sends it to the cache

from npu_upgrade.environments.tools import ensure_tools  # noqa: E402

ensure_tools()

import argparse  # noqa: E402

from npu_upgrade.audit.runner_hooks import reference  # noqa: E402
from npu_upgrade.audit.runner_hooks.catalogue import ASCEND, VLLM  # noqa: E402
from npu_upgrade.ground.errors import UpgradeError, report  # noqa: E402
from npu_upgrade.ground.files import write_atomic  # noqa: E402
from npu_upgrade.lineage.catalogue.skill import reference_to_refresh  # noqa: E402


def main() -> int:
    """Read the releases, and check or write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="change nothing")
    what.add_argument("--write", action="store_true", help="write references/runner-hooks.md")
    parser.add_argument("--vllm", metavar="VERSION", help="this release of vLLM only")
    parser.add_argument("--ascend", metavar="VERSION", help="this release of vllm-ascend only")
    given = parser.parse_args()
    only = {VLLM: given.vllm, ASCEND: given.ascend}
    chosen: dict[str, tuple[str, ...]] = {project: (version,) for project, version in only.items() if version}
    if chosen and given.write:
        parser.error("--write takes all releases of the table")
    try:
        return _run(chosen, given.write)
    except UpgradeError as error:
        return report(error, as_text=True)


def _run(chosen: dict[str, tuple[str, ...]], write: bool) -> int:
    sources = reference.read_all(chosen) if chosen else reference.read_all()
    found = reference.problems(sources)
    for problem in found:
        print(problem)
    text = reference.render(sources)
    if write:
        write_atomic(reference_to_refresh().with_name(reference.PATH.name), text)
    elif not chosen and (not reference.PATH.exists() or reference.PATH.read_text(encoding="utf-8") != text):
        found.append("stale")
        print(f"{reference.PATH.name} is stale: python3 scripts/runner_hooks.py --write")
    print(f"runner-hooks: releases={len(sources)} problems={len(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
