"""Which runs a change needs, in which order, and what is left for later."""

from types import SimpleNamespace

import pytest

from npu_upgrade.gates.emulation.choice import Choice, chosen_for


def scenario(name: str, *words: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, words=words)


AR, SERVER, POOL, TALK = (
    scenario("ar"),
    scenario("server"),
    scenario("pool", "embed"),
    scenario("talk", "codec"),
)
CORE = [("eager", AR), ("graph", AR), ("serve", SERVER)]
ALL = [*CORE, ("eager", POOL), ("graph", POOL), ("eager", TALK), ("graph", TALK)]
EXECUTED = {
    "Runner.step": {"eager ar", "graph ar", "eager pool", "graph pool", "eager talk"},
    "Runner.embed": {"eager pool", "graph pool"},
    "Runner.replay": {"graph pool", "graph talk"},
    "Runner.never": set[str](),
    "Runner.shared": {"eager ar", "graph ar", "eager pool", "graph talk"},
    "Runner.warm_up": {"eager ar", "eager pool", "graph talk"},
    "Runner.idle": {"eager pool", "graph talk"},
}
CALLED = {
    "Runner.step": {"embed", "shared"},
    "Runner.idle": {"warm_up"},
    "Runner.warm_up": {"shared"},
    "Runner.elsewhere": {"shared"},
}
SECONDS = {"eager ar": 10.0, "eager pool": 9.0, "graph pool": 15.0, "graph talk": 12.0, "eager talk": 20.0}


def choose(changed: set[str] | None, failed: tuple[str, ...] = (), upon: tuple[str, ...] = ()) -> Choice:
    return chosen_for(CORE, ALL, changed, EXECUTED, CALLED, SECONDS, dict.fromkeys(failed, ""), (), upon)


def names(runs) -> list[str]:
    return [f"{tier} {one.name}" for tier, one in runs]


def test_the_core_is_enough_where_it_executes_the_change_and_what_else_does_is_pending():
    found = choose({"Runner.step"})
    assert names(found.needed) == ["eager ar", "serve server", "graph ar"]
    assert names(found.pending) == ["eager pool", "graph pool", "eager talk"]


@pytest.mark.parametrize(
    ("seconds", "changed"), [(7.0, {"Runner.step"}), (7.0, None), (9.0, {"Runner.step"})]
)
def test_a_run_of_seconds_that_the_change_can_touch_is_not_left_for_later(seconds, changed):
    quick = SECONDS | {"eager pool": seconds}
    found = chosen_for(CORE, ALL, changed, EXECUTED, CALLED, quick, {})
    assert ("eager pool" in names(found.needed), "eager pool" in names(found.pending)) == (
        seconds < 8,
        seconds > 8,
    )
    assert "eager pool" not in names(
        chosen_for(CORE, ALL, {"Runner.replay"}, EXECUTED, CALLED, quick, {}).needed
    )


def test_the_quick_ones_are_eager_and_take_little_together():
    changed = {"Runner.step"}
    assert not chosen_for(CORE, ALL, changed, EXECUTED, CALLED, SECONDS, {}).quick, "none takes so little"
    cheap = dict.fromkeys(SECONDS, 5.0)
    quick = names(chosen_for(CORE, ALL, changed, EXECUTED, CALLED, cheap, {}).quick)
    assert "eager ar" in quick
    assert all(name.startswith("eager") for name in quick)
    many = [("eager", scenario(f"more{number}")) for number in range(10)]
    seconds = SECONDS | {f"eager more{number}": 7.0 for number in range(10)}
    taken = chosen_for([*CORE, *many], [*ALL, *many], changed, EXECUTED, CALLED, seconds, {}).quick
    assert 0 < sum(name.startswith("eager more") for name in names(taken)) < 6


def test_what_is_about_an_unchanged_function_upon_a_changed_one_is_needed_with_graphs():
    found = choose({"Runner.step"}, upon=("Runner.capture_codec_graphs",))
    assert set(names(found.needed)) - set(names(CORE)) == {"graph talk"}


def test_the_cheapest_run_that_executes_a_change_is_added_for_each_function():
    found = choose({"Runner.embed", "Runner.replay"})
    assert set(names(found.needed)) - set(names(CORE)) == {"eager pool", "graph pool"}
    assert names(found.needed)[0] == "eager pool"
    assert names(found.pending) == ["graph talk"]


def test_a_pipeline_waits_where_something_cheaper_executes_the_change():
    speech, step, alone = ("pipelines", scenario("speech")), "Runner.step", "Runner.speak"
    executed = EXECUTED | {step: EXECUTED[step] | {"pipelines speech"}, "run": {"pipelines speech"}}
    called = {"run": {"step"}}
    seconds = SECONDS | {"pipelines speech": 20.0}
    found = chosen_for(CORE, [*ALL, speech], {step}, executed, called, seconds, {})
    assert speech in found.pending
    assert speech not in found.needed
    executed |= {alone: {"pipelines speech"}}
    assert speech in chosen_for(CORE, [*ALL, speech], {alone}, executed, called, seconds, {}).needed


def test_a_pipeline_waits_where_the_others_fill_the_time():
    speech, executed = ("pipelines", scenario("speech")), EXECUTED | {"Runner.speak": {"pipelines speech"}}
    seconds, changed = SECONDS | {"pipelines speech": 25.0}, {"Runner.speak"}
    for slow, is_needed in ((70.0, True), (90.0, False)):
        everything, known = [*ALL, speech], seconds | {"serve server": slow}
        found = chosen_for(CORE, everything, changed, executed, CALLED, known, {})
        assert (speech in found.needed, speech in found.pending) == (is_needed, not is_needed)
        again = chosen_for(CORE, everything, changed, executed, CALLED, known, {"pipelines speech": ""})
        assert again.needed[0] == speech


def test_names_that_are_new_bring_the_run_that_is_about_them():
    found = chosen_for(CORE, ALL, {"Runner.step"}, EXECUTED, CALLED, SECONDS, {}, {"embeds", "Runner"})
    assert set(names(found.needed)) - set(names(CORE)) == {"graph pool"}
    assert "eager pool" in names(found.pending)


def test_it_runs_from_each_place_that_it_is_called_from_in_each_tier():
    found = choose({"Runner.shared"})
    assert set(names(found.needed)) - set(names(CORE)) == {"eager pool", "graph talk"}


def test_one_run_may_stand_for_several_functions():
    found = choose({"Runner.embed", "Runner.step"})
    assert names(found.needed).count("eager pool") == 1


def test_a_function_that_nobody_saw_is_matched_by_the_words_of_its_name():
    found = choose({"Runner.split_codec_rows", "Runner.unheard_of"})
    assert found.unknown == {"Runner.split_codec_rows", "Runner.unheard_of"}
    assert set(names(found.needed)) - set(names(CORE)) == {"graph talk"}
    assert names(found.pending) == ["eager talk"]


def test_a_function_that_is_known_to_run_nowhere_adds_nothing():
    found = choose({"Runner.never"})
    assert set(names(found.needed)) == set(names(CORE))
    assert not found.pending
    assert not found.unknown


def test_where_nothing_tells_what_changed_all_the_others_are_pending():
    assert len(choose(None).pending) == len(ALL) - len(CORE)


@pytest.mark.parametrize("failed", ["graph ar", "serve server", "eager talk"])
def test_what_failed_last_starts_first_though_nothing_else_asks_for_it(failed):
    assert names(choose({"Runner.step"}, (failed,)).needed)[0] == failed


@pytest.mark.parametrize("failed", [("pipelines tts", "pipelines tts-eager"), ("pipelines tts-eager",)])
def test_of_a_pipeline_that_failed_with_graphs_and_without_the_one_with_graphs_is_needed(failed):
    pipelines = [("pipelines", scenario(name)) for name in ("tts", "tts-eager")]
    found = chosen_for(
        CORE, [*ALL, *pipelines], {"Runner.step"}, EXECUTED, CALLED, SECONDS, dict.fromkeys(failed, "")
    )
    assert names(found.needed)[0] == failed[0]
    assert [one for one in failed if one in names(found.pending)] == list(failed[1:])


def test_what_failed_last_changes_the_order_and_takes_nothing_away():
    before, after = choose({"Runner.embed"}), choose({"Runner.embed"}, ("eager talk", "graph pool"))
    assert set(names(before.needed)) < set(names(after.needed))


def test_of_servers_that_failed_at_one_place_the_cheapest_is_repeated_first():
    """They show one fault; the others are seen behind the delivery."""
    speech, talks = ("pipelines", scenario("speech")), ("pipelines", scenario("talks"))
    seconds = SECONDS | {"serve server": 40.0, "pipelines speech": 30.0, "pipelines talks": 90.0}
    everything = [*ALL, speech, talks]

    def needed(**places: str) -> set[str]:
        failed = {f"pipelines {name}": place for name, place in places.items()}
        found = chosen_for(CORE, everything, {"Runner.step"}, EXECUTED, CALLED, seconds, failed)
        assert {*names(found.needed), *names(found.pending)} >= failed.keys()
        return {*names(found.needed)} & failed.keys()

    assert needed(speech="serial.py in decode", talks="serial.py in decode") == {"pipelines speech"}
    assert needed(speech="serial.py in decode", talks="output.py in read") == {
        "pipelines speech",
        "pipelines talks",
    }
    assert needed(speech="", talks="") == {"pipelines speech", "pipelines talks"}, "no place says nothing"


def test_after_an_edit_what_passed_before_waits_but_for_the_cheapest_that_execute_the_edit(monkeypatch):
    def needed(since: dict[str, set[str]], failed: tuple[str, ...] = ()) -> set[str]:
        known = (EXECUTED, CALLED, SECONDS, dict.fromkeys(failed, ""), (), ())
        found = chosen_for(CORE, ALL, {"Runner.step", "Runner.embed"}, *known, since)
        assert {*names(found.needed), *names(found.pending)} == set(names(ALL)) - {"graph talk"}
        return set(names(found.needed))

    first = needed({})
    assert first == {"eager ar", "graph ar", "serve server", "eager pool", "graph pool"}
    one = {"graph ar": {"Runner.step"}, "graph pool": {"Runner.step"}}
    assert needed(one) == first - one.keys()
    assert needed(one, failed=("graph ar",)) == first - {"graph pool"}
    assert needed(one | {"graph pool": {"Runner.replay"}}) == first - {"graph ar"}
    assert needed(one | {"serve server": set()}) == first - one.keys() - {"serve server"}

    def every(*names: str) -> dict[str, set[str]]:
        return {run: {*names} for run in first}

    assert needed(every("Runner.step")) == {"eager pool"}, "the cheapest"
    assert needed(every("Runner.step", "Runner.replay")) == {"eager pool", "graph pool"}
    assert needed(every("Runner.step"), failed=("graph ar",)) == {"graph ar", "eager pool"}
    assert needed(every("Runner.helper")) == {"eager pool"}, "new, and nobody is known to call it"
    assert needed(every("Heir.embed")) == {"eager pool"}, "new, and upstream calls it"
    assert needed(every("Heir.replay")) == {"eager pool", "graph pool"}
    assert needed(every()) == {"eager pool"}, "something outside of functions, perhaps"
    monkeypatch.setitem(CALLED, "Runner.replay", {"helper"})
    assert needed(every("Runner.helper")) == {"eager pool", "graph pool"}
