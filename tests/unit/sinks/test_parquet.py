"""The sink of Parquet files: what its log lists is there, and nothing else; with Spark, see tests/spark."""

from __future__ import annotations

import errno
import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tidemill.core.ids import Generation
from tidemill.errors import FencedError, PipelineError, StorageError
from tidemill.ports import Expecting, Gathering, Sink
from tidemill.storage.entries import Entries
from tidemill.storage.sparklog import METADATA, SparkLog

SCHEMA = pa.schema([("word", pa.string()), ("n", pa.int64())])
FIRST, SECOND, THIRD = map(Generation, (1, 2, 3))


def rows(*numbers):
    return pa.RecordBatch.from_pylist([{"word": f"w{n}", "n": n} for n in numbers], SCHEMA)


def sink_in(folder, run="aa", **how):
    return tm.sinks.Parquet(folder, **how).expecting(SCHEMA, run)


def prepared(sink, *numbers, writer="1-1"):
    hand = sink.open(SCHEMA, writer)
    hand.write(rows(*numbers))
    return hand.prepare()


def visible(folder):
    listed = SparkLog(Path(folder)).read()
    files = listed.files if listed is not None else ()
    return sorted(n for file in files for n in pq.read_table(Path(folder) / file.name)["n"].to_pylist())


def data_files(folder):
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*.parquet")}


def listed_files(folder):
    listed = SparkLog(Path(folder)).read()
    assert listed is not None
    return {file.name for file in listed.files}


def names_in(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_it_commits_and_expects(tmp_path):
    sink = tm.sinks.Parquet(tmp_path / "out")
    assert isinstance(sink, Sink)
    assert isinstance(sink, Expecting)
    assert not isinstance(sink, Gathering)
    assert repr(sink) == f"<Parquet in {tmp_path}/out>"
    assert not (tmp_path / "out").exists()  # nothing happens before it is claimed


def test_what_is_committed_is_visible_and_nothing_else(tmp_path):
    sink = sink_in(tmp_path)
    assert sink.committed(FIRST) == 0
    first = prepared(sink, 1, 2)
    assert visible(tmp_path) == []
    sink.commit(FIRST, 1, [first, b""])
    assert visible(tmp_path) == [1, 2]
    second, third = prepared(sink, 3, writer="2-1"), prepared(sink, 4, writer="1-2")
    sink.commit(FIRST, 2, [second, third])
    assert visible(tmp_path) == [1, 2, 3, 4]
    assert sink.committed(FIRST) == 2


def test_the_log_is_in_the_form_of_sparks_own(tmp_path):
    folder = tmp_path / "a folder"
    sink = sink_in(folder)
    sink.committed(FIRST)
    for number in range(1, 10):
        sink.commit(FIRST, number, [prepared(sink, number)])
    assert names_in(folder / METADATA) == [*map(str, range(9)), "9.compact"]
    first, *lines = (folder / METADATA / "3").read_text().split("\n")
    assert first == "v1"
    folder_line, line = map(json.loads, lines)
    (file,) = listed_files(folder) - {f for f in listed_files(folder) if not f.endswith(Path(line["path"]).name)}
    size = (folder / file).stat().st_size
    assert folder_line["isDir"] is True
    assert {key: line[key] for key in ("path", "size", "isDir", "blockReplication", "action")} == {
        "path": f"file://{tmp_path}/a%20folder/{file}",
        "size": size,
        "isDir": False,
        "blockReplication": 1,
        "action": "add",
    }
    assert len((folder / METADATA / "9.compact").read_text().split("\n")) == 1 + 1 + 10  # all so far, and the empty one


def test_old_entries_are_cleared_away_behind_two_that_hold_everything(tmp_path):
    sink = sink_in(tmp_path)
    sink.committed(FIRST)
    for number in range(1, 45):
        sink.commit(FIRST, number, [prepared(sink, number)])
        assert visible(tmp_path) == list(range(1, number + 1))
    left = {int(name.removesuffix(".compact")) for name in names_in(tmp_path / METADATA)}
    assert left == set(range(29, 45))
    assert sink_in(tmp_path, "bb").committed(FIRST) == 44


def test_a_commit_that_may_have_happened_takes_effect_once(tmp_path):
    sink = sink_in(tmp_path)
    sink.committed(FIRST)
    piece = prepared(sink, 1)
    sink.commit(FIRST, 1, [piece])
    sink.commit(FIRST, 1, [piece])
    assert visible(tmp_path) == [1]
    again = sink_in(tmp_path)
    assert again.committed(SECOND) == 1
    again.commit(SECOND, 1, [piece])
    assert visible(tmp_path) == [1]


def test_a_commit_whose_answer_was_lost_takes_effect_once(tmp_path, monkeypatch):
    sink = sink_in(tmp_path)
    sink.committed(FIRST)
    piece = prepared(sink, 1)
    create = Entries.create

    def lost(entries, name, data):
        create(entries, name, data)
        raise StorageError("the answer was lost")

    monkeypatch.setattr(Entries, "create", lost)
    with pytest.raises(StorageError, match="the answer was lost"):
        sink.commit(FIRST, 1, [piece])
    monkeypatch.setattr(Entries, "create", create)
    sink.commit(FIRST, 1, [piece])
    sink.commit(FIRST, 2, [prepared(sink, 2)])
    assert visible(tmp_path) == [1, 2]


def test_a_newer_coordinator_fences_the_older(tmp_path):
    older, newer = sink_in(tmp_path), sink_in(tmp_path)
    assert older.committed(FIRST) == 0
    older.commit(FIRST, 1, [prepared(older, 1)])
    late = prepared(older, 2)
    assert newer.committed(SECOND) == 1
    with pytest.raises(FencedError, match="claimed by generation 2"):
        older.commit(FIRST, 2, [late])
    with pytest.raises(FencedError):
        older.committed(FIRST)
    newer.commit(SECOND, 2, [prepared(newer, 3)])
    assert visible(tmp_path) == [1, 3]


def test_a_commit_that_sleeps_between_its_look_and_its_step_is_fenced(tmp_path, monkeypatch):
    older, newer = sink_in(tmp_path), sink_in(tmp_path)
    older.committed(FIRST)
    late = prepared(older, 1)
    create = Entries.create

    def sleepy(entries, name, data):
        monkeypatch.setattr(Entries, "create", create)
        assert newer.committed(SECOND) == 0
        newer.commit(SECOND, 1, [prepared(newer, 2)])
        return create(entries, name, data)

    monkeypatch.setattr(Entries, "create", sleepy)
    with pytest.raises(FencedError):
        older.commit(FIRST, 1, [late])
    assert visible(tmp_path) == [2]


def test_a_commit_that_sleeps_until_its_place_is_cleared_away_is_fenced(tmp_path, monkeypatch):
    older, newer = sink_in(tmp_path), sink_in(tmp_path)
    older.committed(FIRST)
    late = prepared(older, 100)
    create = Entries.create

    def sleepy(entries, name, data):
        monkeypatch.setattr(Entries, "create", create)
        newer.committed(SECOND)
        for number in range(1, 40):
            newer.commit(SECOND, number, [prepared(newer, number)])
        return create(entries, name, data)

    monkeypatch.setattr(Entries, "create", sleepy)
    with pytest.raises(FencedError):
        older.commit(FIRST, 1, [late])
    assert visible(tmp_path) == list(range(1, 40))


def test_of_two_runs_the_later_has_the_folder(tmp_path):
    """Their generations say nothing about each other."""
    one, other = sink_in(tmp_path, "aa"), sink_in(tmp_path, "bb")
    one.committed(THIRD)
    one.commit(THIRD, 1, [prepared(one, 1)])
    assert other.committed(FIRST) == 1
    other.commit(FIRST, 2, [prepared(other, 2)])
    with pytest.raises(FencedError, match="of run bb"):
        one.commit(THIRD, 2, [prepared(one, 3)])
    assert visible(tmp_path) == [1, 2]


def test_an_epoch_without_rows_is_no_entry(tmp_path):
    sink = sink_in(tmp_path)
    sink.committed(FIRST)
    before = names_in(tmp_path / METADATA)
    sink.commit(FIRST, 1, [])
    sink.commit(FIRST, 2, [b""])
    assert names_in(tmp_path / METADATA) == before
    sink.commit(FIRST, 3, [prepared(sink, 1)])
    assert sink.committed(FIRST) == 3
    assert visible(tmp_path) == [1]


def test_a_new_folder_is_a_table_with_columns_and_no_rows(tmp_path):
    sink_in(tmp_path).committed(FIRST)
    (file,) = listed_files(tmp_path)
    assert pq.read_table(tmp_path / file).schema == SCHEMA
    assert visible(tmp_path) == []


def test_a_claim_finishes_what_was_begun_before_it_cleans_up(tmp_path):
    """Two pieces were prepared by a run that is dead; the one is committed now, the other never will be."""
    dead = sink_in(tmp_path, "aa")
    dead.committed(FIRST)
    begun, forgotten = prepared(dead, 1, writer="1-1"), prepared(dead, 2, writer="2-1")
    assert begun != forgotten
    sink = sink_in(tmp_path, "bb")
    sink.committed(SECOND)
    sink.commit(SECOND, 1, [begun])
    assert len(data_files(tmp_path)) == 3
    sink.commit(SECOND, 2, [prepared(sink, 3)])
    assert data_files(tmp_path) == listed_files(tmp_path)
    assert visible(tmp_path) == [1, 3]


def test_a_claim_leaves_alone_what_its_own_run_prepared_and_what_is_not_ours(tmp_path):
    sink = sink_in(tmp_path)
    sink.committed(FIRST)
    piece = prepared(sink, 1)
    (tmp_path / "notes.parquet").write_text("somebody else's")
    successor = sink_in(tmp_path)
    successor.committed(SECOND)
    successor.commit(SECOND, 1, [prepared(successor, 2)])
    successor.commit(SECOND, 2, [piece])
    assert visible(tmp_path) == [1, 2]
    assert (tmp_path / "notes.parquet").exists()


def test_what_a_writer_did_not_prepare_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tidemill.sinks.parquet.LARGE", 1)
    sink = sink_in(tmp_path)
    sink.committed(FIRST)
    hand = sink.open(SCHEMA, "1-1")
    hand.write(rows(1))
    hand.write(rows(2))
    piece = hand.prepare()
    hand.write(rows(3))
    hand.close()
    hand.close()
    sink.commit(FIRST, 1, [piece])
    assert visible(tmp_path) == [1, 2]
    assert data_files(tmp_path) == listed_files(tmp_path)


def test_columns_become_folders(tmp_path):
    sink = sink_in(tmp_path, partition_by="word")
    sink.committed(FIRST)
    hand = sink.open(SCHEMA, "1-1")
    words = ["a b", "x=y/z%", None, "", "a b"]
    hand.write(pa.RecordBatch.from_pylist([{"word": word, "n": n} for n, word in enumerate(words)], SCHEMA))
    sink.commit(FIRST, 1, [hand.prepare()])
    assert {str(Path(name).parent) for name in listed_files(tmp_path)} == {
        "word=a b",
        "word=x%3Dy%2Fz%25",
        "word=__HIVE_DEFAULT_PARTITION__",
    }
    assert visible(tmp_path) == [0, 1, 2, 3, 4]
    listed = SparkLog(tmp_path).read()
    assert listed is not None
    assert {(dict(file.values)["word"], file.rows) for file in listed.files} == {("a b", 2), ("x=y/z%", 1), (None, 2)}


# What is refused


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"partition_by": "wrod"}, r"no such column: word string, n long. Did you mean 'word'\?"),
        ({"partition_by": ("word", "n")}, "no column left"),
    ],
)
def test_a_stream_that_does_not_fit_is_refused_before_the_run(tmp_path, how, said):
    with pytest.raises(PipelineError, match=said):
        tm.sinks.Parquet(tmp_path, **how).expecting(SCHEMA, "aa")


def test_a_time_names_no_folder(tmp_path):
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    with pytest.raises(PipelineError, match="column 'at' of type timestamp"):
        tm.sinks.Parquet(tmp_path, partition_by="at").expecting(schema, "aa")


def test_what_is_no_folder_or_no_compression_is_refused():
    with pytest.raises(PipelineError, match="no s3 address"):
        tm.sinks.Parquet("s3://bucket/out")
    with pytest.raises(PipelineError, match="Did you mean 'snappy'"):
        tm.sinks.Parquet("out", compression="snapy")
    assert tm.sinks.Parquet("file:///some/out").path == "/some/out"


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "out").write_text("precious")
    with pytest.raises(StorageError, match="there is a file where a folder should be"):
        sink_in(tmp_path / "out").committed(FIRST)
    assert (tmp_path / "out").read_text() == "precious"


def test_a_folder_with_other_things_in_it(tmp_path):
    (tmp_path / "part-0.parquet").write_text("precious")
    with pytest.raises(StorageError, match=r"holds other things already, such as 'part-0.parquet'"):
        sink_in(tmp_path).committed(FIRST)
    assert names_in(tmp_path) == ["part-0.parquet"]


def test_a_folder_of_other_columns(tmp_path):
    sink_in(tmp_path).committed(FIRST)
    other = tm.sinks.Parquet(tmp_path).expecting(pa.schema([("word", pa.string())]), "bb")
    with pytest.raises(StorageError, match=r"\(word string, n long\), and now there are \(word string\)"):
        other.committed(FIRST)
    with pytest.raises(StorageError, match="by 'word'"):
        sink_in(tmp_path, "bb", partition_by="word").committed(FIRST)


def test_a_log_that_spark_wrote(tmp_path):
    line = {"path": f"file://{tmp_path}/a", "size": 1, "isDir": False, "modificationTime": 1, "blockReplication": 1}
    Entries(tmp_path / METADATA).create("0", b"v1\n" + json.dumps(line | {"blockSize": 1, "action": "add"}).encode())
    with pytest.raises(StorageError, match=f"{METADATA}/0' was not written by Tidemill"):
        sink_in(tmp_path).committed(FIRST)


@pytest.mark.parametrize("damage", [b"", b"v1", b"v", b'v1\n{"path":"fi', b"v2\n{}"])
def test_a_torn_entry_is_named_and_never_read(tmp_path, damage):
    sink = sink_in(tmp_path)
    sink.committed(FIRST)
    sink.commit(FIRST, 1, [prepared(sink, 1)])
    (tmp_path / METADATA / "1").write_bytes(damage)
    with pytest.raises(StorageError, match=f"{METADATA}/1'"):
        sink_in(tmp_path).committed(SECOND)


def test_a_lost_entry_is_named(tmp_path):
    sink = sink_in(tmp_path)
    sink.committed(FIRST)
    for number in (1, 2):
        sink.commit(FIRST, number, [prepared(sink, number)])
    (tmp_path / METADATA / "1").unlink()
    with pytest.raises(StorageError, match="has no entry '1'"):
        sink_in(tmp_path).committed(SECOND)


def test_a_file_that_is_gone_or_torn_is_not_committed(tmp_path):
    sink = sink_in(tmp_path)
    sink.committed(FIRST)
    piece = prepared(sink, 1)
    (name,) = data_files(tmp_path) - listed_files(tmp_path)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[:-1])
    with pytest.raises(StorageError, match=f"{name}.*can't be committed"):
        sink.commit(FIRST, 1, [piece])
    (tmp_path / name).unlink()
    with pytest.raises(StorageError, match="is gone"):
        sink.commit(FIRST, 1, [piece])
    assert visible(tmp_path) == []
    (tmp_path / name).write_bytes(whole)
    sink.commit(FIRST, 1, [piece])
    assert visible(tmp_path) == [1]


def test_a_full_disk_loses_nothing_that_is_committed(tmp_path, monkeypatch):
    sink = sink_in(tmp_path)
    sink.committed(FIRST)
    sink.commit(FIRST, 1, [prepared(sink, 1)])

    def full(_, where, **__):
        Path(where).write_bytes(b"half of i")
        raise OSError(errno.ENOSPC, "No space left on device")

    write_table = pq.write_table
    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(StorageError, match="the disk is full"):
        prepared(sink, 2)
    monkeypatch.setattr(pq, "write_table", write_table)
    assert {path.name for path in tmp_path.iterdir()} == {METADATA, *listed_files(tmp_path)}
    sink.commit(FIRST, 2, [prepared(sink, 3)])
    assert visible(tmp_path) == [1, 3]


def test_it_travels_without_its_claim(tmp_path):
    sink = sink_in(tmp_path)
    sink.committed(FIRST)
    there = pickle.loads(pickle.dumps(sink))  # noqa: S301 - as it travels
    sink.commit(FIRST, 1, [prepared(there, 1)])
    assert visible(tmp_path) == [1]
