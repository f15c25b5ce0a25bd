"""Who is there: the newest incarnation of each worker, unless it was given up. Silence is forgiven by who was away."""

# mypy: disable-error-code="arg-type"

from tidemill.core.ids import Peer
from tidemill.core.membership import AWAY, Members

A1, A2, B1 = Peer(0, 1), Peer(0, 2), Peer(1, 1)
PATIENCE, SILENCE = 3_000_000, 10_000_000
STEP = 100_000


def members(*peers, expected=2):
    made = Members(expected, PATIENCE, SILENCE)
    made.tick(0)
    for peer in peers:
        made.join(peer, 0)
    return made


def ticked(made, since, until):
    """Ticks all the while; who was found silent."""
    found = []
    for now in range(since, until + 1, STEP):
        found += made.tick(now)
    return found


def test_who_joined_is_a_member():
    made = members(A1)
    assert made.is_member(A1)
    assert not made.is_member(B1)
    assert not made.complete
    made.join(B1, 0)
    assert made.complete
    assert made.alive() == [A1, B1]


def test_a_newer_incarnation_replaces_the_older_one():
    made = members(A1, B1)
    assert made.join(A2, 5) == A1
    assert made.gave_up(A1)
    made.lose(A1, 5)
    assert made.alive() == [A2, B1]
    assert made.gave_up(A1)
    assert not made.gave_up(A2)


def test_joining_again_replaces_nobody():
    made = members(A1)
    assert made.join(A1, 5) is None
    assert made.alive() == [A1]


def test_who_was_given_up_stays_so_and_the_next_one_is_welcome():
    made = members(A1, B1)
    made.lose(A1, 5)
    assert made.gave_up(A1)
    assert made.gone() == [A1]
    made.heard(A1, 6)
    assert not made.is_member(A1)
    assert not made.gave_up(A2)
    assert made.join(A2, 7) is None
    assert made.is_member(A2)


def test_who_never_came_and_ended_is_given_up_too():
    made = members(B1)
    made.lose(A1, 5)
    assert made.gave_up(A1)
    assert not made.gave_up(A2)


def test_the_end_of_an_older_one_is_not_the_newest_s():
    made = members(A2)
    made.lose(A1, 5)
    assert made.is_member(A2)
    assert not made.gave_up(A2)


def test_whatever_ends_last_the_newest_stays_known():
    made = members(A1)
    made.lose(A2, 5)
    assert made.gave_up(A2), "it never came, and has ended"
    made.lose(A1, 6)
    assert made.gave_up(A2)
    assert made.gave_up(A1)
    assert not made.gave_up(Peer(0, 3))


def test_long_silence_is_noticed_and_words_break_it():
    made = members(A1, B1)
    assert ticked(made, STEP, SILENCE - STEP) == []
    made.heard(B1, SILENCE - STEP)
    assert ticked(made, SILENCE, SILENCE) == [A1]


def test_one_who_was_away_forgives_everybody():
    made = members(A1, B1)
    ticked(made, STEP, SILENCE - STEP)
    back = SILENCE - STEP + AWAY
    assert made.tick(back) == []
    assert ticked(made, back + STEP, back + SILENCE - STEP) == []
    assert ticked(made, back + SILENCE, back + SILENCE) == [A1, B1]


def test_a_clock_that_went_back_is_being_away():
    made = members(A1)
    ticked(made, STEP, SILENCE - STEP)
    made.heard(A1, SILENCE - STEP)
    assert made.tick(5) == []
    assert ticked(made, 5 + STEP, SILENCE) == []
    assert ticked(made, SILENCE + STEP, SILENCE + STEP) == [A1], "what it said in the future does not count"


def test_all_of_them_are_worth_recovering_at_once_some_after_patience():
    made = members(A1, expected=2)
    assert not made.worth_recovering(PATIENCE - 1)
    assert made.worth_recovering(PATIENCE)
    made.join(B1, 5)
    assert made.worth_recovering(6)
    made.lose(B1, PATIENCE)
    assert not made.worth_recovering(PATIENCE + 1)
    assert made.worth_recovering(2 * PATIENCE)


def test_patience_begins_with_the_first_that_comes():
    made = members(A1, expected=3)
    made.join(B1, PATIENCE - 1)
    assert made.worth_recovering(PATIENCE)


def test_nobody_is_never_enough():
    made = members(expected=1)
    assert not made.worth_recovering(10 * PATIENCE)
    made.join(A1, 0)
    made.lose(A1, 1)
    assert not made.worth_recovering(10 * PATIENCE)
