"""Pipelines that can't run: each is refused before anything starts, by one error that says all that is needed."""

# ruff: noqa: ARG001 - what is called by its place takes what it is given

import threading
from dataclasses import dataclass

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import errors
from tidemill.core.graph import Key
from tidemill.ports import ARRIVAL, SCHEDULED

WORDS = "word string, n int, at timestamp, tags array<string>"


def words(schema=WORDS, timestamp="at"):
    return tm.sources.Rows([], schema, timestamp=timestamp)


class Base(tm.Computation):
    def process_record(self, ctx, record):
        pass


class Count(Base):
    words = tm.Input(key="word")
    counts = tm.Output("word string, n long")


def refused(error, *computations, source=None, sinks=(), late="drop"):
    """The message of the error that this pipeline is refused with."""
    pipeline = tm.Pipeline("test", late=late)
    pipeline.source("words", source or words())
    for computation in computations:
        pipeline.add(computation)
    for stream, sink in sinks:
        pipeline.sink(stream, sink)
    with pytest.raises(errors.PipelineError) as caught:
        pipeline.graph()
    assert type(caught.value) is error, caught.value
    return str(caught.value)


def line(offset):
    """Where `refused` declared something: so many lines into it."""
    return f"test_check.py:{refused.__code__.co_firstlineno + offset}"


SOURCE, ADD, SINK = line(3), line(5), line(7)


# ------------------------------------------------------------------------------------------------------------- names


def test_no_source():
    pipeline = tm.Pipeline("nothing")
    pipeline.add(Count)
    with pytest.raises(errors.PipelineError, match=r"Pipeline 'nothing' has no source.*pipeline.source\('words'"):
        pipeline.graph()


def test_two_computations_of_one_name():
    message = refused(errors.DuplicateNameError, Count, Count)
    assert message == (
        f"'count' is the name of two things, declared at {ADD} and {ADD}. Names taken: "
        "'source:words', 'count'. Give one another: pipeline.add(..., name='count-2')."
    )


def test_a_computation_named_like_a_source_or_sink():
    for name in ("source:words", "sink:words"):
        pipeline = tm.Pipeline("test")
        pipeline.source("words", words())
        pipeline.sink("words", tm.sinks.Collect())
        pipeline.add(Count, name=name)
        with pytest.raises(errors.DuplicateNameError, match=f"'{name}' is the name of two things"):
            pipeline.graph()


def test_two_sources_of_one_stream():
    pipeline = tm.Pipeline("test")
    pipeline.source("words", words())
    pipeline.source("words", words())
    with pytest.raises(errors.DuplicateNameError) as caught:
        pipeline.graph()
    first = test_two_sources_of_one_stream.__code__.co_firstlineno + 2
    assert str(caught.value) == (
        f"Stream 'words' has two sources, declared at test_check.py:{first} and test_check.py:{first + 1}. Give one of "
        "them another stream; the streams of sources are: 'words'."
    )


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda _: tm.Pipeline(""), "A pipeline needs a name that is text, not '' (tm.Pipeline)"),
        (lambda p: p.source(words(), "words"), "A source's stream needs a name that is text, not <tidemill"),
        (
            lambda p: p.add(Count, name=3),
            "A computation needs a name that is text, not 3 (pipeline.add at test_check.py:",
        ),
        (
            lambda p: p.sink("", tm.sinks.Collect()),
            "A sink's stream needs a name that is text, not '' (pipeline.sink at",
        ),
        (
            lambda _: tm.Pipeline("test", late="divert"),
            "Pipeline 'test' has late='divert'. It may be \"drop\", \"process\"",
        ),
    ],
)
def test_names_are_text(build, said):
    pipeline = tm.Pipeline("test")
    pipeline.source("words", words())
    made = build(pipeline)
    with pytest.raises(errors.PipelineError) as caught:
        (made if isinstance(made, tm.Pipeline) else pipeline).graph()
    assert said in str(caught.value)


# ----------------------------------------------------------------------------------------------------------- sources


@pytest.mark.parametrize("given", ["words.jsonl", tm.sources.Rows, None, 3])
def test_what_is_no_source(given):
    pipeline = tm.Pipeline("test")
    pipeline.source("words", given)
    with pytest.raises(errors.PipelineError) as caught:
        pipeline.graph()
    assert f"{given!r} can't be the source of 'words' (declared at test_check.py:" in str(caught.value)
    assert "Give it one of tm.sources" in str(caught.value)


class Odd:
    """A source of somebody's own."""

    timestamp = None

    def __init__(self, schema):
        self.schema = schema

    def splits(self):
        return []

    def open(self, split, position):
        raise AssertionError("the check runs nothing")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            "n long",
            f"The schema of the source of 'words' (declared at {SOURCE}) is 'n long'. A source's schema is a pyarrow.",
        ),
        (
            pa.schema([("n", pa.uint8())]),
            f"The schema of the source of 'words' (declared at {SOURCE}) can't be used: column 'n'",
        ),
        (pa.schema([("n", pa.int8()), ("n", pa.int8())]), "two columns are called 'n'"),
    ],
)
def test_a_source_with_a_schema_of_its_own_kind(schema, said):
    assert said in refused(errors.SchemaError, source=Odd(schema))


def test_a_timestamp_that_is_no_column():
    message = refused(errors.UnknownColumnError, source=words(timestamp="att"))
    assert message == (
        f"The timestamp of the source of 'words' (declared at {SOURCE}) is to be column 'att', which it does not have. "
        "Its columns: 'word', 'n', 'at', 'tags'. Did you mean 'at'? Columns that could be it: 'at'. Or take the time "
        "of reading: timestamp=tm.ARRIVAL."
    )


@pytest.mark.parametrize("timestamp", [ARRIVAL, SCHEDULED])
def test_a_time_that_no_column_tells_is_time_enough(timestamp):
    class Timed(Base):
        words = tm.Input(key="word")

        def process_timer(self, ctx, timer):
            pass

    source = tm.sources.Generator(lambda i: (str(i),), "word string", timestamp, rate=1)
    pipeline = tm.Pipeline("test")
    pipeline.source("words", source)
    pipeline.add(Timed)
    assert pipeline.graph().of_kind("source")[0].handle is source


@pytest.mark.parametrize("column", ["word", "n"])
def test_a_timestamp_that_is_no_time(column):
    message = refused(errors.TimestampError, source=words(timestamp=column))
    assert (
        f"The timestamp of the source of 'words' (declared at {SOURCE}) is to be column '{column}' of type " in message
    )
    assert "Event time is of type timestamp, or long in microseconds. Columns that could be it: 'at'." in message


# ----------------------------------------------------------------------------------------------- a computation's form


def test_what_is_no_computation():
    message = refused(errors.ComputationError, dict)
    assert message == (
        f"pipeline.add at {ADD} was given <class 'dict'>, which is no computation. Give it a subclass of "
        "tidemill.Computation, or an instance of one."
    )
    assert "was given 3, which is no computation" in refused(errors.ComputationError, 3)


def test_neither_form():
    class Typo(tm.Computation):
        words = tm.Input(key="word")

        def process_records(self, ctx, record):
            pass

    assert refused(errors.ComputationError, Typo) == (
        f"Computation 'typo' (declared at {ADD}) has neither process_record nor process_bundle; its own attributes "
        "are: 'process_records', 'words'. Did you mean 'process_records'? Define process_record(self, ctx, record)."
    )


class Vector(tm.Computation):
    words = tm.Input(key="word")

    def process_bundle(self, ctx, batch):
        pass


@dataclass
class Seen:
    n: int = 0


@pytest.mark.parametrize(
    ("parent", "more", "said"),
    [
        (Base, {"process_bundle": Vector.process_bundle}, "defines process_record and process_bundle. Keep one"),
        (
            Base,
            {"process_watermark": print},
            "defines process_record and process_watermark, which goes with process_bundle",
        ),
        (
            Base,
            {"state": tm.Columns("n long")},
            "defines process_record and state in tm.Columns. Make the state a dataclass",
        ),
        (Vector, {"process_timer": print}, "defines process_bundle and process_timer. Timers belong to keys"),
        (Vector, {"state": Seen}, "defines process_bundle and state = <class"),
        (Vector, {"state": int}, 'Declare the state in columns, tm.Columns("n long"), or leave it out'),
    ],
)
def test_forms_that_do_not_go_together(parent, more, said):
    message = refused(errors.ComputationError, type("Mixed", (parent,), {"words": tm.Input(key="word"), **more}))
    assert message.startswith(f"Computation 'mixed' (declared at {ADD}) defines ")
    assert said in message


def test_code_that_would_not_run_when_called():
    async def coroutine(self, ctx, record):
        pass

    def generator(self, ctx, record):
        yield 1

    async def both(self, ctx, record):
        yield 1

    for method in (coroutine, generator, both):
        message = refused(errors.ComputationError, type("Late", (Count,), {"process_record": method}))
        assert f"process_record of computation 'late' (declared at {ADD}) is asynchronous or a generator" in message
        assert "call ctx.produce" in message


def test_no_input():
    message = refused(errors.ComputationError, Base)
    assert message == (
        f"Computation 'base' (declared at {ADD}) has no Input. Give its class one: words = tm.Input(key=\"word\")."
    )


@pytest.mark.parametrize("given", [3, "", Count.counts])
def test_a_stream_goes_by_its_name(given):
    class Named(Base):
        words = tm.Input(given, key="word")

    message = refused(errors.ComputationError, Named)
    assert (
        f"The Input (declared at {Named.words.declared_at}) of computation 'named' (declared at {ADD}) has" in message
    )
    assert f"has stream={given!r}. A stream goes by its name" in message


def test_an_output_goes_by_its_name_too():
    class Named(Count):
        more = tm.Output("n long", stream=3)  # type: ignore[arg-type]  # the point of the test

    assert "The Output (declared at" in refused(errors.ComputationError, Named)


def test_one_stream_read_twice():
    class Twice(Count):
        again = tm.Input("words", key="n")

    message = refused(errors.ComputationError, Twice)
    assert f"Computation 'twice' (declared at {ADD}) reads stream 'words' twice: by the Inputs declared at " in message
    assert f"{Count.words.declared_at} and {Twice.again.declared_at}. Keep one;" in message


def test_two_outputs_of_one_stream():
    class Twice(Count):
        again = tm.Output("word string, n long", stream="counts")

    assert refused(errors.DuplicateNameError, Twice) == (
        f"Computation 'twice' (declared at {ADD}) has two Outputs for stream 'counts': 'counts', declared at "
        f"{Count.counts.declared_at}, and 'again', declared at {Twice.again.declared_at}. Give one of them another "
        "stream=."
    )


def test_one_output_under_two_names():
    class Twice(Count):
        again = Count.counts

    message = refused(errors.ComputationError, Twice)
    assert (
        f"One Output (declared at {Count.counts.declared_at}) is both 'counts' and 'again' of computation 'twice'"
        in message
    )


def test_a_class_that_needs_arguments():
    class Threshold(Count):
        def __init__(self, limit):
            self.limit = limit

    message = refused(errors.ComputationError, Threshold)
    assert f"Computation 'threshold' (declared at {ADD}) was added as a class, and making a Threshold needs" in message
    assert "(missing a required argument: 'limit'). Add an instance: pipeline.add(Threshold(...))" in message


def test_an_instance_that_cannot_be_copied():
    class Locked(Count):
        def __init__(self):
            self.lock = threading.Lock()

    message = refused(errors.ComputationError, Locked())
    assert f"The instance given as computation 'locked' (declared at {ADD}) can't be copied for each shard (" in message
    assert "Keep only plain values in it" in message


def test_a_state_that_cannot_be():
    class Stateful(Count):
        state = object

    message = refused(errors.StateTypeError, Stateful)
    assert (
        f"object can't be the state of computation 'stateful' (declared at {ADD}): object is a builtins.object"
        in message
    )


def test_a_state_in_columns_that_cannot_be():
    class Stateful(Vector):
        state = tm.Columns("word string")

    message = refused(errors.StateTypeError, Stateful)
    assert f"of computation 'stateful' (declared at {ADD}) can't have column 'word' of type string" in message


# ----------------------------------------------------------------------------------------------------------- streams


def test_a_stream_of_two_schemas():
    class Other(Base):
        words = tm.Input(key="word")
        counts = tm.Output("word string, n int")

    assert refused(errors.SchemaError, Count, Other) == (
        "Stream 'counts' has two schemas: \"word string, n long\" from an Output (declared at "
        f"{Count.counts.declared_at}) of computation 'count', and \"word string, n int\" from an Output (declared at "
        f"{Other.counts.declared_at}) of computation 'other'. All that produce a stream must give it the same: change "
        "one, or rename a stream."
    )


def test_a_source_and_an_output_of_two_schemas():
    class Echo(Base):
        words = tm.Input(key="word")
        echo = tm.Output("word string", stream="words")

    message = refused(errors.SchemaError, Echo)
    assert f'array<string>" from its source (declared at {SOURCE}), and "word string" from an Output' in message


def test_a_stream_that_nothing_produces():
    class Reader(Base):
        wrods = tm.Input(key="word")

    assert refused(errors.UnknownStreamError, Count, Reader) == (
        f"The Input (declared at {Reader.wrods.declared_at}) of computation 'reader' (declared at {ADD}) reads stream "
        "'wrods', which nothing produces. Streams are: 'words', 'counts'. Did you mean 'words'? Feed it, "
        "pipeline.source('wrods', ...), or let an Output produce it."
    )


def test_a_sink_of_a_stream_that_nothing_produces():
    message = refused(errors.UnknownStreamError, Count, sinks=[("count", tm.sinks.Collect())])
    assert f"The sink of 'count' (declared at {SINK}) reads stream 'count', which nothing produces." in message
    assert "Did you mean 'counts'?" in message


@pytest.mark.parametrize("given", [tm.sinks.Collect, "out/", None])
def test_what_is_no_sink(given):
    message = refused(errors.PipelineError, Count, sinks=[("counts", given)])
    assert f"{given!r} can't be the sink of 'counts' (declared at {SINK}). Give it one of tm.sinks" in message


# -------------------------------------------------------------------------------------------------------------- keys


def keyed(key):
    return type("Keyed", (Base,), {"words": tm.Input(key=key)})


@pytest.mark.parametrize("key", ["wrod", ("n", "wrod")])
def test_a_key_that_is_no_column(key):
    computation = keyed(key)
    assert refused(errors.UnknownColumnError, computation) == (
        f"The Input (declared at {computation.words.declared_at}) of computation 'keyed' (declared at {ADD}) is keyed "
        f"by column 'wrod', which stream 'words' from its source (declared at {SOURCE}) does not have. Its columns: "
        "'word', 'n', 'at', 'tags'. Did you mean 'word'? Name one of these in key=."
    )


@pytest.mark.parametrize(
    ("type", "arrow"),
    [("array<string>", "list<element"), ("map<string, int>", "map<string, int"), ("struct<a int>", "struct<a: int32>")],
)
def test_a_key_of_a_type_that_has_no_place(type, arrow):
    computation = keyed("tags")
    source = words(f"word string, tags {type}", timestamp=None)
    message = refused(errors.KeyTypeError, computation, source=source)
    assert (
        f"The Input (declared at {computation.words.declared_at}) of computation 'keyed' (declared at {ADD})" in message
    )
    assert f"is keyed by column 'tags' of stream 'words', of type {arrow}" in message
    assert "which can't be a key. Keys are boolean, " in message
    assert "or by a function of the record." in message


@pytest.mark.parametrize("key", [3, (), ["word"], ("word", 3)])
def test_a_key_that_is_none(key):
    message = refused(errors.ComputationError, keyed(key))
    assert f"has key={key!r}. A key is the name of a column of 'words' ('word', 'n', 'at', 'tags'), a tuple" in message


def test_without_a_key_only_whole_bundles_without_state_are_taken():
    class Plain(Base):
        words = tm.Input(key=None)

        def process_record(self, ctx, record):
            pass

    class Stateful(tm.Computation):
        words = tm.Input(key=None)
        state = tm.Columns("n long")

        def process_bundle(self, ctx, batch):
            pass

    class Taken(tm.Computation):
        words = tm.Input(key=None)

        def process_bundle(self, ctx, batch):
            pass

    for computation in (Plain, Stateful):
        assert "has key=None, so its records have no place" in refused(errors.ComputationError, computation)
    pipeline = tm.Pipeline("test")
    pipeline.source("words", words())
    pipeline.add(Taken)
    assert pipeline.graph().subscriptions[0].key == Key()


def test_inputs_whose_keys_differ_in_type():
    class Join(Base):
        free = tm.Input("more", key=lambda record: record.n)
        words = tm.Input(key="n")
        counts = tm.Input(key="n")

    class More(Base):
        words = tm.Input(key="word")
        more = tm.Output("n long")

    message = refused(errors.KeyTypeError, More, Count, Join)
    assert (
        f"The Inputs of computation 'join' (declared at {ADD}) have keys of two types: int32 for stream 'words'"
        in message
    )
    assert f"and int64 for stream 'counts' (declared at {Join.counts.declared_at})." in message
    assert "declare the columns with one type" in message


# ------------------------------------------------------------------------------------------------------ late records


def reader(**options):
    class Reader(Base):
        side = tm.Output(WORDS)
        other = tm.Output("word string")
        words = tm.Input(key="word", **options)

    return Reader


def test_a_choice_for_late_records_that_is_none():
    computation = reader(late="sid")
    assert refused(errors.ComputationError, computation) == (
        f"The Input (declared at {computation.words.declared_at}) of computation 'reader' (declared at {ADD}) would "
        "treat late records by 'sid'. It may be one of 'drop', 'process', 'side', 'other' or a function. Did you mean "
        "'side'? To divert, make the Output an attribute of the computation."
    )


@pytest.mark.parametrize("options", [{"late": "divert"}, {"late": 3}, {"late": print, "divert": "sied"}])
def test_nowhere_to_divert_to(options):
    assert "would treat late records by" in refused(errors.ComputationError, reader(**options))


def test_diverting_to_the_output_of_another():
    message = refused(errors.ComputationError, reader(late=Count.counts))
    assert "would treat late records by <Output 'counts' declared at" in message


def test_diverting_to_a_stream_of_another_schema():
    computation = reader(late="other")
    message = refused(errors.SchemaError, computation)
    assert f"Late records of stream 'words', \"{WORDS}\" from its source (declared at {SOURCE})" in message
    assert (
        f"can't be diverted to 'other' by computation 'reader' (declared at {ADD}): that is \"word string\", declared"
        in message
    )
    assert f"at {computation.other.declared_at}. Give it the same schema." in message


@pytest.mark.parametrize("late", ["drop", "process", "side"])
def test_a_second_place_to_divert_to(late):
    message = refused(errors.ComputationError, reader(late=late, divert="side"))
    assert f"has divert= beside late={late!r}" in message


# --------------------------------------------------------------------------------------------------- the whole graph


def test_a_computation_that_no_source_reaches():
    class Ping(Base):
        pongs = tm.Input(key="n")
        pings = tm.Output("n long")

    class Pong(Base):
        pings = tm.Input(key="n")
        pongs = tm.Output("n long")

    assert refused(errors.UnreachableError, Count, Ping, Pong) == (
        f"No source leads to computation 'ping' (declared at {ADD}): it reads 'pongs', produced only by 'pong'. "
        "Sources feed: 'words'. Feed one of its streams with pipeline.source(...), or take the computation out."
    )


class Timers(Base):
    counts = tm.Input(key="word")

    def process_timer(self, ctx, timer):
        pass


class Marks(tm.Computation):
    words = tm.Input(key="word")

    def process_bundle(self, ctx, batch):
        pass

    def process_watermark(self, ctx):
        pass


def test_time_is_needed_further_down():
    assert refused(errors.TimestampError, Count, Timers, source=words(timestamp=None)) == (
        f"The source of 'words' (declared at {SOURCE}) has no timestamp, but leads to computation 'timers' (declared "
        f"at {ADD}), whose process_timer waits for event time. Give the source timestamp=. Columns that could be it: "
        "'at'. Or take the time of reading: timestamp=tm.ARRIVAL."
    )


def test_time_is_needed_for_marks():
    message = refused(errors.TimestampError, Marks, source=words("word string", timestamp=None))
    assert "leads to computation 'marks'" in message
    assert "whose process_watermark waits for event time" in message
    assert "Columns that could be it: none." in message


def test_time_is_needed_of_the_one_source_that_leads_there():
    class Other(Base):
        lines = tm.Input(key="word")

    pipeline = tm.Pipeline("test")
    pipeline.source("words", words())
    pipeline.source("lines", words(timestamp=None))
    pipeline.add(Count)
    pipeline.add(Timers)
    pipeline.add(Other)
    assert "timers" in pipeline.graph().nodes
