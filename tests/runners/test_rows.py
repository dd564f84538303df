"""Rows of a batch: V1 by the scheduler's counts, V2 by the batch's offsets; rejected drafts left out."""

from types import SimpleNamespace

from omni_runners.core.rows import batch_rows


class Offsets(list):
    def tolist(self):
        return list(self)

    def __getitem__(self, key):
        return Offsets(super().__getitem__(key))


def scheduled(counts, drafts=()):
    return SimpleNamespace(
        num_scheduled_tokens=counts, scheduled_spec_decode_tokens={one: [0] * many for one, many in drafts}
    )


def test_v1_rows_are_in_the_batch_order_not_the_scheduler_s():
    rows = batch_rows(SimpleNamespace(req_ids=["b", "a"]), scheduled({"a": 3, "b": 1}))
    assert [rows.span(0), rows.span(1)] == [slice(0, 1), slice(1, 4)]
    assert (rows.total, rows.counts) == (4, [1, 3])


def test_v2_rows_come_from_the_batch_which_may_have_trimmed_drafts():
    batch = SimpleNamespace(req_ids=["a", "b"], query_start_loc_np=Offsets([0, 2, 5, 5]))
    rows = batch_rows(batch, scheduled({"a": 4, "b": 3}))
    assert rows.counts == [2, 3]


def test_rows_of_rejected_drafts_are_left_out():
    rows = batch_rows(SimpleNamespace(req_ids=["a", "b"]), scheduled({"a": 4, "b": 5}, [("a", 3)]))
    assert rows.kept(0, 1) == slice(0, 1), "all drafts rejected"
    assert rows.kept(0, 3) == slice(0, 3), "two accepted"
    assert rows.kept(0, 4) == slice(0, 4), "all accepted"
    assert rows.kept(0, 0) == slice(0, 1), "nothing sampled"
    assert rows.kept(1, 0) == slice(4, 9), "a part of a prompt has no drafts"
