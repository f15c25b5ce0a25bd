"""The log of a feed: each batch of each query whole, and once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tidemill.errors import StorageError
from tidemill.storage.feedlog import Description, Entry, FedFile, FeedLog, folder_of


def log_in(folder, splits=1):
    log = FeedLog(folder)
    log.describe(Description("n long", None, splits))
    return log


def file(name, *counts):
    return FedFile(name, counts)


def entries(log):
    found: list[Entry] = []
    while (entry := log.entry(len(found))) is not None:
        found.append(entry)
    return found


def test_a_batch_of_a_query_is_there_once(tmp_path):
    log = log_in(tmp_path)
    assert log.append("q", 0, [file("a", 5)])
    assert not log.append("q", 0, [file("b", 5)])
    assert log.append("other", 0, [file("c", 1)])
    assert log.append("q", 1, [file("d", 2)])
    assert not log.append("q", 0, [file("e", 5)])
    assert [f.name for entry in entries(log) for f in entry.files] == ["a", "c", "d"]
    assert log.has("q", 1)
    assert not log.has("q", 2)
    assert not log.has("unknown", 0)


def test_of_many_who_add_at_once_each_has_its_place(tmp_path):
    log_in(tmp_path)

    def feed(query):
        return [FeedLog(tmp_path).append(f"q{query % 4}", batch, [file(f"{query}-{batch}", 1)]) for batch in range(10)]

    with ThreadPoolExecutor(8) as people:
        done = list(people.map(feed, range(8)))
    assert sum(map(sum, done)) == 40  # two said the same for each query
    found = entries(FeedLog(tmp_path))
    assert len(found) == 40
    assert [entry.before for entry in found] == [(n,) for n in range(40)]
    assert found[-1].last == {f"q{n}": 9 for n in range(4)}
    for query in range(4):
        batches = [int(f.name.split("-")[1]) for e in found for f in e.files if int(f.name.split("-")[0]) % 4 == query]
        assert batches == list(range(10))


def test_files_are_dealt_to_the_splits_and_a_position_is_found(tmp_path):
    log = log_in(tmp_path, splits=2)
    log.append("q", 0, [file("a", 2, 3), file("b", 1), file("c", 4)])
    log.append("q", 1, [])
    log.append("q", 2, [file("d", 7)])
    log.append("q", 3, [file("e", 1), file("f", 1)])
    found = entries(log)
    assert [[f.name for f in e.of_split(0)] for e in found] == [["a", "c"], [], [], ["e"]]
    assert [[f.name for f in e.of_split(1)] for e in found] == [["b"], [], ["d"], ["f"]]
    assert [e.before for e in found] == [(0, 0), (9, 1), (9, 1), (9, 8)]
    assert found[-1].behind() == (10, 9)
    for split in (0, 1):
        for position in range(12):
            at = log.find(split, position)
            assert found[at].before[split] <= position
            assert at + 1 == len(found) or found[at + 1].before[split] > position


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 33])
def test_the_newest_is_found_however_many_there_are(tmp_path, count):
    log = log_in(tmp_path)
    for batch in range(count):
        log.append("q", batch, [file(str(batch), 1)])
    assert log.find(0, 10**6) == max(count - 1, 0)
    assert len(entries(log)) == count


def test_its_end_is_said_once_and_then_it_takes_no_more(tmp_path):
    log = log_in(tmp_path)
    log.append("q", 0, [file("a", 1)])
    log.end()
    log.end()
    assert [entry.end for entry in entries(log)] == [False, True]
    assert not log.append("q", 0, [file("a", 1)])  # a query that is started again and has nothing new is not told off
    with pytest.raises(StorageError, match=r"has ended: it takes no more rows"):
        log.append("q", 1, [file("b", 1)])


def test_it_goes_on_as_it_was_begun(tmp_path):
    log_in(tmp_path)
    log_in(tmp_path)
    with pytest.raises(StorageError, match=r"begun with \(n long\), timestamp=None, splits=1, and .* splits=2"):
        log_in(tmp_path, splits=2)


def test_what_is_not_there_or_torn_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"there is no feed in .*tm.sources.Feed"):
        FeedLog(tmp_path / "none").append("q", 0, [])
    log = log_in(tmp_path)
    log.append("q", 0, [file("a", 1)])
    (tmp_path / "log" / "0").write_bytes((tmp_path / "log" / "0").read_bytes()[:-3])
    with pytest.raises(StorageError, match="log/0' is torn"):
        log.append("q", 1, [])
    (tmp_path / "feed.json").write_text("{}")
    with pytest.raises(StorageError, match=r"feed\.json' is torn"):
        log.description()


def test_each_stream_has_a_folder_whatever_its_name(tmp_path):
    assert folder_of(tmp_path, "orders") == tmp_path / "feeds" / "orders"
    assert folder_of(tmp_path, "../a b").parent == tmp_path / "feeds"
