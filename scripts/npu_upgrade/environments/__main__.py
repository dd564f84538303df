"""``python -m npu_upgrade.environments NAME``: make a missing environment, print its interpreter."""

import sys

from npu_upgrade.environments.tools import require_python


def main(arguments):
    """Print the path of the interpreter of ``tools`` or of a dependency group of pyproject.toml."""
    require_python()
    from npu_upgrade.environments.specs import read_spec
    from npu_upgrade.environments.store import ensure
    from npu_upgrade.ground.errors import UpgradeError, report

    if len(arguments) != 1:
        sys.stderr.write("usage: python -m npu_upgrade.environments NAME (tools, or a dependency group)\n")
        return 2
    try:
        print(ensure(read_spec(arguments[0])))
    except UpgradeError as error:
        return report(error, as_text=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
