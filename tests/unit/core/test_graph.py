"""What the graph derives: who sends to whom, which nodes lie on a cycle together, and which edges close it."""

# mypy: disable-error-code="arg-type, dict-item, index, misc"
# The names of streams and nodes are plain text here.

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.graph import TIME_COLUMN, Graph, Key, Late, Node, Stream, Subscription

SCHEMA = pa.schema([("word", pa.string())])


def graph(*edges, sources=("a",), sinks=()):
    """Each edge "x y" is a stream of its own from node x to node y. Nodes are declared as they are first named."""
    pairs = [tuple(edge.split()) for edge in edges]
    names = dict.fromkeys([*sources, *(name for pair in pairs for name in pair), *sinks])
    kinds = {name: "source" if name in sources else "sink" if name in sinks else "computation" for name in names}
    nodes = {name: Node(name, kinds[name], outputs=tuple(f"{x}>{y}" for x, y in pairs if x == name)) for name in names}
    streams = {f"{x}>{y}": Stream(f"{x}>{y}", SCHEMA) for x, y in pairs}
    return Graph("test", streams, nodes, tuple(Subscription(f"{x}>{y}", y, Key()) for x, y in pairs))


def test_what_travels_has_its_time_behind_the_columns():
    wire = Stream("s", SCHEMA).wire_schema
    assert wire.names == ["word", TIME_COLUMN]
    assert wire.field(TIME_COLUMN) == pa.field(TIME_COLUMN, pa.int64(), nullable=False)


def test_late_records_are_dropped_unless_said_otherwise():
    assert Subscription("s", "c", Key()).late == Late("drop", None, None)


def test_subscriptions_are_found_by_stream_and_reader():
    made = graph("a b", "a c", "b c")
    assert made.subscribers("a>b") == (Subscription("a>b", "b", Key()),)
    assert made.subscription("c", "b>c") == Subscription("b>c", "c", Key())


def test_a_stream_without_readers_has_none():
    made = Graph("test", {"s": Stream("s", SCHEMA)}, {"a": Node("a", "source", outputs=("s",))}, ())
    assert made.subscribers("s") == ()
    assert made.producers == {"s": ("a",)}
    assert made.receivers == {"a": ()}


def test_nodes_by_kind_in_order_of_declaration():
    made = graph("a b", "b c", "c d", sinks=("d",))
    assert [node.name for node in made.of_kind("source")] == ["a"]
    assert [node.name for node in made.of_kind("computation")] == ["b", "c"]
    assert [node.name for node in made.of_kind("sink")] == ["d"]


def test_senders_and_receivers():
    made = graph("a b", "a c", "b c", "c d")
    assert made.senders == {"a": (), "b": ("a",), "c": ("a", "b"), "d": ("c",)}
    assert made.receivers == {"a": ("b", "c"), "b": ("c",), "c": ("d",), "d": ()}


def test_a_stream_of_two_producers_has_each_reader_receive_from_both():
    nodes = {
        "a": Node("a", "source", ("s",)),
        "b": Node("b", "source", ("s",)),
        "c": Node("c", "sink"),
        "d": Node("d", "sink"),
    }
    made = Graph(
        "test", {"s": Stream("s", SCHEMA)}, nodes, (Subscription("s", "c", Key()), Subscription("s", "d", Key()))
    )
    assert made.producers == {"s": ("a", "b")}
    assert made.senders["d"] == ("a", "b")
    assert made.receivers["a"] == ("c", "d")


def test_without_a_cycle_there_is_no_back_edge():
    made = graph("a b", "a c", "b d", "c d", "b c")
    assert made.cycles == {}
    assert made.back_edges == frozenset()
    assert made.outside_senders["d"] == ("b", "c")


def test_a_cycle_has_one_back_edge_the_one_that_leads_back():
    made = graph("a b", "b c", "c d", "d b", "d e")
    assert made.cycles == dict.fromkeys("bcd", ("b", "c", "d"))
    assert made.back_edges == {("d", "b")}
    assert made.outside_senders["b"] == ("a",)
    assert made.outside_senders["c"] == ()
    assert made.outside_senders["e"] == ("d",)


def test_a_node_that_reads_itself_is_a_cycle_alone():
    made = graph("a b", "b b")
    assert made.cycles == {"b": ("b",)}
    assert made.back_edges == {("b", "b")}
    assert made.outside_senders["b"] == ("a",)


def test_two_cycles_apart_and_two_that_share_a_node():
    apart = graph("a b", "b c", "c b", "c d", "d e", "e d")
    assert apart.cycles == {"b": ("b", "c"), "c": ("b", "c"), "d": ("d", "e"), "e": ("d", "e")}
    shared = graph("a b", "b c", "c b", "b d", "d b")
    assert set(shared.cycles) == {"b", "c", "d"}
    assert shared.back_edges == {("c", "b"), ("d", "b")}


def test_a_graph_may_be_deep():
    depth = 200
    made = graph(*(f"{n} {n + 1}" for n in range(depth)), f"{depth} 1", sources=("0",))
    assert made.back_edges == {(str(depth), "1")}


def test_it_is_the_same_after_a_journey():
    made = graph("a b", "b b")
    assert made.back_edges
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own
    assert again == made
    assert again.back_edges == made.back_edges
    assert again.subscribers("a>b") == made.subscribers("a>b")


def test_what_was_not_declared_is_not_found():
    with pytest.raises(KeyError):
        graph("a b").subscribers("nowhere")
    with pytest.raises(StopIteration):
        graph("a b").subscription("a", "a>b")


NODES = "abcdef"
EDGES = st.sets(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES[1:])), max_size=14)


def walks_back_to(start, pairs):
    """Whether a path of at least one edge leads from the node to itself: by repeated squaring of nothing, just
    steps."""
    reached = {y for x, y in pairs if x == start}
    for _ in NODES:
        reached |= {y for x, y in pairs if x in reached}
    return start in reached


@given(EDGES)
def test_without_its_back_edges_no_graph_has_a_cycle(pairs):
    made = graph(*(f"{x} {y}" for x, y in sorted(pairs)), sources=("a",))
    assert made.back_edges <= pairs
    rest = pairs - made.back_edges
    assert not any(walks_back_to(node, rest) for node in NODES)


@given(EDGES)
def test_cycles_are_the_nodes_that_reach_each_other(pairs):
    made = graph(*(f"{x} {y}" for x, y in sorted(pairs)), sources=tuple(NODES))
    assert set(made.cycles) == {node for node in NODES if walks_back_to(node, pairs)}
    for node, members in made.cycles.items():
        assert node in members
        assert all(made.cycles[member] == members for member in members)
    on_cycles = {(x, y) for x, y in pairs if y in made.cycles.get(x, ())}
    assert made.back_edges <= on_cycles
