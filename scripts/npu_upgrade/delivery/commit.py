"""Make the one commit of a delivery: exactly the given files, signed off, or nothing at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from npu_upgrade.delivery.incoming import Content, in_place
from npu_upgrade.delivery.place import Place
from npu_upgrade.delivery.refusals import check_contents
from npu_upgrade.evidence.subject import Subject, subject_of
from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.job.changes import stage
from npu_upgrade.sources.checkout import Checkout


@dataclass(frozen=True)
class Delivery:
    """A commit that passed every check and is ready to be made.

    ``subject`` is the content that was checked, ``incoming`` the part of it that is not in the working tree
    yet, ``changed`` the files that differ from the base; ``validation`` is what its trailer says of NPU
    hardware, ``pending`` where nothing was validated, and ``said`` the same for people; ``left`` are changed
    files that stay where they are; ``pending`` the emulated runs that the message names so.
    """

    place: Place
    subject: Subject
    changed: list[str]
    text: str
    validation: str
    said: str
    incoming: Mapping[str, Content] = field(default_factory=dict)
    left: Sequence[str] = ()
    pending: Sequence[str] = ()


@dataclass(frozen=True)
class Done:
    """``sha`` of the commit, or None and the ``problem`` a hook made; ``notes`` are for the person.

    ``new`` is False for a commit that was there already.
    """

    sha: str | None
    problem: str = ""
    notes: str = ""
    new: bool = True


def carry_out(delivery: Delivery, *, sign: bool | None) -> Done:
    """Put the incoming files in place and make the commit, or find it made already.

    When there is no commit, the working tree and the index are as they were. Raises :class:`Blocked` when
    git cannot make or sign it.
    """
    place, checkout, files = delivery.place, delivery.place.checkout, delivery.subject.files
    with in_place(checkout.root, delivery.incoming) as keep, checkout.scratch_index() as index:
        check_contents(checkout.root, delivery.incoming)
        stage(checkout, files, index)
        tree = checkout.git("write-tree", index=index).strip()
        signing = _wants_signature(checkout, sign)
        if _is_delivered(delivery, tree, signing):
            # A run that died after git committed has not brought the index up to date.
            done = Done(place.head, notes=_update_index(delivery), new=False)
        else:
            done = _commit(delivery, index, tree, signing)
        if done.sha:
            keep()
    return done


def _wants_signature(checkout: Checkout, asked: bool | None) -> bool:
    """Whether to sign: as asked, else when the person's git is set up for it."""
    if asked is not None:
        return asked
    configured = checkout.config("commit.gpgsign", "bool")
    return configured == "true" or (configured is None and bool(checkout.config("user.signingkey")))


def _is_delivered(delivery: Delivery, tree: str, sign: bool) -> bool:
    """Whether making the commit again would give the same files, message and signature."""
    place, checkout = delivery.place, delivery.place.checkout
    if place.earlier is None or (sign and not place.earlier.signed):
        return False
    message = checkout.git("show", "-s", "--format=%B", place.head).strip()
    signed_off = f"{delivery.text.strip()}\nSigned-off-by: {place.signer}"
    return message == signed_off and checkout.git("rev-parse", f"{place.head}^{{tree}}").strip() == tree


def _commit(delivery: Delivery, index: Path, tree: str, sign: bool) -> Done:
    """Commit ``tree``, which a scratch ``index`` holds (see :meth:`Checkout.scratch_index`).

    ``git commit -- PATHS`` takes no new files, and ``git add`` would change the index of a person whose
    hook then says no.
    """
    place, checkout = delivery.place, delivery.place.checkout
    if checkout.git("rev-parse", "HEAD").strip() != place.head:
        raise Blocked(
            f"HEAD of {checkout.root} moved while the delivery was checked",
            expected="nobody else to commit there meanwhile",
            try_="look at the new commit, then deliver again",
        )
    options = ["--quiet", "--signoff", "--cleanup=whitespace", "-S" if sign else "--no-gpg-sign"]
    options += ["--amend"] if place.earlier else []
    done = checkout.run("commit", *options, "-F", "-", stdin=delivery.text, index=index)
    output = (done.stdout + done.stderr).strip()
    if done.returncode not in (0, 1):  # a hook that refuses gives 1, git's own troubles 128
        raise Blocked(
            f"git could not {'sign' if sign else 'make'} the commit: {done.stderr.strip()}",
            expected="a signing key git can use without asking"
            if sign
            else f"git to commit in {checkout.root}",
            try_="put right what git names (a locked key: ssh-add or gpg-agent), or deliver --no-sign",
        )
    rewritten = _rewritten(checkout, delivery.subject)
    if done.returncode == 1:
        return Done(None, "a hook of the repository refused the commit" + rewritten, output)
    new = checkout.git("rev-parse", "HEAD").strip()
    if checkout.git("rev-parse", f"{new}^{{tree}}").strip() != tree or rewritten:
        why = "deliver: undo, a hook changed the files"
        checkout.git("update-ref", "--create-reflog", "-m", why, "HEAD", place.head, new)
        problem = "a hook of the repository changed what was to be committed; the commit was taken back"
        return Done(None, problem + rewritten, output)
    notes = (output, _update_index(delivery))
    return Done(new, notes="\n".join(note for note in notes if note))


def _update_index(delivery: Delivery) -> str:
    """Bring the user's index to the commit that was made; what kept it from that, or nothing."""
    checkout = delivery.place.checkout
    if checkout.run("diff", "--cached", "--quiet", "--no-ext-diff", "HEAD").returncode == 0:
        return ""
    done = checkout.run("reset", "--quiet", "--", *delivery.subject.files)
    why = done.stderr.strip()
    return why and f"the commit is made, but the index is not up to date ({why}); git reset does it"


def _rewritten(checkout: Checkout, subject: Subject) -> str:
    """Which files are no longer as they were checked."""
    try:
        now = subject_of(checkout.root, subject.files).files
    except BadInput as error:
        return f" ({error.what})"
    changed = sorted(path for path in now if now[path] != subject.files[path])
    return f" (it rewrote {', '.join(changed)}; the rewritten files are kept)" if changed else ""
