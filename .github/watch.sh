#!/usr/bin/env bash
# One look of the watch, as the action runs it. DOWNSTREAM, UPSTREAM, REF, ISSUE, OPEN_PR, SIGN_OFF, FAIL_ON, CLONE
# and ACTION are its inputs; on a machine without GitHub it runs alike.
set -euo pipefail
words=(--omni "dir:$DOWNSTREAM")
if [ -n "${UPSTREAM:-}" ]; then
  if [ -f "$CLONE/HEAD" ]; then
    git -C "$CLONE" fetch --quiet --prune origin "+refs/heads/*:refs/heads/*" --tags
  else
    git clone --quiet --bare "$UPSTREAM" "$CLONE"
  fi
  words+=(--ascend "git:$CLONE@${REF:-main}")
fi
if [ "${ISSUE:-false}" = true ]; then
  words+=(--issue ${GITHUB_REPOSITORY:+"$GITHUB_REPOSITORY"})
fi
if [ "${OPEN_PR:-false}" = true ]; then
  words+=(--open-pr)
fi
if [ -n "${SIGN_OFF:-}" ]; then
  mail=${SIGN_OFF##*<}
  export GIT_AUTHOR_NAME="${SIGN_OFF%% <*}" GIT_AUTHOR_EMAIL="${mail%>}"
  export GIT_COMMITTER_NAME="$GIT_AUTHOR_NAME" GIT_COMMITTER_EMAIL="$GIT_AUTHOR_EMAIL"
fi
result=$(mktemp)
code=0
timeout "${WATCH_SECONDS:-2400}" "${PYTHON:-python3}" "$ACTION/scripts/upgrade.py" watch "${words[@]}" \
  --format json --output "$result" || code=$?
if [ "$code" -ne 0 ] && [ "$code" -ne 1 ] && [ "$code" -ne 4 ]; then
  exit "$code"
fi
"${PYTHON:-python3}" - "$result" >> "${GITHUB_OUTPUT:-/dev/stdout}" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as stream:
    found = json.load(stream)
for name in ("verdict", "summary"):
    print(f"{name}={' '.join(found[name].split())}")
PYTHON
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
  cat "$DOWNSTREAM/.npu-upgrade/watch.md" >> "$GITHUB_STEP_SUMMARY"
fi
case "${FAIL_ON:-broken}:$code" in
  broken:1 | flagged:1 | flagged:4) exit 1 ;;
esac
