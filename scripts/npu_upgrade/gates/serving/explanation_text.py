"""An explanation of a log in the form for people."""

from __future__ import annotations

from npu_upgrade.gates.serving.root_cause import Explanation
from npu_upgrade.ground.tables import table

_WIDEST = 200


def as_text(found: Explanation) -> str:
    """The root cause with its next step, and a table of what else the log holds."""
    said = found.as_json()
    parts = []
    if root := said["root"]:
        lines = [
            f"root cause  {root['id']}, line {root['line']}"
            + (f", {root['process']}" if root["process"] else ""),
            f"it says     {root['text'][:_WIDEST]}",
            f"cause       {root['cause']}",
            f"next step   {root['next_step']}",
        ]
        if root["id"] == "UNKNOWN":
            lines += ["", *root["traceback_tail"]]
        else:
            lines.append(f"known from  {', '.join(root['source'])} ({root['versions']})")
        parts.append("\n".join(lines))
    rows = [(name, str(line), "later error") for name, line in said["later"].items()]
    rows += [(name, str(line), "wrapper: passes an error on") for name, line in said["wrappers"].items()]
    if rows:
        parts.append(table(("also in the log", "line", ""), sorted(rows, key=lambda row: int(row[1]))))
    return "\n\n".join(parts)
