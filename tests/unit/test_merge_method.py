"""The rules of a method's three-way merge, one each, on small methods."""

from __future__ import annotations

import ast
import textwrap

import pytest

from npu_upgrade.code.statements import Statement, split_statements
from npu_upgrade.code.uses import free_names
from npu_upgrade.threeway.expressions import merge_statement
from npu_upgrade.threeway.layout import as_written
from npu_upgrade.threeway.method import Context, merge_method
from npu_upgrade.threeway.pieces import Conflict, MergedMethod, as_module, resolved, syntax_error


def method(body: str) -> str:
    return textwrap.indent(
        "def step(self, batch):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    "), "    "
    )


def merge(base: str, ours: str, theirs: str, context: Context | None = None) -> MergedMethod:
    return merge_method(*(split_statements(method(side)) for side in (base, ours, theirs)), context=context)


def check(merged: MergedMethod, want: str, *flags: str) -> None:
    assert merged.text() == method(want)
    assert [flag.kind for flag in merged.flags] == [*flags]


BASE = """
    tokens = self.prepare(batch)
    hidden = self.model(tokens, mask=None)
    logits = self.sample(hidden)
    return logits
"""


def test_edits_of_neighbouring_lines_both_apply():
    ours = BASE.replace("self.prepare(batch)", "self.prepare(batch, omni=True)")
    theirs = BASE.replace("mask=None", "mask=self.mask")
    check(merge(BASE, ours, theirs), ours.replace("mask=None", "mask=self.mask"))


def test_keyword_arguments_of_both_sides_combine_in_ours_order():
    ours = BASE.replace("mask=None", "omni=1, mask=None")
    theirs = BASE.replace("mask=None", "mask=None, graph=self.graph")
    want = BASE.replace("mask=None", "omni=1, mask=None, graph=self.graph")
    check(merge(BASE, ours, theirs), want)


def test_two_operands_of_and_changed_by_two_sides_are_no_question_but_two_terms_of_a_sum_are():
    base, ours, theirs = "ok = g().f and not h(x)", "ok = g().f and not h(y)", "ok = graph.f and not h(x)"
    check(merge(base, ours, theirs), "ok = graph.f and (not h(y))")
    check(merge("n = a + b", "n = a + c", "n = d + b"), "n = d + c", "combined")


def test_omnis_subclass_takes_what_upstream_newly_passes_by_name():
    base, theirs = "out = Output(ids=a, pool=[])", "out = Output(ids=a, pool=[], stats=s)"
    ours = "out = OmniOutput(ids=a, pool=p, spans=x)"
    check(merge(base, ours, theirs), "out = OmniOutput(ids=a, pool=p, spans=x, stats=s)")
    check(
        merge(base, ours.replace("OmniOutput", "Payload"), theirs),
        ours.replace("OmniOutput", "Payload"),
        "callee",
    )


def test_where_both_append_to_a_tuple_upstreams_item_comes_first():
    base = "state = (batch, self.spans)"
    merged = merge(base, "state = (batch, self.spans, self.omni)", "state = (batch, self.spans, self.graph)")
    check(merged, "state = (batch, self.spans, self.graph, self.omni)", "combined")


def test_another_spelling_of_a_type_is_no_change():
    base, ours = "mask: Optional[Tensor] = None", "mask: Tensor | None = self.omni"
    check(merge(base, ours, "mask: Optional[Tensor | Mask] = None"),
          "mask: Optional[Tensor | Mask] = self.omni", "combined")  # fmt: skip


def test_omnis_own_call_keeps_its_arguments_and_is_flagged():
    ours = BASE.replace("self.model(tokens, mask=None)", "self.omni_model(tokens)")
    theirs = BASE.replace("mask=None", "mask=None, graph=1")
    check(merge(BASE, ours, theirs), ours, "callee")


def test_a_keyword_in_a_dict_display_is_the_same_keyword():
    ours = BASE.replace("mask=None", 'mask=None, **{"graph": 1}')
    theirs = BASE.replace("mask=None", "mask=None, graph=1")
    check(merge(BASE, ours, theirs), theirs)


def test_what_omni_dropped_and_upstream_changed_stays_dropped_and_is_flagged():
    ours = BASE.replace("    logits = self.sample(hidden)\n", "").replace("return logits", "return hidden")
    theirs = BASE.replace("self.sample(hidden)", "self.sample(hidden, self.graph)")
    merged = merge(BASE, ours, theirs)
    check(merged, ours, "replaced")
    assert "self.sample(hidden, self.graph)" in merged.flags[0].theirs


def test_an_argument_that_omni_dropped_and_upstream_changed_is_flagged():
    ours = BASE.replace(", mask=None", "")
    merged = merge(BASE, ours, BASE.replace("mask=None", "mask=self.mask"))
    check(merged, ours, "combined")
    assert "mask" in merged.flags[0].reason


def test_a_pure_deletion_by_upstream_is_followed():
    theirs = BASE.replace("    logits = self.sample(hidden)\n", "")
    assert "self.sample" not in merge(BASE, BASE, theirs).text()


GAP = "tokens = self.prepare(batch)\nreturn tokens"


def test_two_insertions_at_one_place_stand_upstreams_first():
    ours = GAP.replace("\nreturn", "\nself.omni(batch)\nreturn")
    theirs = GAP.replace("\nreturn", "\nself.graph(batch)\nreturn")
    want = GAP.replace("\nreturn", "\nself.graph(batch)\nself.omni(batch)\nreturn")
    check(merge(GAP, ours, theirs), want, "both-added")


@pytest.mark.parametrize(
    ("omni", "upstream", "asked"),
    [
        ("self.omni = 1", "self.graph = 2", False),
        (
            "kept = getattr(self, 'kept', 0)\nself.kept = 0",
            "pp = group()\nskip = self.last and pp.size",
            False,
        ),
        ("out.kept = kept", "if self.timed:\n    self.wait()\n    out.seconds = now() - begun", False),
        ("self.omni = 1", "self.omni = 2", True),
        ("spans = batch.spans", "late = spans", True),
        ("self.omni = 1", "self.record(batch)", True),  # which may read it
        ("rows = batch.rows", "batch.rows[0] = 1", True),
        ("self.count = 1", "self.count.most += 1", True),
        ("torch.wait()", "copy(batch)", True),
        ("kept: int", "seen: int", True),
        ("def late():\n    return 1", "first = late", True),
        ("import late", "first = late", True),
        ("for row in batch:\n    yield row", "late = 1", True),
    ],
)
def test_the_order_is_asked_about_where_it_may_matter(omni, upstream, asked):
    def added(text: str) -> str:
        return GAP.replace("\nreturn", f"\n{text}\nreturn")

    merged = merge(GAP, added(omni), added(upstream))
    assert [flag.kind for flag in merged.flags] == ["both-added"] * asked
    assert upstream.split("\n")[0] in merged.text()


def test_unless_upstream_reads_what_omni_assigns():
    ours = GAP.replace("\nreturn", "\nspans = self.omni()\nreturn")
    theirs = GAP.replace("\nreturn", "\nself.record(spans)\nreturn")
    want = GAP.replace("\nreturn", "\nspans = self.omni()\nself.record(spans)\nreturn")
    check(merge(GAP, ours, theirs), want, "both-added")


def test_an_insertion_that_belongs_to_the_block_before_stays_in_it():
    base = "if batch:\n    tokens = self.prepare(batch)\nreturn batch"
    ours = base.replace("\nreturn", "\nwith self.omni():\n    self.flush(batch)\nreturn")
    theirs = base.replace("\nreturn", "\n    self.record(tokens)\nreturn")
    want = base.replace(
        "\nreturn", "\n    self.record(tokens)\nwith self.omni():\n    self.flush(batch)\nreturn"
    )
    check(merge(base, ours, theirs), want)


def test_omni_code_goes_into_the_block_that_upstream_opens_around_what_follows():
    base = "tokens = self.prepare(batch)\nhidden = self.model(tokens, batch)\nreturn hidden"
    ours = base.replace("\nhidden", "\nself.omni(tokens)\nhidden")
    theirs = """
        tokens = self.prepare(batch)
        with self.graph():
            hidden = self.model(tokens, batch)
        return hidden
    """
    want = theirs.replace("    hidden =", "    self.omni(tokens)\n            hidden =")
    check(merge(base, ours, theirs), want, "both-added")


def test_an_edit_inside_a_run_that_omni_wrapped_stays_inside():
    ours = """
        tokens = self.prepare(batch)
        # -------- omni: own stream
        with self.stream():
            hidden = self.model(tokens, mask=None)
            logits = self.sample(hidden)
        return logits
    """
    theirs = BASE.replace("self.sample(hidden)", "self.sample(hidden, self.graph)")
    check(merge(BASE, ours, theirs), ours.replace("self.sample(hidden)", "self.sample(hidden, self.graph)"))


def test_a_statement_that_both_sides_wrapped_and_one_changed_moves_once():
    base = """
        if self.cache is not None:
            hidden = self.cache.hidden_of(start=self.start, batch=batch, hidden=hidden, count=count)
            outputs = self.cache.outputs_of(start=self.start, batch=batch, outputs=outputs, count=count)
        return hidden, outputs
    """
    ours = """
        if self.cache is not None:
            if self.needs_all():
                hidden = self.cache.hidden_of(start=self.start, batch=batch, hidden=hidden, count=count)
            outputs = self.cache.outputs_of(start=self.start, batch=batch, outputs=flat(outputs), count=count)
        return hidden, outputs
    """
    theirs = ours.replace("hidden=hidden,", "hidden=hidden, staged=staged,").replace(
        "            if self.needs_all",
        "            if not self.needs_all() and not self.cache.found():\n                return None, None\n"
        "            if self.needs_all",
    )
    check(merge(base, ours, theirs), theirs)


def test_an_edit_of_omni_inside_a_run_that_upstream_wrapped_stays_inside():
    theirs = """
        tokens = self.prepare(batch)
        with self.stream():
            hidden = self.model(tokens, mask=None)
            logits = self.sample(hidden)
        return logits
    """
    ours = BASE.replace(
        "    logits = self.sample(hidden)", "    # -------- omni: spans\n    logits = self.spans(hidden)"
    )
    want = theirs.replace("    logits = self.sample(hidden)",
                          "    # -------- omni: spans\n            logits = self.spans(hidden)")  # fmt: skip
    check(merge(BASE, ours, theirs), want)


def test_two_values_for_one_argument_are_a_conflict():
    merged = merge(BASE, BASE.replace("mask=None", "mask=1"), BASE.replace("mask=None", "mask=2"))
    (conflict,) = merged.conflicts
    assert [s.key for s in conflict.ours] == ["hidden = self.model(tokens, mask=1)"]
    assert [s.key for s in conflict.theirs] == ["hidden = self.model(tokens, mask=2)"]


def test_a_conflict_has_git_style_markers_with_the_labels():
    merged = merge("return 1", "return 2", "return 3")
    assert merged.text(("omni", "vllm-ascend 0.1", "vllm-ascend 0.2")).split("\n")[1:] == [
        "<<<<<<< omni", "        return 2", "||||||| vllm-ascend 0.1", "        return 1", "=======",
        "        return 3", ">>>>>>> vllm-ascend 0.2",
    ]  # fmt: skip


def test_what_omni_only_added_behind_a_conflict_stays_out_of_it():
    ours = BASE.replace("mask=None", "mask=1").replace("    logits", "    self.omni.flush(batch)\n    logits")
    merged = merge(BASE, ours, BASE.replace("mask=None", "mask=2"))
    (conflict,) = merged.conflicts
    assert len(conflict.ours) == 1
    assert "self.omni.flush(batch)" in [piece.key for piece in merged.pieces if piece is not conflict]


def test_what_all_three_share_around_a_conflict_stays_out_of_it():
    base = "output += 1\ntokens = self.build(mode=self.config, uniform=(slots, output))"
    ours = (
        "if mask:\n    tokens = self.build(mode=self.config, uniform=(slots, output))\n    self.drafter = 1"
    )
    (conflict,) = merge(base, ours, "state += 1\n" + base).conflicts
    assert "def step(self, batch):" not in [s.key for s in (*conflict.base, *conflict.ours, *conflict.theirs)]


def test_what_upstream_dropped_and_omni_changed_is_asked():
    ours = BASE.replace("mask=None", "mask=self.omni")
    theirs = BASE.replace("    hidden = self.model(tokens, mask=None)\n", "").replace("(hidden)", "(tokens)")
    assert merge(BASE, ours, theirs).conflicts


def test_but_stays_when_all_it_uses_still_exists():
    base = BASE + "    self.finish(batch, 1)\n"
    ours, theirs = base.replace("finish(batch, 1)", "finish(batch, self.omni)"), BASE
    check(merge(base, ours, theirs, Context(exists=lambda name: True)), ours, "dropped")


def test_and_is_asked_with_the_names_that_are_gone():
    base = BASE + "    self.finish(batch, 1)\n"
    ours, theirs = base.replace("finish(batch, 1)", "finish(batch, self.omni)"), BASE
    (conflict,) = merge(base, ours, theirs, Context(exists=lambda name: name != "finish")).conflicts
    assert conflict.reason.endswith("gone with it: finish")


def test_a_definition_that_is_still_read_comes_back():
    # omni had dropped the spans; upstream now reads them further down
    base = """
        tokens = self.prepare(batch)
        spans = self.spans(tokens)
        self.record(spans)
        return self.model(tokens)
    """
    ours = "tokens = self.prepare(batch)\nreturn self.model(tokens)"
    theirs = base.replace("spans(tokens)", "spans(tokens, 2)").replace(
        "model(tokens)", "model(tokens, spans)"
    )
    want = "tokens = self.prepare(batch)\nspans = self.spans(tokens, 2)\nreturn self.model(tokens, spans)"
    check(merge(base, ours, theirs), want)


def test_a_combination_that_is_no_python_becomes_a_conflict():
    # omni does both always; an ``elif`` of upstream has no ``if`` to belong to
    base = "if batch:\n    self.a(batch, 1)\nelse:\n    self.b(batch, 2)\nreturn batch"
    ours = "self.a(batch, 1)\nself.b(batch, 2)\nreturn batch"
    theirs = base.replace("else:", "elif self.c:\n    self.c(batch, 3)\nelse:")
    merged = merge(base, ours, theirs)
    (conflict,) = merged.conflicts
    assert "elif self.c:" in [s.key for s in conflict.theirs]
    for side in ("ours", "theirs"):
        ast.parse(as_module(MergedMethod(tuple(resolved(merged.pieces, side))).text()))


def test_a_comment_of_omni_behind_the_last_statement_survives_its_deletion():
    base = BASE + "    self.finish(batch, 1)\n"
    ours = BASE + "    # -------- omni: ask for the spans\n    self.finish(batch, 1)\n"
    assert "# -------- omni: ask for the spans" in merge(base, ours, BASE).text()


def test_a_comment_of_omni_on_a_deleted_line_goes_to_its_neighbour():
    base = "self.first(batch, 1)\nself.second(batch, 2)\nself.third(batch, 3)\nreturn batch"
    ours = base.replace("self.third", "self.omni = 1\n# -------- omni: why\nself.third")
    theirs = "self.first(batch, 1)\nreturn batch"
    want = "self.first(batch, 1)\n# -------- omni: why\nself.omni = 1\nreturn batch"
    check(merge(base, ours, theirs), want)


def test_a_comment_of_omni_inside_a_line_survives_a_new_layout():
    ours = BASE.replace("mask=None)", "mask=None, omni=1)  # -------- omni: spans")
    merged = merge(BASE, ours, BASE.replace("mask=None)", "mask=None, graph=1)"))
    assert "# -------- omni: spans" in merged.text()


def test_a_class_that_omni_names_for_super_is_kept_with_its_self():
    base = "super().__init__(size, dtype)"
    ours = "AscendBase.__init__(self, size, dtype)"
    merged = merge(base, ours, "super().__init__(size, bias, dtype)")
    check(merged, "AscendBase.__init__(self, size, bias, dtype)", "combined")


def test_upstreams_statements_outside_of_their_block_are_flagged():
    base = """
    for layer in self.layers:
        if spec := layer.spec(batch):
            self.specs[layer] = spec
    return self.specs
    """
    ours = """
    for layer in self.layers:
        if self.compress:
            if spec := layer.spec(batch):
                self.specs[layer] = spec
        elif layer.own:
            self.own(layer)
        elif spec := layer.spec(batch):
            self.specs[layer] = spec
            self.names.add(layer)
    return self.specs
    """
    theirs = base.replace(
        "            self.specs",
        "            if wide(spec):\n                spec = self.strided(spec)\n            self.specs",
    )
    assert [flag.kind for flag in merge(base, ours, theirs).flags] == ["placed"]
    inside = merge(base, base.replace("return", "self.done()\n    return"), theirs)
    assert inside.flags == ()


def test_what_stands_outside_of_its_block_is_flagged():
    base = """
        for row in rows:
            first(row)
            last(row)
        end()
    """
    theirs = base.replace("last(row)", "fresh(row)\n            last(row)")
    ours = """
        first(rows)
        last(rows)
        end()
        for row in rows:
            other(row)
    """.replace("(rows)", "(row)")
    merged = merge(base, ours, theirs)
    assert [flag.kind for flag in merged.flags] == ["placed"]
    assert "`for row in rows:`" in merged.flags[0].reason
    assert merge(base, base.replace("end()", "omni()"), theirs).flags == ()


def test_upstreams_new_text_that_reads_what_nothing_gives_a_value_is_left_out_and_told():
    pick = "if big:\n    size = wide(size)\nelse:\n    size = narrow(size)"
    merged = merge(
        f"size = count(batch)\n{pick}",
        "self.meta = build(count(batch))",
        f"{pick}\nmeta = build(size, rows)",
    )
    for side in ("ours", "theirs"):
        assert syntax_error(resolved(merged.pieces, side)) is None
    plain = [piece for piece in merged.pieces if isinstance(piece, Statement)]
    assert "size" not in free_names(plain)
    assert [(flag.kind, flag.theirs.strip()) for flag in merged.flags] == [
        ("held", "meta = build(size, rows)")
    ]


def test_of_upstreams_new_text_only_what_reads_a_name_that_ours_dropped_is_left_out():
    base = """
        connector = self.connector(batch)
        with forward(batch):
            hidden = self.model(batch)
        with after(batch):
            return self.sample(hidden)
    """
    ours = """
        with forward(batch):
            hidden = self.model(batch)
        with after(batch):
            hidden, extra = self.split(hidden)
            return self.sample(hidden)
    """
    theirs = """
        connector = self.connector(batch)
        with forward(batch):
            hidden = self.model(batch)
            self.took = finish(batch)
            if self.align and connector:
                connector.copy()
                done = connector.done()
            else:
                self.skip(batch)
        self.release(batch)
        if done:
            self.note(batch)
        with after(batch):
            return self.sample(hidden)
    """
    merged = merge(base, ours, theirs)
    assert not merged.conflicts
    text = merged.text()
    assert "self.took = finish(batch)" in text
    assert text.index("self.release(batch)") < text.index("with after(batch):")
    assert "connector" not in text
    assert "self.skip" not in text
    assert "done" not in text, "what reads a name of what is left out goes with it"
    told = "\n".join(flag.theirs for flag in merged.flags if flag.kind == "held")
    assert "connector.copy()" in told
    assert "self.note(batch)" in told


def test_two_ends_are_no_two_statements_of_one_method():
    base = "meta = build(batch)"
    merged = merge(base, f"{base}\nreturn self.keep(meta)", f"{base}\nreturn meta")
    (conflict,) = [piece for piece in merged.pieces if isinstance(piece, Conflict)]
    assert ([one.key for one in conflict.ours], [one.key for one in conflict.theirs]) == (
        ["return self.keep(meta)"],
        ["return meta"],
    )


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "want"),
    [
        pytest.param("f(a)", "f(a, **more)", "f(a, mask=1)", None, id="a mapping may hold the keyword"),
        pytest.param("f(a, mask=1)", "f(a, **more)", "f(a, grid=1)", None, id="which took its place"),
        pytest.param("return (a, b)", "return (b, 1)[:1]", "return (a, b, c)", None, id="no tuple"),
        pytest.param(
            "return (a, b, c)", "return (b, c)", "return (a, n, b, c)", None, id="items by position"
        ),
        pytest.param("x = g(a) if b else a", "x = h(a) if b else a", "x = g(a)", None, id="no choice left"),
        pytest.param("def f(a):", "def f(a, own=1):", "def f(a, need):", None, id="a parameter asked for"),
        pytest.param(
            "def f(a, b):",
            "def f(a, b, own=1):",
            "def f(a, mask=1):",
            "def f(a, b, own=1, mask=1):",
            id="b goes",
        ),
        pytest.param(
            "def f(a, b=0):",
            "def f(a, b=0, own=1):",
            "def f(a, c=0):",
            "def f(a, b=0, own=1):",
            id="b is c now",
        ),
        pytest.param(
            "def f(a=0):",
            "def f(a=0, own=1):",
            "def f(a, n=2):",
            "def f(a=0, own=1, n=2):",
            id="a is asked for",
        ),
        pytest.param(
            "def f() -> tuple[A, B]:",
            "def f(own=1) -> tuple[B]:",
            "def f() -> tuple[A, C, B]:",
            "def f(own=1) -> tuple[B]:",
            id="hints for other things",
        ),
        pytest.param("f(a)", "f(a, **more)", "f(b)", "f(b, **more)", id="a mapping alone"),
    ],
)
def test_what_a_combined_statement_would_break_is_asked(base, ours, theirs, want):
    merged = merge_statement(base, ours, theirs)
    assert (merged and merged.text) == want


def test_a_call_of_omnis_own_keeps_its_arguments_under_upstreams_name_too():
    merged = merge_statement("weigh(a)", "weigh(a, own=1)", "weigh(a, mask=2)", frozenset({"weigh"}))
    assert merged
    assert (merged.text, merged.callee_kept) == ("weigh(a, own=1)", "weigh")


def test_a_call_that_no_longer_fits_omnis_own_function_stays():
    ours = BASE.replace("return logits", "self.flush()\n    return logits")
    theirs = BASE.replace("self.sample(hidden)", "self.sample(hidden, grid=1)")
    grids = Context(misfit=lambda call: "has no grid" if "grid=" in ast.unparse(call) else "")
    check(merge(BASE, ours, theirs, grids), ours, "callee")


def test_what_omni_ran_with_another_version_only_goes_with_upstreams():
    base = "if self.scales:\n    self.rescale(batch)\nreturn batch"
    ours = base.replace("self.scales", "is_old() and self.scales")
    context = Context(exists=lambda _: True, never=lambda test: "is_old" in ast.unparse(test))
    check(merge(base, ours, "return batch", context), "return batch", "dropped")
    check(merge(base, ours, "return batch", Context(exists=lambda _: True)), ours, "dropped")


REPLACED = "if batch:\n    self.prepare(batch)\n    self.count(batch, 1)\nreturn batch"


def test_constants_in_new_names_stand_before_the_conflict():
    ours = "if batch and self.omni:\n    self.prepare(batch)\n    self.omni(1, 2, 3)\nreturn batch"
    theirs = (
        "split = False\nif batch or self.graph:\n    self.prepare(batch)\n    self.graph(4, 5)\nreturn batch"
    )
    merged = merge(REPLACED, ours, theirs)
    assert merged.conflicts
    assert "split = False" in [piece.key for piece in merged.pieces if isinstance(piece, Statement)]


def test_a_combined_statement_whose_name_a_conflict_reads_is_asked_with_it():
    base = "for key in batch:\n    part = old.get(key)\n    self.copy(part, 1)\n    self.rest(key)"
    ours = base.replace("part", "piece").replace("self.copy(piece, 1)", "self.omni_copy(2, piece, key)")
    theirs = base.replace("old.get", "new.values.get").replace(
        "self.copy(part, 1)", "pad(key)(part, batch, 3)"
    )
    merged = merge(base, ours, theirs)
    assert merged.conflicts
    read = [s.key for c in merged.conflicts for s in c.theirs]
    assert "part = new.values.get(key)" in read
    assert "pad(key)(part, batch, 3)" in read


def test_the_head_of_a_function_stays_out_of_the_conflict_in_it():
    source = "    def step(self, batch):\n        first = batch\n        return first"
    ours = source.replace("first = batch", "first = self.omni(batch, 1)")
    theirs = source.replace("batch):", "batch, mask=None):").replace("first = batch", "first = pad(2, mask)")
    merged = merge_method(*map(split_statements, (source, ours, theirs)))
    heads = [piece.key for piece in merged.pieces if isinstance(piece, Statement)]
    assert heads[0] == "def step(self, batch, mask=None):"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("if a and (not b.c) and (not d()):", "if a and not b.c and not d():"),
        ("x = a or (not b)", "x = a or not b"),
        ("if a and (not b == c):", "if a and (not b == c):"),
        ("say('x and (not y)')", "say('x and (not y)')"),
        ("if a and (not b).any():", "if a and (not b).any():"),
    ],
)
def test_a_combined_condition_is_written_as_people_write_it(text, want):
    """``ast.unparse`` puts brackets around a ``not``; in a text, or where they mean something, they stay."""
    assert as_written(text) == want


UPDATES = "return super()._update_states(scheduler_output)"
OWN_UPDATES = "return OmniRunner._update_states(self, scheduler_output)"
NEW_UPDATES = """
    if scheduler_output.copies:
        self.copy_blocks(scheduler_output.copies)
    metadata = super()._update_states(scheduler_output)
    self._track(scheduler_output)
    return metadata
"""


TWICE = "self.mix(super()._update_states(scheduler_output), super()._update_states(scheduler_output))"


def test_a_call_of_ours_in_the_place_of_upstreams_goes_where_upstream_makes_it_now():
    want = NEW_UPDATES.replace("super()._update_states(", "OmniRunner._update_states(self, ")
    check(merge(UPDATES, OWN_UPDATES, NEW_UPDATES), want, "combined")
    noted = "# Omni's own\n" + OWN_UPDATES
    assert "# Omni's own" in merge(UPDATES, noted, NEW_UPDATES).text()
    assert "# Omni's own" in merge(UPDATES, OWN_UPDATES + "  # Omni's own", NEW_UPDATES).text()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (OWN_UPDATES + " or batch", NEW_UPDATES),  # ours changed more
        ("self.note()\n" + OWN_UPDATES, NEW_UPDATES),
        (OWN_UPDATES, NEW_UPDATES.replace("_states(scheduler_output)", "_states(scheduler_output, True)")),
        (OWN_UPDATES, NEW_UPDATES.replace("self._track", "again = super()._update_states")),
        (OWN_UPDATES, NEW_UPDATES.replace("self._track(scheduler_output)", TWICE)),
        (OWN_UPDATES, NEW_UPDATES.replace("super()._update_states", "self.update")),  # it is gone
    ],
)
def test_a_call_of_ours_that_has_no_one_place_in_upstreams_new_text_is_asked(ours: str, theirs: str):
    merged = merge(UPDATES, ours, theirs)
    assert merged.conflicts or any("OmniRunner" in flag.ours for flag in merged.flags)
    assert "super()._update_states" not in merged.text() or merged.conflicts
