"""Files of JSON lines: settled once, rewound to the byte, and malformed lines treated as asked."""

import json
import pickle
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidemill as tm
from tidemill.core.ids import BEGINNING, END, LAST, Micros, StreamName
from tidemill.errors import DataError, PipelineError, SchemaError, StorageError
from tidemill.ports import MALFORMED, SCHEDULED, Diverting, Preparable, Source
from tidemill.sources import files as module

HERE = r"the Files declared at test_files.py:\d+"
THERE = HERE.replace("the", "The", 1)
NOW = Micros(0)


@pytest.fixture
def folder(tmp_path):
    """Two files of numbers, the second without a last newline, and one that is empty."""
    write(tmp_path / "a.jsonl", '{"n": 0}\n{"n": 1}\n{"n": 2}\n')
    write(tmp_path / "b.jsonl", "")
    write(tmp_path / "c.jsonl", '{"n": 3}\n\n  \r\n{"n": 4}')
    return tmp_path


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def files(pattern, schema="n long", timestamp=None, **options):
    return tm.sources.Files(pattern, schema, timestamp, **options)


def chunks(source, split="0", position=0, limit=2):
    with closing(source.open(split, position)) as reader:
        read = [reader.read(limit)]
        while not read[-1].ended:
            read.append(reader.read(limit))
        return read


def numbers(read):
    return [n for chunk in read for n in chunk.batch.column("n").to_pylist()]


def all_numbers(source):
    return [numbers(chunks(source, split)) for split in source.splits()]


# ------------------------------------------------------------------------------------------------ which files there are


def test_files_are_a_source_that_is_prepared_and_may_divert(folder):
    source = files(folder / "a.jsonl")
    assert isinstance(source, Source)
    assert isinstance(source, Preparable)
    assert isinstance(source, Diverting)
    assert source.diverts_to is None
    assert files("a", malformed="divert", diverts_to="bad").diverts_to == "bad"


def test_a_path_a_pattern_or_several(folder, monkeypatch):
    def found(pattern):
        return all_numbers(files(pattern).prepared(NOW))[0]

    assert found(folder / "a.jsonl") == found(str(folder / "a.jsonl")) == [0, 1, 2]
    assert found(folder / "*.jsonl") == [0, 1, 2, 3, 4]
    assert found([folder / "c.jsonl", str(folder / "[ac].*")]) == [0, 1, 2, 3, 4]  # in order, and none twice
    monkeypatch.chdir(folder)
    assert found("c.jsonl") == [3, 4]
    (folder / "deep" / "er").mkdir(parents=True)
    write(folder / "deep" / "er" / "[a].jsonl", '{"n": 9}')
    assert found("**/*.jsonl") == [0, 1, 2, 3, 4, 9]
    assert found("deep/er/[a].jsonl") == [9]


def test_a_worker_may_be_in_another_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    source = files("a.jsonl").prepared(NOW)
    monkeypatch.chdir("/")
    assert numbers(chunks(pickle.loads(pickle.dumps(source)))) == [0, 1, 2]  # noqa: S301 - our own


def test_files_are_dealt_to_the_splits_in_turn(folder):
    write(folder / "d.jsonl", '{"n": 5}\n')
    source = files(folder / "*", splits=2)
    assert source.splits() == source.prepared(NOW).splits() == ["0", "1"]
    assert all_numbers(source.prepared(NOW)) == [[0, 1, 2, 3, 4], [5]]
    many = files(folder / "*", splits=6).prepared(NOW)
    assert all_numbers(many) == [[0, 1, 2], [], [3, 4], [5], [], []]
    (chunk,) = chunks(many, "5")
    assert (chunk.position, chunk.watermark, chunk.ended, chunk.batch.schema) == (0, END, True, many.schema)


def test_what_comes_later_is_not_read(folder):
    source = files(folder / "*.jsonl").prepared(NOW)
    write(folder / "d.jsonl", '{"n": 5}\n')
    with (folder / "c.jsonl").open("a") as file:
        file.write('0}\n{"n": 6}\n')
    assert all_numbers(source) == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("pattern", ["nothing.jsonl", "*.csv"])
def test_no_file_is_an_error_that_names_the_pattern(folder, pattern):
    write(folder / "x.txt", "")
    for given_pattern in (folder / pattern, [folder / "*.txt", folder / pattern]):
        with pytest.raises(PipelineError, match=rf"^There is no file '{folder}/.*' for {HERE}, seen from /") as told:
            files(given_pattern).prepared(NOW)
        assert repr(str(folder / pattern)) in str(told.value)


def test_a_folder_is_no_file(folder):
    with pytest.raises(PipelineError, match=rf"'{folder}' of {HERE} is a folder. .* give '{folder}/\*'"):
        files(folder).prepared(NOW)


def test_before_it_is_settled_nothing_is_read(folder):
    with pytest.raises(PipelineError, match=rf"^{THERE} are read before it is settled which files there are."):
        files(folder / "*").open("0", 0)


# -------------------------------------------------------------------------------------------------------------- reading


def test_a_position_is_the_byte_at_which_to_go_on(folder):
    read = chunks(files(folder / "*.jsonl").prepared(NOW))
    assert [chunk.position for chunk in read] == [18, 27, 37, 49]
    assert [numbers([chunk]) for chunk in read] == [[0, 1], [2], [3], [4]]
    assert [chunk.ended for chunk in read] == [False, False, False, True]
    assert not any(chunk.idle or chunk.skipped or chunk.malformed for chunk in read)


LINES = st.lists(st.sampled_from(['{"n": 1, "at": %d}', '  {"at": %d, "n": 22}  ', "", " \t", '{"n":333,"at":%d}\r']))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(LINES, st.booleans()), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 64))
def test_reading_on_from_anywhere_is_as_if_never_stopped(tmp_path, contents, limit, block):
    expected, at = [], 0
    for number, (lines, newline) in enumerate(contents):
        written = []
        for line in lines:
            at += 7
            written.append(line % at if line.strip() else line)
            expected += [(json.loads(written[-1])["n"], at)] if line.strip() else []
        write(tmp_path / f"{number}.txt", "\n".join(written) + "\n" * newline)
    source = files([tmp_path / f"{n}.txt" for n in range(len(contents))], "n long, at long", "at").prepared(NOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        single = chunks(source, limit=1)
        assert [tuple(row.values()) for chunk in single for row in chunk.batch.to_pylist()] == expected
        assert [time for chunk in single for time in chunk.times.tolist()] == [time for _, time in expected]
        assert all(chunk.batch.num_rows for chunk in single[:-1])
        rest = list(expected)
        for chunk in single[:-1]:
            rest = rest[chunk.batch.num_rows :]
            again = chunks(source, position=chunk.position, limit=limit)
            assert all(part.batch.num_rows <= limit for part in again)
            assert [tuple(row.values()) for part in again for row in part.batch.to_pylist()] == rest
            assert again[-1].position == single[-1].position


def test_a_reader_may_be_closed_twice_and_in_the_middle(folder):
    reader = files(folder / "a.jsonl").prepared(NOW).open("0", 0)
    reader.close()
    reader.read(1)
    reader.close()
    reader.close()


def test_a_line_may_be_longer_than_a_block(folder, monkeypatch):
    write(folder / "long.txt", "".join(json.dumps({"n": n, "gone": "x" * 1000 * n}) + "\n" for n in range(5)))
    monkeypatch.setattr(module, "_BLOCK", 100)
    assert all_numbers(files(folder / "long.txt").prepared(NOW)) == [[0, 1, 2, 3, 4]]


def test_the_watermark_is_the_newest_less_the_delay(folder):
    write(folder / "t", "".join(f'{{"at": {at}}}\n' for at in (10, 30, 20, 50, 40)))
    source = files(folder / "t", "at timestamp", "at", delay=5).prepared(NOW)
    read = chunks(source)
    assert [chunk.watermark for chunk in read] == [25, 45, END]
    assert [chunk.times.tolist() for chunk in read] == [[10, 30], [20, 50], [40]]
    assert chunks(source, limit=1)[2].watermark == 25  # it does not go back


@pytest.mark.parametrize("timestamp", [None, tm.ARRIVAL, "absent"])
def test_records_without_a_time_column_are_as_old_as_can_be(folder, timestamp):
    read = chunks(files(folder / "a.jsonl", timestamp=timestamp).prepared(NOW))
    assert [chunk.watermark for chunk in read] == [BEGINNING, END]
    assert read[0].times.tolist() == [BEGINNING] * 2


# --------------------------------------------------------------------------------------------- files that do not stay


def test_a_file_that_is_gone_is_named(folder):
    source = files(folder / "*.jsonl").prepared(NOW)
    (folder / "c.jsonl").unlink()
    with pytest.raises(StorageError, match=r"c.jsonl can't be read any more: No such file or directory. Files must"):
        chunks(source)


def test_a_file_that_is_now_shorter_is_named(folder):
    source = files(folder / "a.jsonl").prepared(NOW)
    write(folder / "a.jsonl", '{"n": 0}\n{"n": 1}\n')
    with pytest.raises(StorageError, match=r"a.jsonl is shorter than when this run began: it had 27 bytes, and 18 are"):
        chunks(source)
    with pytest.raises(StorageError, match=r"a.jsonl is shorter"):
        chunks(source, position=18)


def test_a_file_that_can_no_longer_be_read_is_named(folder):
    source = files(folder / "a.jsonl").prepared(NOW)
    (folder / "a.jsonl").unlink()
    (folder / "a.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"a.jsonl can't be read any more: Is a directory"):
        chunks(source)


# ------------------------------------------------------------------------------------------------------ malformed lines


@pytest.fixture
def damaged(folder):
    write(folder / "a.jsonl", b'{"n": 0}\n\n{"n": "x"}\n{"n": 2}\nno \xff text\n')
    return write(folder / "b.jsonl", b'{"n": 3}\n{"n": 4') and folder / "[ab].jsonl"


def test_a_malformed_line_fails_the_run_with_its_place(damaged):
    with pytest.raises(DataError) as told:
        chunks(files(damaged).prepared(NOW), limit=9)
    message = str(told.value)
    assert message.startswith(f'{damaged.parent / "a.jsonl"}, at byte 10: the line \'{{"n": "x"}}\' does not fit the ')
    assert "Expected `int | null`, got `str` - at `$.n`" in message
    assert message.endswith(
        'To leave such lines out, give it malformed="skip"; to keep them elsewhere, malformed="divert" and '
        "diverts_to= the name of a stream."
    )


def test_the_place_of_a_malformed_line_is_in_its_own_file(damaged):
    source = files(damaged).prepared(NOW)
    with pytest.raises(DataError, match=r"b.jsonl, at byte 9: the line '\{\"n\": 4' does not fit"):
        chunks(source, position=(damaged.parent / "a.jsonl").stat().st_size)


@pytest.mark.parametrize("byte", [b"x", b"\xff"])
def test_a_long_line_is_shown_in_part(folder, byte):
    write(folder / "a.jsonl", byte * 10**6)
    with pytest.raises(DataError) as told:
        chunks(files(folder / "a.jsonl").prepared(NOW))
    assert len(str(told.value)) < 900


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_malformed_lines_are_skipped_and_counted(damaged, limit):
    read = chunks(files(damaged, malformed="skip").prepared(NOW), limit=limit)
    assert numbers(read) == [0, 2, 3]
    assert sum(chunk.skipped for chunk in read) == 3
    assert all(chunk.malformed is None for chunk in read)
    assert all(chunk.batch.num_rows for chunk in read[:-1])


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_malformed_lines_are_diverted(damaged, limit):
    read = chunks(files(damaged, malformed="divert", diverts_to="bad").prepared(NOW), limit=limit)
    assert numbers(read) == [0, 2, 3]
    assert sum(chunk.skipped for chunk in read) == 0
    bad = [chunk.malformed for chunk in read if chunk.malformed]
    assert all(batch.schema == MALFORMED for batch in bad)
    rows = [row for batch in bad for row in batch.to_pylist()]
    assert [(row["place"][-7:], row["position"], row["text"]) for row in rows] == [
        ("a.jsonl", 10, '{"n": "x"}'),
        ("a.jsonl", 30, "no \\xff text"),
        ("b.jsonl", 9, '{"n": 4'),
    ]
    assert [row["problem"] for row in rows[1:]] == ["it is not text in UTF-8", "Input data was truncated"]


def test_a_read_ends_even_where_nothing_can_be_read(folder):
    write(folder / "t", "nonsense\n" * 100 + '{"n": 1}\n')
    read = chunks(files(folder / "t", malformed="skip").prepared(NOW), limit=1)
    assert len(read) > 3
    assert read[0].position == 9 * read[0].skipped > 9
    assert numbers(read) == [1]
    assert sum(chunk.skipped for chunk in read) == 100


def test_the_diverted_are_a_stream_of_the_pipeline(damaged):
    pipeline = tm.Pipeline("diverting")
    pipeline.source("numbers", files(damaged, malformed="divert", diverts_to="bad"))
    pipeline.sink("bad", tm.sinks.Collect())
    assert pipeline.graph().streams[StreamName("bad")].schema == MALFORMED


@pytest.mark.parametrize("time", ["null", LAST + 1])
def test_a_time_that_is_none_is_malformed(folder, time):
    write(folder / "t", f'{{"at": 5}}\n{{"at": {time}}}\n')
    read = chunks(files(folder / "t", "at long", "at", malformed="skip").prepared(NOW))
    assert [(chunk.times.tolist(), chunk.skipped) for chunk in read] == [([5], 1)]
    with pytest.raises(DataError, match=rf"at byte 10: .* column 'at' is {time}, and should be a time"):
        chunks(files(folder / "t", "at long", "at").prepared(NOW))


# ----------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"splits": 0}, "have splits=0: at least one is needed"),
        ({"malformed": "skipp"}, "have malformed='skipp'. It may be one of: 'fail', 'skip', 'divert'. Did you mean"),
        ({"malformed": "divert"}, 'have malformed="divert" and diverts_to=None. Name the stream'),
        ({"malformed": "divert", "diverts_to": ""}, "diverts_to=''. Name the stream"),
        ({"diverts_to": "bad"}, "have diverts_to='bad' beside malformed='fail', which diverts nothing"),
        ({"malformed": "skip", "diverts_to": "bad"}, "have diverts_to='bad' beside malformed='skip'"),
        ({"pattern": []}, "have no path: the list is empty"),
        ({"pattern": ""}, "can't be at ''. Give a path, a pattern such as"),
        ({"pattern": 5}, "can't be at 5. Give a path"),
        ({"pattern": ["a", b"b"]}, "can't be at b'b'. Give a path"),
    ],
    ids=str,
)
def test_what_files_cannot_be_made_with(options, said):
    with pytest.raises(PipelineError, match=rf"^{THERE} ") as refused:
        files(**{"pattern": "a", **options})
    assert said in str(refused.value)


def test_what_else_they_cannot_be_made_with():
    with pytest.raises(SchemaError, match=rf"The schema of {HERE} can't be used: at position 2"):
        files("a", "n lung")
    with pytest.raises(SchemaError, match=rf"The schema of {HERE} can't be used: the name 'a\"b'"):
        files("a", '`a"b` long')
    with pytest.raises(PipelineError, match=rf"The delay of {HERE} can't be read"):
        files("a", delay="3")
    with pytest.raises(PipelineError, match=rf"The timestamp of {HERE} is SCHEDULED"):
        files("a", timestamp=SCHEDULED)
    with pytest.raises(PipelineError, match=rf"There is no split '1' in {HERE}; splits are: '0'."):
        files("a").open("1", 0)
