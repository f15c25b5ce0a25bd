"""Pipelines that are sound, and the graphs they become."""

# mypy: disable-error-code="arg-type, index"
# The names of streams and nodes are plain text here.
# ruff: noqa: ARG001 - what is called by its place takes what it is given

import pickle
import subprocess
import sys
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.core.graph import ColumnState, Key, Late, RowState, Subscription

WORDS = "word string, at timestamp"


def words(timestamp="at"):
    return tm.sources.Rows([("a", 1)], WORDS, timestamp=timestamp)


@dataclass
class Seen:
    n: int = 0


class WordCount(tm.Computation):
    words = tm.Input(key="word")
    counts = tm.Output("word string, n long")
    state = Seen

    def process_record(self, ctx, record):
        ctx.state.n += 1
        ctx.produce(self.counts, word=ctx.key, n=ctx.state.n)


class Base(tm.Computation):
    """What the computations here need and do not care about."""

    def process_record(self, ctx, record):
        pass


def made(node):
    assert node.make is not None
    return node.make()


def graph_of(*computations, sinks=(), late="drop", source=None, stream="words"):
    pipeline = tm.Pipeline("test", late=late)
    pipeline.source(stream, source or words())
    for computation in computations:
        pipeline.add(computation)
    for sink in sinks:
        pipeline.sink(sink, tm.sinks.Collect())
    return pipeline.graph()


def test_the_first_pipeline():
    source, sink = words(), tm.sinks.Collect()
    pipeline = tm.Pipeline("word-count")
    pipeline.sink("counts", sink)
    pipeline.add(WordCount)
    pipeline.source("words", source)
    graph = pipeline.graph()

    assert graph.name == "word-count"
    assert list(graph.nodes) == ["source:words", "word-count", "sink:counts"]
    assert {name: stream.schema.names for name, stream in graph.streams.items()} == {
        "words": ["word", "at"],
        "counts": ["word", "n"],
    }
    assert graph.subscriptions == (
        Subscription("words", "word-count", Key(("word",), (pa.string(),)), Late("drop")),
        Subscription("counts", "sink:counts", Key(), Late("process")),
    )
    node = graph.nodes["word-count"]
    assert (node.kind, node.outputs, node.ports, node.vectorised) == (
        "computation",
        ("counts",),
        (WordCount.counts,),
        False,
    )
    assert node.state == RowState(Seen, Seen)
    assert type(made(node)) is WordCount
    assert made(node) is not made(node)
    assert graph.nodes["source:words"].handle is source
    assert graph.nodes["source:words"].outputs == ("words",)
    assert graph.nodes["sink:counts"].handle is sink
    assert repr(pipeline) == "<Pipeline 'word-count'>"


def test_every_node_says_where_it_was_declared():
    graph = graph_of(WordCount, sinks=["counts"])
    line = graph_of.__code__.co_firstlineno
    assert graph.nodes["source:words"].declared_at == f"test_pipeline.py:{line + 2}"
    assert graph.nodes["word-count"].declared_at == f"test_pipeline.py:{line + 4}"
    assert graph.nodes["sink:counts"].declared_at == f"test_pipeline.py:{line + 6}"


def test_checking_changes_nothing():
    pipeline = tm.Pipeline("word-count")
    pipeline.source("words", words())
    assert list(pipeline.graph().nodes) == ["source:words"]
    pipeline.add(WordCount)
    assert pipeline.graph() == pipeline.graph()


def test_a_graph_can_be_sent():
    graph = graph_of(WordCount)
    again = pickle.loads(pickle.dumps(graph))  # noqa: S301 - our own
    assert again.nodes["word-count"].ports[0] is WordCount.counts
    assert type(made(again.nodes["word-count"])) is WordCount


SCRIPT = """
import sys
from dataclasses import dataclass
from pyspark import cloudpickle
import tidemill as tm

@dataclass
class Seen:
    n: int = 0

class WordCount(tm.Computation):
    words = tm.Input(key="word")
    counts = tm.Output("word string, n long")
    state = Seen

    def __init__(self):
        self.extra = tm.Output("n long")

    def process_record(self, ctx, record): ...

pipeline = tm.Pipeline("word-count")
pipeline.source("words", tm.sources.Rows([("a", 1)], "word string, at timestamp", timestamp="at"))
pipeline.add(WordCount())
sys.stdout.buffer.write(cloudpickle.dumps(pipeline.graph()))
"""

WORKER = """
import pickle, sys
node = pickle.loads(sys.stdin.buffer.read()).nodes["word-count"]
one, other = node.make(), node.make()
assert one is not other
assert node.ports[0] is one.counts is other.counts
assert node.ports[1] is one.extra is other.extra
assert node.state.make().n == 0
"""


def test_a_graph_of_classes_from_a_script_arrives_whole():
    """As Spark sends it: what `__main__` defines goes by value, and is the same thing throughout where it arrives."""
    sent = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=False)
    assert sent.returncode == 0, sent.stderr.decode()
    worked = subprocess.run([sys.executable, "-c", WORKER], input=sent.stdout, capture_output=True, check=False)
    assert worked.returncode == 0, worked.stderr.decode()


@pytest.mark.parametrize(
    ("name", "kebab"),
    [
        ("WordCount", "word-count"),
        ("HTTPServer", "http-server"),
        ("Top10Words", "top10-words"),
        ("_Hidden_Thing", "hidden-thing"),
        ("x", "x"),
    ],
)
def test_a_computation_is_named_after_its_class(name, kebab):
    computation = type(name, (Base,), {"words": tm.Input(key="word")})
    assert kebab in graph_of(computation).nodes
    assert kebab in graph_of(computation()).nodes


def test_or_as_it_is_told():
    pipeline = tm.Pipeline("twice")
    pipeline.source("words", words())
    pipeline.add(WordCount)
    pipeline.add(WordCount, name="again")
    graph = pipeline.graph()
    assert graph.producers["counts"] == ("word-count", "again")
    assert graph.receivers["source:words"] == ("word-count", "again")


def test_each_shard_gets_a_copy_of_an_instance():
    class Threshold(Base):
        words = tm.Input(key="word")
        high = tm.Output("word string")

        def __init__(self, limits):
            self.limits = limits

    given = Threshold([1])
    node = graph_of(given).nodes["threshold"]
    one, other = made(node), made(node)
    one.limits.append(2)
    assert (given.limits, other.limits) == ([1], [1])
    given.limits.append(3)
    assert made(node).limits == [1]
    assert one.high is Threshold.high is node.ports[0]


def test_an_instance_may_declare_what_its_class_does_not():
    class Mapped(Base):
        def __init__(self, source, schema):
            self.read = tm.Input(source, key=lambda record: record.word)
            self.mapped = tm.Output(schema)
            self.state = int

    graph = graph_of(Mapped("words", "n long"))
    node = graph.nodes["mapped"]
    assert node.outputs == ("mapped",)
    assert made(node).mapped is node.ports[0]
    assert node.state == RowState(int, int)
    assert graph.subscription("mapped", "words").key.function is not None


def test_several_sinks_of_one_stream_have_names_of_their_own():
    graph = graph_of(WordCount, sinks=["counts", "words", "counts", "counts"])
    assert [node.name for node in graph.of_kind("sink")] == [
        "sink:counts",
        "sink:words",
        "sink:counts:2",
        "sink:counts:3",
    ]
    assert len(graph.subscribers("counts")) == 3


def test_keys_are_a_column_several_or_a_function():
    def first_letter(record):
        return record.word[0]

    class One(Base):
        words = tm.Input(key="at")

    class Several(Base):
        words = tm.Input(key=("word", "at"))

    class Function(Base):
        words = tm.Input(key=first_letter)

    graph = graph_of(One, Several, Function)
    keys = [subscription.key for subscription in graph.subscribers("words")]
    time = pa.timestamp("us", tz="UTC")
    assert keys == [Key(("at",), (time,)), Key(("word", "at"), (pa.string(), time)), Key(function=first_letter)]


def test_several_inputs_whose_keys_agree():
    class Join(Base):
        words = tm.Input(key="word")
        counted = tm.Input("counts", key="word")
        odd = tm.Input("corrections", key=lambda record: record.n)

    class Correct(Base):
        counts = tm.Input(key="n")
        corrections = tm.Output("n long")

    graph = graph_of(Join, WordCount, Correct)
    assert graph.senders["join"] == ("source:words", "word-count", "correct")


def test_a_subclass_inherits_its_ports():
    class Loud(WordCount):
        shouts = tm.Output("word string")

    node = graph_of(Loud).nodes["loud"]
    assert node.outputs == ("counts", "shouts")
    assert node.ports == (WordCount.counts, Loud.shouts)
    assert Loud.counts is WordCount.counts
    assert node.state == RowState(Seen, Seen)


def test_one_output_object_may_serve_two_classes():
    shared = tm.Output("word string")

    class One(Base):
        words = tm.Input(key="word")
        found = shared

    class Other(Base):
        words = tm.Input(key="at")
        found = shared

    assert graph_of(One, Other).producers["found"] == ("one", "other")


def test_the_vectorised_form():
    class Sums(tm.Computation):
        words = tm.Input(key="word")
        state = tm.Columns("n long, total double")

        def process_bundle(self, ctx, batch):
            pass

        def process_watermark(self, ctx):
            pass

    node = graph_of(Sums).nodes["sums"]
    assert node.vectorised
    assert node.state == ColumnState((("n", "int64"), ("total", "float64")))


def test_a_computation_may_read_what_it_and_later_ones_produce():
    class Walk(Base):
        words = tm.Input(key="word")
        steps = tm.Input(key="word")
        more = tm.Output("word string", stream="steps")
        ends = tm.Output("word string")

    class Back(Base):
        ends = tm.Input(key="word")
        again = tm.Output("word string", stream="steps")

    graph = graph_of(Walk, Back, sinks=["ends"])
    assert graph.cycles == dict.fromkeys(("walk", "back"), ("walk", "back"))
    assert graph.back_edges == {("walk", "walk"), ("back", "walk")}
    assert graph.producers["steps"] == ("walk", "back")


def test_a_source_and_a_computation_may_share_a_stream():
    class Echo(Base):
        words = tm.Input(key="word")
        echo = tm.Output(WORDS, stream="words")

    graph = graph_of(Echo)
    assert graph.producers["words"] == ("source:words", "echo")
    assert graph.back_edges == {("echo", "echo")}


@dataclass
class Configured(Base):
    limit: int = 3
    names: list[str] = field(default_factory=list)
    words = tm.Input(key="word")


def test_a_computation_may_be_a_dataclass():
    graph = graph_of(Configured(limit=5))
    assert made(graph.nodes["configured"]) == Configured(limit=5)
    assert made(graph_of(Configured).nodes["configured"]) == Configured()


# ------------------------------------------------------------------------------------------------------ late records


def late_of(late, *, default="drop", divert=None):
    class Reader(Base):
        side = tm.Output(WORDS, stream="too-late")
        words = tm.Input(key="word", late=side if late == "the output" else late, divert=divert)

    return graph_of(Reader, late=default).subscription("reader", "words").late


def choose(record, watermark):
    return "drop"


@pytest.mark.parametrize(
    ("said", "default", "divert", "late"),
    [
        (None, "drop", None, Late("drop")),
        (None, "process", None, Late("process")),
        (None, choose, None, Late(choose=choose)),
        ("drop", "process", None, Late("drop")),
        ("process", "drop", None, Late("process")),
        ("the output", "drop", None, Late("divert", "too-late")),
        ("side", "drop", None, Late("divert", "too-late")),
        ("too-late", "drop", None, Late("divert", "too-late")),
        ("divert", "drop", "side", Late("divert", "too-late")),
        (choose, "drop", None, Late(choose=choose)),
        (choose, "drop", "side", Late(stream="too-late", choose=choose)),
    ],
)
def test_what_becomes_of_late_records(said, default, divert, late):
    assert late_of(said, default=default, divert=divert) == late


# -------------------------------------------------------------------------------------------------------------- time


class Timers(Base):
    words = tm.Input(key="word")

    def process_timer(self, ctx, timer):
        pass


@pytest.mark.parametrize("timestamp", ["at", tm.ARRIVAL])
def test_timers_need_a_source_with_time(timestamp):
    assert "timers" in graph_of(Timers, source=words(timestamp)).nodes


@pytest.mark.parametrize("type", ["timestamp", "timestamp_ntz", "long"])
def test_types_of_time(type):
    source = tm.sources.Rows([], f"word string, at {type}", timestamp="at")
    assert "timers" in graph_of(Timers, source=source).nodes


def test_without_timers_no_time_is_needed():
    assert "word-count" in graph_of(WordCount, source=words(None)).nodes
