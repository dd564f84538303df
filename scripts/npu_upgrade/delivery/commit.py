"""Make the one commit of a delivery: exactly the given files, signed off, or nothing at all."""

from __future__ import annotations

from dataclasses import dataclass

from npu_upgrade.delivery.changes import Entry, at_commit, differing, in_working_tree, put_into_index
from npu_upgrade.evidence.subject import Subject
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.job.plan_file import Plan
from npu_upgrade.sources.checkout import Checkout


@dataclass(frozen=True)
class Done:
    """``sha`` of the commit, or None and the ``problem`` a hook made; ``notes`` are for the person."""

    sha: str | None
    problem: str = ""
    notes: str = ""


def wants_signature(checkout: Checkout, asked: bool | None) -> bool:
    """Whether to sign: as asked, else when the person's git is set up for it."""
    if asked is not None:
        return asked
    configured = checkout.config("commit.gpgsign", "bool")
    return configured == "true" or (configured is None and bool(checkout.config("user.signingkey")))


def make_commit(
    checkout: Checkout,
    plan: Plan,
    subject: Subject,
    message: str,
    *,
    head: str,
    sign: bool,
    amend: bool,
) -> Done:
    """Commit the files of ``plan`` as they are in the working tree, which has to be ``subject``, on ``head``.

    The commit is made from a scratch copy of the index (see :meth:`Checkout.scratch_index`), because
    ``git commit -- PATHS`` takes no new files and ``git add`` would change the index of a person whose
    hook then says no. Raises :class:`Blocked` when git cannot make or sign it; nothing is changed then.
    """
    entries = in_working_tree(checkout, plan.files, at_commit(checkout, head, plan.files), store=True)
    if checkout.git("rev-parse", "HEAD").strip() != head:
        raise Blocked(
            f"HEAD of {checkout.root} moved while the delivery was checked",
            expected="nobody else to commit there meanwhile",
            try_="look at the new commit, then deliver again",
        )
    with checkout.scratch_index() as index:
        put_into_index(checkout, entries.values(), index)
        tree = checkout.git("write-tree", index=index).strip()
        options = ["--quiet", "--signoff", "--cleanup=whitespace", "-S" if sign else "--no-gpg-sign"]
        options += ["--amend"] if amend else []
        done = checkout.run("commit", *options, "-F", "-", stdin=message, index=index)
    said = (done.stdout + done.stderr).strip()
    if done.returncode == 1:  # a hook refused; git's own troubles end with 128
        problem = "a hook of the repository refused the commit"
        return Done(None, problem + _rewritten(checkout, plan, subject), said)
    if done.returncode != 0:
        raise Blocked(
            f"git could not {'sign' if sign else 'make'} the commit: {done.stderr.strip()}",
            expected="a signing key git can use without asking"
            if sign
            else f"git to commit in {checkout.root}",
            try_="put right what git names (a locked key: ssh-add or gpg-agent), or deliver --no-sign",
        )
    return _checked(checkout, plan, subject, entries, head, tree, said)


def _checked(
    checkout: Checkout,
    plan: Plan,
    subject: Subject,
    entries: dict[str, Entry],
    old: str,
    tree: str,
    said: str,
) -> Done:
    """Keep the new commit only when it is what was reviewed: a hook may have added or rewritten files."""
    new = checkout.git("rev-parse", "HEAD").strip()
    rewritten = _rewritten(checkout, plan, subject)
    if checkout.git("rev-parse", f"{new}^{{tree}}").strip() != tree or rewritten:
        why = "deliver: undo, a hook changed the files"
        checkout.git("update-ref", "--create-reflog", "-m", why, "HEAD", old, new)
        problem = "a hook of the repository changed what was to be committed; the commit was taken back"
        return Done(None, problem + rewritten, said)
    return Done(new, notes="\n".join(part for part in (said, update_index(checkout, entries)) if part))


def update_index(checkout: Checkout, entries: dict[str, Entry]) -> str:
    """Bring the user's index to the commit that was made; what kept it from that, or nothing."""
    if checkout.run("diff", "--cached", "--quiet", "--no-ext-diff", "HEAD").returncode == 0:
        return ""
    try:
        put_into_index(checkout, entries.values())
    except Blocked as error:
        return f"the commit is made, but the index is not up to date ({error.what}); git reset does it"
    return ""


def _rewritten(checkout: Checkout, plan: Plan, subject: Subject) -> str:
    try:
        now = plan.subject(checkout.root).files
    except BadInput as error:
        return f" ({error.what})"
    changed = sorted(path for path in now if now[path] != subject.files[path])
    return f" (it rewrote {', '.join(changed)}; the rewritten files are kept)" if changed else ""


def changed_files(checkout: Checkout, plan: Plan, base: str) -> tuple[list[str], dict[str, Entry]]:
    """The files of ``plan`` that differ between ``base`` and the working tree, and all its entries now."""
    before = at_commit(checkout, base, plan.files)
    now = in_working_tree(checkout, plan.files, before)
    return differing(before, now), now
