"""The story: times from the first happening, plain words for what the core says, repetitions folded, one line each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tidemill
from tidemill.observe.journal import Happening
from tidemill.observe.story import Story, tell, words

BEGAN = 1_700_000_000_123_456


def at(seconds, what, about="", who="coordinator.1"):
    return Happening(BEGAN + int(seconds * 1e6), who, what, about)


def test_a_story():
    happenings = [
        at(0, "claimed", "generation 1"),
        at(0.25, "joined", "worker0.1"),
        at(61.5, "lost", "worker0.1"),
        at(3661.5, "over", "finished"),
    ]
    assert list(tell(happenings)) == [
        "   0:00.000  coordinator.1: takes charge of the run, generation 1",
        "   0:00.250  coordinator.1: worker0.1 joined",
        "   1:01.500  coordinator.1: lost worker0.1: it ended, or was silent for too long",
        "1:01:01.500  coordinator.1: the run is over: finished",
    ]


def test_the_same_again_is_folded():
    happenings = [at(second, "refused", "MoveAsked: the run is not at rest") for second in (1, 2, 4)]
    assert list(tell([at(0, "claimed", "generation 1"), *happenings, at(5, "over", "finished")]))[1:] == [
        "   0:01.000  coordinator.1: refused to move a shard: the run is not at rest (3 times, until 0:04.000)",
        "   0:05.000  coordinator.1: the run is over: finished",
    ]


@pytest.mark.parametrize("other", [at(1, "a", "b", "c"), at(1, "a", "x", "who"), at(1, "x", "b", "who")])
def test_what_differs_is_not_folded(other):
    assert len(list(tell([at(0, "a", "b", "who"), other]))) == 2


def test_after_a_pause_the_same_is_told_anew():
    story = Story()
    assert list(story.tell(at(0, "missed", "2 happenings"))) == []
    assert len(list(story.pause())) == 1
    assert list(story.pause()) == []
    list(story.tell(at(2, "missed", "2 happenings")))
    assert list(story.pause()) == ["   0:02.000  coordinator.1: 2 happenings could not be written here"]


WORDS = {
    ("joined", "worker2.3"): "worker2.3 joined, as process number 3 in its place",
    ("worker joined", "worker2.1"): "worker2.1 joined",
    ("joined", "somebody"): "somebody joined",
    ("began", "with 5 workers"): "begins with 5 workers",
    ("rewound", "attempt 1"): "gave every shard to a worker",
    ("rewound", "attempt 2"): "took all shards back and gave them out again: attempt 2",
    ("superseded", "[3] by [7, 8]"): "shards 7 and 8 took the place of shard 3",
    ("superseded", "3"): "superseded 3",
    ("recovering", "3 shards on 4 workers"): "brings back 3 shards on 4 workers",
    ("rerouting", "split (3,)"): "splits shard 3",
    ("rerouting", "merge (3, 4)"): "merges shards 3 and 4",
    ("refused", "SplitAsked: not possible for shard 9"): "refused to split a shard: not possible for shard 9",
    ("refused", "a peer without keys"): "refused a peer without keys",
    ("failed", "worker1.1"): "worker1.1 met an error that ends the run",
    ("started", ""): "the run starts",
    ("started", "word-count on 3 workers"): "the run starts: word-count on 3 workers",
    ("a new thing", "with {braces}"): "a new thing with {braces}",
    ("a new thing", ""): "a new thing",
    ("lost", "{0}"): "lost {0}: it ended, or was silent for too long",
}


@pytest.mark.parametrize(("happening", "told"), WORDS.items(), ids=str)
def test_words(happening, told):
    assert words(Happening(1, "who", *happening)) == told


def test_all_that_the_core_says_has_words():
    core = Path(tidemill.__file__).parent / "core"
    kinds = {kind for path in core.glob("*.py") for kind in re.findall(r"_note\(\"(.*?)\"", path.read_text())}
    assert "claimed" in kinds
    unknown = {kind for kind in kinds if words(Happening(1, "", kind, "about")) == f"{kind} about"}
    assert unknown <= {"superseded", "refused"}  # which have words when they are about something


def test_foreign_text_stays_on_its_line_and_out_of_the_terminal():
    (line,) = tell([at(0, "broken", "one\n\ttwo \x1b[31mred\x9b", "who\n")])
    assert line == "   0:00.000  who: broken one two [31mred"


def test_times():
    story = Story()
    assert story.heading == ""
    lines = [*story.tell(Happening(0, "journal", "damaged", "line 1")), *story.tell(at(0, "claimed"))]
    lines += [*story.tell(at(-2, "clocks disagree")), *story.pause()]
    assert story.heading == "Times are counted from 2023-11-14 22:13:20.123 UTC."
    assert [line.split("  ")[-2].strip() for line in lines] == ["", "0:00.000", "-0:02.000"]


def test_a_time_that_no_calendar_has():
    story = Story()
    list(story.tell(Happening(2**62, "who", "what")))
    assert story.heading == f"Times are counted from {2**62} µs after 1970 began."
