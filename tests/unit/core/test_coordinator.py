"""The coordinator: nothing durable before its claim, one owner at a time, and a commit that is whole or not there."""

# mypy: disable-error-code="arg-type, dict-item, index, list-item"

import pytest

from tests.unit.core.driving import ME, OTHER, THIRD, Deciding, DrivenCoordinator
from tests.unit.core.pipes import LEFT, RIGHT, cycle, pipeline
from tidemill.core import decisions as d
from tidemill.core import effects, events, messages
from tidemill.core.coordinator import COMMIT_TICKET, Commit, JournalEntry, decode_commit, decode_entry, encode
from tidemill.core.halves import Change
from tidemill.core.ids import BEGINNING, END, Peer, first_epoch
from tidemill.core.membership import AWAY
from tidemill.core.messages import Lineage, Packet

AGAIN = Peer(ME.worker, 2)
SOURCE, COUNT, SINK = 1, 2, 3
"""The shards of a pipeline with one for each node."""


def coordinator(half=None, graph=None, **plan):
    return DrivenCoordinator(graph or pipeline(sinks=("counts",)), half, **plan)


def running(half=None, graph=None, workers=1, **plan):
    """All workers have come and all shards are theirs."""
    peers = [ME, OTHER, THIRD][:workers]
    made = coordinator(half, graph, workers=workers, **plan)
    made.join(*peers)
    made.ready(*peers)
    made.said.clear()
    made.effects.clear()
    return made


def sealing(workers=1, **plan):
    made = running(workers=workers, **plan)
    made.end()
    assert made.core.phase == "sealing"
    return made


def written(made):
    """What it wants in the journal, decoded."""
    return [(entry.ticket, entry.generation, decode_entry(entry.entry)) for entry in made.asked(effects.Journal)]


# One coordinator (Law 4)


def test_it_claims_a_generation_before_anything_else():
    made = coordinator(claim=False)
    assert made.asked(effects.Claim) == [effects.Claim()]
    made.join(ME)
    made.gone(ME)
    made.tick()
    assert made.effects == []
    assert made.said == {}


def test_a_claim_that_fails_ends_the_run_and_a_worker_that_comes_later_changes_nothing():
    """A sink's folder may hold something else, say."""
    made = coordinator(claim=False)
    made.happen(events.Broken(made.now, OSError("no")))
    assert [(fail.error, fail.message) for fail in made.asked(effects.Fail)] == [("OSError", "no")]
    assert made.core.phase == "over"
    made.join(ME)
    assert made.said == {}


def test_everything_that_is_to_last_bears_its_generation():
    half = Deciding()
    made = running(half, generation=7)
    half.answers["ticked"] = (d.Write(5, b"entry"),)
    made.tick()
    made.end()
    made.hear(ME, messages.Sealed(SINK, made.epoch_of(SINK), b"piece"))
    assert [(ticket, generation) for ticket, generation, _ in written(made)] == [(5, 7), (COMMIT_TICKET, 7)]


def test_a_deposed_coordinator_exits_and_says_nothing_any_more():
    """Least of all that the run has ended: it is another's now."""
    made = running()
    made.refuse(5)
    assert made.asked(effects.Exit) == [effects.Exit("deposed")]
    made.report(ME, (SOURCE, 5))
    made.tick()
    made.gone(ME)
    made.hear(OTHER, messages.Hello())
    assert made.effects == []
    assert made.said.get(ME, []) == []
    assert made.said.get(OTHER, []) == []


def test_what_its_predecessors_wrote_is_told_to_its_half():
    half = Deciding()
    journal = [encode(JournalEntry("mechanism", payload)) for payload in (b"one", b"two")]
    made = coordinator(half, generation=3, journal=tuple(journal))
    made.join(ME)
    assert half.of("begin") == [("begin", 3, [b"one", b"two"])]


def test_no_epoch_of_one_generation_is_granted_in_another():
    epochs = [running(generation=generation).epoch_of(SINK) for generation in (1, 2, 3)]
    assert epochs == sorted(set(epochs))
    for generation, epoch in zip((1, 2, 3), epochs, strict=True):
        assert first_epoch(generation) < epoch < first_epoch(generation + 1)


def test_a_commit_that_its_predecessor_wrote_is_the_end():
    """It was made and told to nobody: whoever asks is told now."""
    commit = encode(JournalEntry("commit", encode(Commit([("counts-sink", b"piece")], final=True))))
    made = coordinator(generation=2, journal=(commit,))
    assert made.asked(effects.Exit) == [effects.Exit("finished")]
    made.join(ME)
    assert made.told(ME, messages.Finished) == [messages.Finished()]


def test_a_commit_that_is_not_the_last_is_not_the_end():
    commit = encode(JournalEntry("commit", encode(Commit([], final=False))))
    made = coordinator(generation=2, journal=(commit,))
    made.join(ME)
    assert made.core.phase == "running"


# Gathering


def test_it_begins_when_all_workers_are_there():
    half = Deciding()
    made = coordinator(half, workers=2)
    made.join(ME)
    assert half.of("begin") == []
    made.join(OTHER)
    assert len(half.of("begin")) == 1


def test_or_with_some_of_them_when_it_has_waited_long_enough():
    half = Deciding()
    made = coordinator(half, workers=2)
    made.join(ME)
    for _ in range(149):
        made.tick()
    assert half.of("begin") == []
    made.tick()
    assert len(half.of("begin")) == 1
    assert {given.shard for given in made.adopted(ME)} == {SOURCE, COUNT, SINK}


def test_the_mechanism_hears_nothing_before_it_begins():
    """What was said to an older coordinator's half is nothing to this one; nor may it decide before it knows its
    journal."""

    class Early(Deciding):
        def ticked(self, now):
            self.events.append(("ticked", now))
            return ()

    half = Early()
    made = coordinator(half, workers=2, generation=2)
    made.join(ME)
    made.hear(ME, messages.Tell(b"word"))
    made.tick()
    assert half.events == []
    made.join(OTHER)
    made.hear(ME, messages.Tell(b"word"))
    made.tick()
    assert [event[0] for event in half.events] == ["begin", "told", "ticked"]


def test_workers_learn_the_whole_table_first_then_differences():
    made = coordinator(workers=2)
    made.join(ME, OTHER)
    (first,) = made.told(OTHER, messages.Routes)
    assert first.whole
    assert len(first.changed) == 3
    made.ready(ME)
    for later in made.told(OTHER, messages.Routes):
        assert not later.whole
        assert [route.owner for route in later.changed] == [ME]


def test_routes_are_told_before_the_shards_are_given():
    made = coordinator()
    made.join(ME)
    kinds = [type(message) for message in made.said[ME]]
    assert kinds.index(messages.Routes) < kinds.index(messages.Adopt)


def test_one_who_comes_late_learns_what_the_others_know():
    made = running(workers=2)
    made.report(ME, (SOURCE, 5))
    made.tick()
    made.join(THIRD)
    (routes,) = made.told(THIRD, messages.Routes)
    assert routes.whole
    assert dict((route.shard, route.owner) for route in routes.changed)[SOURCE] == made.owner_of(SOURCE)  # noqa: C402
    (marks,) = made.told(THIRD, messages.Marks)
    assert len(marks.marks) == 3


# One owner (Law 3)


def test_a_shard_is_owned_when_its_worker_is_ready():
    made = coordinator()
    made.join(ME)
    assert made.owner_of(COUNT) is None
    made.hear(ME, messages.Ready(COUNT, made.epoch_of(COUNT)))
    assert made.owner_of(COUNT) == ME


@pytest.mark.parametrize("late", [lambda made: made.epoch_of(COUNT) - 1, lambda made: made.epoch_of(COUNT) + 1])
def test_being_ready_under_another_epoch_is_not_heard(late):
    made = coordinator()
    made.join(ME)
    made.hear(ME, messages.Ready(COUNT, late(made)))
    assert made.owner_of(COUNT) is None


def test_being_ready_with_what_another_was_given_is_not_heard():
    made = coordinator(workers=2)
    made.join(ME, OTHER)
    (given, *_) = made.adopted(OTHER)
    made.hear(ME, messages.Ready(given.shard, given.epoch))
    assert made.owner_of(given.shard) is None


def test_who_yields_under_another_epoch_or_another_s_is_not_heard():
    half = Deciding()
    made = running(half, workers=2)
    owner = made.owner_of(COUNT)
    other = OTHER if owner == ME else ME
    made.hear(owner, messages.Yielded(COUNT, made.epoch_of(COUNT) - 1))
    made.hear(other, messages.Yielded(COUNT, made.epoch_of(COUNT)))
    assert half.of("yielded") == []
    made.hear(owner, messages.Yielded(COUNT, made.epoch_of(COUNT)))
    assert half.of("yielded") == [("yielded", COUNT)]
    assert made.owner_of(COUNT) is None


def test_a_report_of_an_older_owner_moves_no_mark():
    made = running()
    stale = messages.ShardReport(SOURCE, made.epoch_of(SOURCE) - 1, 99, False)
    made.hear(ME, messages.Report(1, [stale]))
    made.tick()
    assert made.told(ME, messages.Marks) == []
    assert made.core.authority.mark("words-source") == BEGINNING


# Loss


def test_a_lost_worker_s_shards_are_told_when_another_is_there():
    half = Deciding()
    made = running(half, workers=2)
    lost = [shard for shard in (SOURCE, COUNT, SINK) if made.owner_of(shard) == ME]
    made.gone(ME)
    assert made.asked(effects.Forget) == [effects.Forget(ME)]
    assert half.of("lost") == []
    made.join(AGAIN)
    assert half.of("lost") == [("lost", lost)]
    assert {given.shard for given in made.adopted(AGAIN)} | {given.shard for given in made.adopted(OTHER)} == set(lost)


def test_or_when_it_has_waited_long_enough_for_one():
    half = Deciding()
    made = running(half, workers=2)
    made.gone(ME)
    for _ in range(149):
        made.tick()
    assert half.of("lost") == []
    made.tick()
    assert len(half.of("lost")) == 1


def test_a_newer_incarnation_means_that_the_older_one_is_lost():
    half = Deciding()
    made = running(half)
    made.join(AGAIN)
    assert half.of("lost") == [("lost", [SOURCE, COUNT, SINK])]
    assert {given.shard for given in made.adopted(AGAIN)} == {SOURCE, COUNT, SINK}


def test_shards_that_were_being_restored_are_lost_too():
    half = Deciding()
    made = coordinator(half)
    made.join(ME)
    made.join(AGAIN)
    assert half.of("lost") == [("lost", [SOURCE, COUNT, SINK])]


def test_whoever_was_given_up_is_dismissed_when_it_speaks_and_heard_no_more():
    half = Deciding()
    made = running(half, workers=2)
    made.gone(ME)
    made.perform(made.core.handle(events.Received(made.now, Packet(ME, made.me, 99, 0, messages.Hello()))))
    assert made.told(ME, messages.Outdated) == [messages.Outdated()]
    assert made.core.members.alive() == [OTHER]


def test_others_learn_who_is_gone():
    made = running(workers=2)
    made.gone(ME)
    made.join(AGAIN)
    assert all(ME in routes.gone for routes in made.told(OTHER, messages.Routes))


def test_a_silent_worker_is_lost_and_dismissed():
    half = Deciding()
    made = running(half, workers=2)
    made.told(ME, messages.Outdated)
    for _ in range(520):
        made.tick()
        made.report(OTHER)
    assert not made.core.members.is_member(ME)
    assert made.core.members.is_member(OTHER)
    assert made.told(ME, messages.Outdated) == [messages.Outdated()]
    made.join(AGAIN)
    assert len(half.of("lost")) == 1


def test_a_coordinator_that_was_away_forgives_silence():
    """It was its own silence that it heard."""
    half = Deciding()
    made = running(half, workers=2)
    for _ in range(450):
        made.tick()
    made.tick(AWAY + 20_000_000)
    assert made.core.members.alive() == [ME, OTHER]
    for _ in range(490):
        made.tick()
    assert half.of("lost") == []


def test_with_nobody_left_shards_wait_for_somebody():
    """The answer of storage may come when all workers are gone."""
    half = Deciding()
    half.answers["persisted"] = (d.Assign([COUNT]),)
    made = running(half)
    made.gone(ME)
    made.persist(5)
    assert made.owner_of(COUNT) is None
    made.join(AGAIN)
    assert COUNT in {given.shard for given in made.adopted(AGAIN)}


def test_what_was_yielded_is_not_lost():
    """Its mechanism has it, and waits for something: another shard, or the journal."""
    half = Deciding()
    made = running(half)
    made.hear(ME, messages.Yielded(COUNT, made.epoch_of(COUNT)))
    made.tick()
    assert half.of("lost") == []


# What mechanisms decide


def test_everything_goes_back():
    made = running(workers=2)
    made.report(ME, (SOURCE, 50))
    made.tick()
    before = {shard: made.epoch_of(shard) for shard in (SOURCE, COUNT, SINK)}
    made.said.clear()
    made.half.answers["ticked"] = (d.AssignAll(),)
    made.tick()
    assert made.core.authority.mark("words-source") == BEGINNING
    for peer in (ME, OTHER):
        kinds = [type(message) for message in made.said[peer]]
        assert kinds[:2] == [messages.Reset, messages.Routes]
    assert all(made.epoch_of(shard) > before[shard] for shard in before)
    assert all(made.owner_of(shard) is None for shard in before)


def test_a_shard_goes_to_the_worker_that_is_named():
    made = running(workers=3)
    target = next(peer for peer in (ME, OTHER, THIRD) if peer != made.owner_of(COUNT))
    made.half.answers["ticked"] = (d.Assign([COUNT], {COUNT: target.worker}),)
    made.tick()
    assert [given.shard for given in made.adopted(target)] == [COUNT]


def test_shards_are_superseded_in_all_tables():
    made = running(workers=2, shards=1)
    added = [d.NewShard("count", half, shard, Lineage(shard, half, [])) for shard, half in ((50, LEFT), (51, RIGHT))]
    made.half.answers["ticked"] = (d.Supersede([COUNT], added), d.Assign([50, 51]))
    made.tick()
    for peer in (ME, OTHER):
        first, second = made.told(peer, messages.Routes)
        assert (first.removed, [route.shard for route in first.changed]) == ([COUNT], [50, 51])
        assert [route.shard for route in second.changed] == [50, 51]
        assert all(route.epoch > 0 for route in second.changed)
    assert made.shards_of("count") == [50, 51]


def test_an_owner_is_asked_to_give_back_under_the_epoch_it_has():
    made = running()
    made.half.answers["ticked"] = (d.TakeBack(COUNT, [COUNT]),)
    made.tick()
    assert made.told(ME, messages.Yield) == [messages.Yield(COUNT, made.epoch_of(COUNT), [COUNT])]


def test_a_word_goes_to_a_worker_s_half_and_one_from_there_comes_back():
    half = Deciding()
    made = running(half)
    half.answers["told"] = (d.TellHalf(b"down", ME),)
    made.hear(ME, messages.Tell(b"up"))
    assert half.of("told") == [("told", ME, b"up")]
    assert made.told(ME, messages.Tell) == [messages.Tell(b"down")]


def test_what_the_mechanism_wrote_is_told_to_it_when_it_is_durable():
    half = Deciding()
    made = running(half)
    half.answers["ticked"] = (d.Write(5, b"entry"),)
    made.tick()
    assert written(made) == [(5, 1, JournalEntry("mechanism", b"entry"))]
    assert half.of("persisted") == []
    made.persist(5)
    assert half.of("persisted") == [("persisted", 5)]


def test_a_mechanism_s_ticket_is_never_the_commit_s():
    made = running()
    made.half.answers["ticked"] = (d.Write(COMMIT_TICKET, b"entry"),)
    with pytest.raises(AssertionError):
        made.tick()


def test_a_run_that_can_t_go_on_fails():
    made = running()
    made.half.answers["ticked"] = (d.EndRun("no more"),)
    made.tick()
    assert [type(effect) for effect in made.effects if not isinstance(effect, effects.Note)] == [
        effects.Fail,
        effects.Exit,
    ]
    assert made.told(ME, messages.Finished) == [messages.Finished()]


def test_user_code_that_raised_ends_the_run():
    made = running(workers=2)
    made.hear(OTHER, messages.Failed("UserCodeError", "there"))
    assert made.asked(effects.Fail) == [effects.Fail("UserCodeError", "there")]
    assert made.told(ME, messages.Finished) == [messages.Finished()]


# Time


def test_marks_are_published_to_all_and_not_too_often():
    made = running(workers=2)
    owner = made.owner_of(SOURCE)
    made.report(owner, (SOURCE, 50))
    assert made.told(ME, messages.Marks) == []
    made.tick(9_999)
    assert made.told(ME, messages.Marks) == []
    made.tick(1)
    for peer in (ME, OTHER):
        (marks,) = made.told(peer, messages.Marks)
        assert marks.marks == [("words-source", 50)]


def test_a_clock_that_went_back_does_not_silence_it():
    made = running()
    made.tick()
    made.now = 5
    made.report(ME, (SOURCE, 50))
    made.tick(1)
    assert len(made.told(ME, messages.Marks)) == 1


def test_inside_a_cycle_reports_are_accepted():
    made = running(graph=cycle())
    made.report(ME)
    made.tick()
    (marks,) = made.told(ME, messages.Marks)
    assert {accepted.shard for accepted in marks.accepted} == {*made.shards_of("step-1"), *made.shards_of("step-2")}


# The end, and visible means whole (Law 6)


def test_it_ends_when_all_marks_have_ended_and_every_shard_has_an_owner():
    half = Deciding()
    made = running(half)
    made.hear(ME, messages.Yielded(COUNT, made.epoch_of(COUNT)))
    made.half.answers["ticked"] = (d.Assign([COUNT]),)
    made.tick()
    made.report(ME, (SOURCE, END), (COUNT, END), (SINK, END))
    made.tick()
    assert half.of("drained") == []
    made.ready(ME)
    made.tick()
    assert half.of("drained") == [("drained",)]


def test_it_does_not_end_while_one_mark_has_not():
    half = Deciding()
    made = running(half)
    made.report(ME, (SOURCE, END), (COUNT, END), (SINK, END - 1))
    made.tick()
    assert half.of("drained") == []


def test_the_final_commit_lists_one_piece_of_every_sink_shard():
    made = sealing(workers=2, shards=2)
    sinks = made.shards_of("counts-sink")
    asked = [seal for peer in (ME, OTHER) for seal in made.told(peer, messages.Seal)]
    assert sorted(seal.shard for seal in asked) == sinks
    made.hear(made.owner_of(sinks[1]), messages.Sealed(sinks[1], made.epoch_of(sinks[1]), b"right"))
    assert written(made) == []
    made.hear(made.owner_of(sinks[0]), messages.Sealed(sinks[0], made.epoch_of(sinks[0]), b"left"))
    ((ticket, _, entry),) = written(made)
    assert ticket == COMMIT_TICKET
    assert entry.kind == "commit"
    assert decode_commit(entry.payload) == Commit([("counts-sink", b"left"), ("counts-sink", b"right")], final=True)


def test_nobody_is_told_of_the_end_before_the_commit_is_durable():
    made = sealing()
    made.hear(ME, messages.Sealed(SINK, made.epoch_of(SINK), b"piece"))
    assert made.told(ME, messages.Finished) == []
    assert made.asked(effects.Exit) == []
    made.persist(COMMIT_TICKET)
    assert made.told(ME, messages.Finished) == [messages.Finished()]
    assert made.asked(effects.Exit) == [effects.Exit("finished")]


def test_a_piece_under_another_epoch_or_of_another_worker_is_not_listed():
    made = sealing(workers=2)
    owner = made.owner_of(SINK)
    other = OTHER if owner == ME else ME
    made.hear(owner, messages.Sealed(SINK, made.epoch_of(SINK) - 1, b"old"))
    made.hear(other, messages.Sealed(SINK, made.epoch_of(SINK), b"another's"))
    assert written(made) == []
    made.hear(owner, messages.Sealed(SINK, made.epoch_of(SINK), b"piece"))
    assert len(written(made)) == 1


def test_a_piece_that_nobody_asked_for_is_not_listed():
    made = running()
    made.hear(ME, messages.Sealed(SINK, made.epoch_of(SINK), b"piece"))
    made.end()
    assert written(made) == []


def test_one_commit_is_written():
    made = sealing()
    for _ in range(2):
        made.hear(ME, messages.Sealed(SINK, made.epoch_of(SINK), b"piece"))
    made.tick()
    assert len(written(made)) == 1


def test_without_sinks_the_commit_is_empty():
    made = running(graph=pipeline(sinks=()))
    made.end()
    ((_, _, entry),) = written(made)
    assert decode_commit(entry.payload) == Commit([], final=True)


def test_a_worker_lost_while_sealing_takes_its_piece_with_it():
    """What it sealed was durable under an epoch that is no more; its successor seals again."""
    made = sealing(workers=2, shards=2)
    sinks = made.shards_of("counts-sink")
    lost = made.owner_of(sinks[0])
    left = OTHER if lost == ME else ME
    made.hear(lost, messages.Sealed(sinks[0], made.epoch_of(sinks[0]), b"lost"))
    made.gone(lost)
    assert made.core.phase == "running"
    made.hear(left, messages.Sealed(sinks[1], made.epoch_of(sinks[1]), b"too soon"))
    again = Peer(lost.worker, 2)
    made.join(again)
    made.ready(again, left)
    made.said.clear()
    made.end()
    assert made.core.phase == "sealing"
    for sink, piece in zip(sinks, (b"left", b"right"), strict=True):
        owner = made.owner_of(sink)
        assert messages.Seal(sink, made.epoch_of(sink), 1) in made.said[owner]
        made.hear(owner, messages.Sealed(sink, made.epoch_of(sink), piece, 1))
    ((_, _, entry),) = written(made)
    # What the other had given already is not in what it gives now.
    assert [piece for _, piece in decode_commit(entry.payload).pieces] == [b"left", b"too soon", b"right"]


def test_an_answer_to_an_earlier_asking_is_kept_and_not_taken_for_the_one_awaited():
    made = sealing(workers=2, shards=1)
    (sink,) = made.shards_of("counts-sink")
    owner = made.owner_of(sink)
    made.gone(OTHER if owner == ME else ME)  # the sealing begins anew
    again = Peer(made.core.members.gone()[0].worker, 2)
    made.join(again)
    made.ready(again, owner)
    made.end()
    made.hear(owner, messages.Sealed(sink, made.epoch_of(sink), b"first", 0))
    assert made.core.phase == "sealing"
    made.hear(owner, messages.Sealed(sink, made.epoch_of(sink), b"second", 1))
    ((_, _, entry),) = written(made)
    assert [piece for _, piece in decode_commit(entry.payload).pieces] == [b"first", b"second"]


def test_what_is_sealed_so_far_is_committed_while_the_run_goes_on():
    half = Deciding()
    made = running(half)
    made.said.clear()
    half.answers["ticked"] = (d.SealSoFar(),)
    made.tick()
    half.answers["ticked"] = ()
    assert made.told(ME, messages.Seal) == [messages.Seal(SINK, made.epoch_of(SINK), 0)]
    made.hear(ME, messages.Sealed(SINK, made.epoch_of(SINK), b"so far", 0))
    ((ticket, _, entry),) = written(made)
    assert decode_commit(entry.payload) == Commit([("counts-sink", b"so far")], final=False)
    made.end()
    assert made.core.phase == "running", "one commit at a time"
    made.happen(events.Persisted(made.core.now, ticket))
    made.end()
    made.hear(ME, messages.Sealed(SINK, made.epoch_of(SINK), b"rest", 1))
    ((_, _, entry),) = written(made)
    assert decode_commit(entry.payload) == Commit([("counts-sink", b"rest")], final=True)


def test_where_nothing_came_to_the_sinks_nothing_is_committed():
    half = Deciding()
    made = running(half)
    half.answers["ticked"] = (d.SealSoFar(),)
    made.tick()
    half.answers["ticked"] = ()
    made.hear(ME, messages.Sealed(SINK, made.epoch_of(SINK), b"", 0))
    assert written(made) == []
    made.end()
    assert made.core.phase == "sealing"


def test_a_shard_that_is_yielded_while_sealing_is_sealed_by_its_next_owner():
    half = Deciding()
    made = running(half)
    half.answers["ticked"] = (d.TakeBack(SINK),)
    half.answers["yielded"] = (d.Assign([SINK]),)
    made.tick()
    made.end()
    made.told(ME, messages.Seal)
    made.hear(ME, messages.Yielded(SINK, made.epoch_of(SINK)))
    made.ready(ME)
    made.tick()
    assert made.told(ME, messages.Seal) == [messages.Seal(SINK, made.epoch_of(SINK), 1)]


def test_a_worker_lost_while_the_commit_is_being_written_changes_nothing():
    made = sealing()
    made.hear(ME, messages.Sealed(SINK, made.epoch_of(SINK), b"piece"))
    made.gone(ME)
    made.tick()
    made.join(AGAIN)
    assert len(written(made)) == 1
    made.persist(COMMIT_TICKET)
    assert made.told(AGAIN, messages.Finished) == [messages.Finished()]


def test_a_commit_that_was_refused_is_nobody_s_end():
    made = sealing()
    made.hear(ME, messages.Sealed(SINK, made.epoch_of(SINK), b"piece"))
    made.refuse(COMMIT_TICKET)
    assert made.asked(effects.Exit) == [effects.Exit("deposed")]
    assert made.told(ME, messages.Finished) == []


def test_when_it_is_over_whoever_asks_is_told():
    made = sealing()
    made.hear(ME, messages.Sealed(SINK, made.epoch_of(SINK), b"piece"))
    made.persist(COMMIT_TICKET)
    made.said.clear()
    made.hear(THIRD, messages.Hello())
    assert made.told(THIRD, messages.Finished) == [messages.Finished()]
    made.tick()
    made.gone(ME)


# Changes of routing


def test_a_wish_is_passed_on_as_what_it_means():
    half = Deciding()
    made = running(half, workers=2, shards=2)
    left, right = made.shards_of("count")
    made.happen(events.SplitAsked(made.now, left))
    made.happen(events.MergeAsked(made.now, left))
    to = OTHER if made.owner_of(left) == ME else ME
    made.happen(events.MoveAsked(made.now, left, to.worker))
    split, merge, move = (change for _, change in half.of("reroute"))
    assert (split.kind, split.shards, len(split.added)) == ("split", (left,), 2)
    assert (merge.kind, merge.shards, len(merge.added)) == ("merge", (left, right), 1)
    assert move == Change("move", (left,), to.worker, ())


def test_a_wish_that_can_t_be_had_or_comes_at_a_wrong_time_is_refused():
    half = Deciding()
    made = running(half)
    made.happen(events.SplitAsked(made.now, SOURCE))
    made.hear(ME, messages.Yielded(COUNT, made.epoch_of(COUNT)))
    made.happen(events.SplitAsked(made.now, COUNT))
    assert half.of("reroute") == []
    assert [note.what for note in made.asked(effects.Note)] == ["refused", "refused"]
    made = sealing()
    made.happen(events.SplitAsked(made.now, COUNT))
    assert made.half.of("reroute") == []


def test_it_does_everything_when_it_is_told():
    assert not running().core.busy


def test_a_worker_lost_during_a_commit_on_the_way_keeps_no_later_commit_waiting():
    half = Deciding()
    made = running(half, workers=2)
    (sink,) = made.shards_of("counts-sink")
    lost = made.owner_of(sink)
    left = OTHER if lost == ME else ME
    half.answers["ticked"] = (d.SealSoFar(),)
    made.tick()
    made.gone(lost)
    again = Peer(lost.worker, 2)
    made.join(again)
    made.ready(again, left)
    made.end()
    assert made.core.phase == "sealing"
