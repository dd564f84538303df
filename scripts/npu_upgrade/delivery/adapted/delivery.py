"""Deliver a model: check everything, then make (or make again) its one commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from npu_upgrade.artifacts.facts import Facts, Gap
from npu_upgrade.artifacts.roots import PACKAGES, Root
from npu_upgrade.delivery import refusals
from npu_upgrade.delivery.adapted import message
from npu_upgrade.delivery.adapted.backport import Content, backport
from npu_upgrade.delivery.adapted.export import Patch, export
from npu_upgrade.delivery.adapted.named import Named
from npu_upgrade.delivery.adapted.place import check_free, in_place
from npu_upgrade.delivery.adapted.plugins import check_plugins
from npu_upgrade.delivery.adapted.proof import Proof
from npu_upgrade.delivery.commit import Done, changed_files, make_commit, update_index, wants_signature
from npu_upgrade.delivery.earlier import Earlier, find_earlier, is_as_delivered
from npu_upgrade.delivery.message import written_by_people
from npu_upgrade.delivery.title import check_title, rule_for
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.job.plan_file import Plan
from npu_upgrade.sources.checkout import Checkout, open_checkout


@dataclass(frozen=True)
class Order:
    """What a delivery is asked for. ``documents``: files of the repository that artifacts wrote."""

    name: str
    repo: Path
    roots: list[Root]
    named: Named
    documents: list[str]
    patch_dir: Path | None
    title: str | None
    gaps: list[Gap]


@dataclass(frozen=True)
class Chosen:
    """What goes in: ``local`` files are changed in the repository itself, ``incoming`` ones come from a root.

    ``paths``: all of them, and whether they are there afterwards; ``changed``: those unlike the base.
    """

    local: list[str]
    incoming: dict[str, Content]
    changed: list[str]
    paths: dict[str, bool]
    patches: list[Patch]
    moved: str | None


@dataclass(frozen=True)
class Delivery:
    """A delivery that passed every check and is ready to be made; ``code``: what is no generated document."""

    checkout: Checkout
    branch: str
    head: str
    signer: str
    text: str
    title: str
    code: list[str]
    chosen: Chosen
    earlier: Earlier | None
    proof: Proof

    @property
    def pushed(self) -> list[str]:
        return self.earlier.pushed if self.earlier else []


def prepare(facts: Facts, proof: Proof, order: Order) -> Delivery:
    """Check the checkout and all changes, and write the message; changes nothing.

    Raises :class:`BadInput` for the first thing that stands in the way.
    """
    checkout = open_checkout(order.repo)
    branch = refusals.check_state(checkout, None, f"adapt-{facts.name}")
    signer = refusals.check_identity(checkout)
    head = checkout.git("rev-parse", "HEAD").strip()
    earlier = find_earlier(checkout, f"{message.MODEL}: {facts.name}", _files_of(checkout, head), branch)
    chosen = _choose(
        checkout, order, earlier.base if earlier else head, _files_of(checkout, head) if earlier else []
    )
    refusals.check_staged(checkout, _plan(chosen.paths))
    refusals.check_places(
        checkout, _plan({path: kept for path, kept in chosen.paths.items() if path in chosen.local})
    )
    if not chosen.changed:
        raise BadInput(
            "nothing to commit: neither code nor documents of the model differ from the history",
            expected="changes in --vllm or --ascend, or generated documents",
            try_="adapt.py artifacts MODEL --tree REPO; --ascend-base REF for work that is committed already",
        )
    refusals.check_contents(checkout.root, [path for path in chosen.changed if path in chosen.local])
    check_plugins(checkout.root, chosen.local, proof.standing)
    rule = rule_for(checkout.root)
    default = message.default_title(rule, facts.name)
    wanted = order.title if order.title is not None else earlier.title if earlier else default
    kept = written_by_people(earlier.body, signer, message.MODEL, message.HEADINGS) if earlier else ([], [])
    title = check_title(rule, wanted, default)
    code = [path for path in chosen.changed if path not in order.documents]
    text = message.compose(
        *(facts, proof, title, chosen.changed, code, chosen.patches, order.gaps),
        moved=chosen.moved,
        kept_text=kept[0],
        kept_trailers=kept[1],
    )
    return Delivery(checkout, branch, head, signer, text, title, code, chosen, earlier, proof)


def carry_out(delivery: Delivery, *, sign: bool | None) -> tuple[Done, bool]:
    """Put the files in place, commit them and write the patches; the second value is False for no news.

    When the commit is not made, the working tree is as it was.
    """
    checkout, earlier, chosen = delivery.checkout, delivery.earlier, delivery.chosen
    plan, signing = _plan(chosen.paths), wants_signature(checkout, sign)
    for patch in chosen.patches:
        patch.check()
    new = True
    with in_place(checkout.root, chosen.incoming) as keep:
        refusals.check_places(checkout, plan)
        refusals.check_contents(checkout.root, chosen.incoming)
        subject = plan.subject(checkout.root)
        _, entries = changed_files(checkout, plan, earlier.base if earlier else "HEAD")
        same = earlier and is_as_delivered(checkout, earlier, entries, delivery.text, delivery.signer)
        if earlier and same and (earlier.signed or not signing):
            done, new = Done(earlier.sha, notes=update_index(checkout, entries)), False
        else:
            what = (checkout, plan, subject, delivery.text)
            done = make_commit(*what, head=delivery.head, sign=signing, amend=bool(earlier))
        if done.sha:
            keep()
    if done.sha:
        for patch in chosen.patches:
            patch.write()
    return done, new


def _choose(checkout: Checkout, order: Order, base: str, delivered: list[str]) -> Chosen:
    """Sort all changes; ``delivered`` are the files of an earlier commit of this delivery."""
    here = next((root for root in order.roots if (checkout.root / PACKAGES[root.project]).is_dir()), None)
    same = here is not None and here.checkout.root == checkout.root
    if same and here and here.base not in (base, checkout.git("rev-parse", "HEAD").strip()):
        raise BadInput(
            f"{checkout.root} is the checkout to deliver in, and its work is committed already",
            expected="one commit, made by this command",
            try_=f"git reset --soft {here.base[:12]}, then the same command without a base",
        )
    incoming: dict[str, Content] = {}
    differing: list[str] = []
    if here and not same:
        names = order.named.chosen([one.path for one in here.changed()], here.checkout.root, order.documents)
        # code of an earlier delivery that the root changes no longer
        dropped = [path for path in delivered if path not in names and _is_code(path, here)]
        incoming, differing = backport(here, names, dropped, checkout, base)
    check_free(checkout, incoming)
    everything = [one.path for one in Root("", checkout, base).changed()]
    own = [*order.documents, *incoming, *delivered]
    local = [path for path in order.named.chosen(everything, checkout.root, own) if path not in incoming]
    if here and not same:
        _check_judged(here, checkout, local)
    away = [root for root in order.roots if root is not here]
    patches = [_patch(root, order, checkout) for root in away]
    _check_left(order)
    paths = {path: (checkout.root / path).exists() for path in [*delivered, *local]}
    paths |= {path: content.data is not None for path, content in incoming.items()}
    return Chosen(
        local=sorted(set(local) | (set(delivered) - set(incoming))),
        incoming=incoming,
        changed=sorted({*local, *differing}),
        paths=paths,
        patches=[patch for patch in patches if patch],
        moved=_moved(here, checkout, base) if differing and here else None,
    )


def _is_code(path: str, root: Root) -> bool:
    return path.startswith(f"{PACKAGES[root.project]}/")


def _check_judged(here: Root, checkout: Checkout, local: list[str]) -> None:
    """Code that is changed in the repository only was judged by no gate."""
    path = next((path for path in local if _is_code(path, here)), None)
    if path:
        raise BadInput(
            f"{path} is changed in {checkout.root}, and the gates judged {here.checkout.root}",
            expected="the code of the delivery as it was judged",
            try_=f"make it in {here.checkout.root} and run the gates, or git -C {checkout.root} stash",
        )


def _plan(paths: dict[str, bool]) -> Plan:
    """The files of the commit, in the form in which the upgrade's delivery takes them."""
    return Plan({}, paths, [], [], 0)


def _files_of(checkout: Checkout, sha: str) -> list[str]:
    return checkout.git("show", "--format=", "--name-only", "--no-renames", "-z", sha).split("\0")[:-1]


def _patch(root: Root, order: Order, checkout: Checkout) -> Patch | None:
    names = order.named.chosen([one.path for one in root.changed()], root.checkout.root)
    folder = order.patch_dir or checkout.root.parent
    return export(root, names, folder, order.name) if names else None


def _check_left(order: Order) -> None:
    """What the evidence judged goes in: code that stays out makes it evidence of another tree."""
    for root in order.roots:
        for one in root.changed():
            if _is_code(one.path, root) and order.named.leaves(one.path):
                raise BadInput(
                    f"{one.path} is to stay out, and the gates judged {root.project} with it",
                    expected="evidence of exactly the code that is delivered",
                    try_=f"take it out of {root.checkout.root} (git stash) and run the gates again",
                )


def _moved(root: Root, checkout: Checkout, base: str) -> str | None:
    """Where the judged code stood, when it is not what the commit stands on."""
    package = PACKAGES[root.project]
    trees = (
        root.checkout.ask("rev-parse", f"{root.base}:{package}"),
        checkout.ask("rev-parse", f"{base}:{package}"),
    )
    if trees[0] == trees[1]:
        return None
    return f"judged on {root.project} {root.base[:12]}, backported onto {base[:12]}"
