"""Inputs, outputs and the class that holds them: names, inheritance, and outputs that stay one object wherever they
go."""

import copy
import pickle
import subprocess
import sys
import textwrap
from importlib import import_module

import pytest

import tidemill as tm
from tidemill.api.computation import attributes
from tidemill.errors import ComputationError, SchemaError


class Base(tm.Computation):
    words = tm.Input(key="word")
    counts = tm.Output("word string, n long")
    renamed = tm.Output("word string", stream="other")
    gone = tm.Output("word string")


class Derived(Base):
    more = tm.Output("word string")
    gone = None  # type: ignore[assignment]  # how a subclass takes an output out
    extra: tm.Output


class Nested:
    class Inner(tm.Computation):
        counts = tm.Output("n long")


def test_an_output_is_named_by_its_attribute_unless_told():
    assert Base.counts.stream == "counts"
    assert Base.renamed.stream == "other"
    assert repr(Base.counts).startswith("<Output 'counts' declared at test_computation.py:")
    assert repr(Base.words).startswith("<Input declared at test_computation.py:")


def test_an_inherited_output_is_the_same_and_one_set_to_none_is_gone():
    assert list(attributes(Derived, tm.Output)) == ["counts", "renamed", "more"]
    assert attributes(Derived, tm.Output)["counts"] is Base.counts
    assert list(attributes(Derived(), tm.Input)) == ["words"]
    assert Derived.counts.stream == "counts"


def test_an_instance_may_have_outputs_of_its_own():
    instance = Derived()
    instance.extra = tm.Output("n long")
    assert attributes(instance, tm.Output)["extra"] is instance.extra


def test_an_output_that_stands_nowhere_has_no_name():
    output = tm.Output("n long")
    assert "unnamed" in repr(output)
    with pytest.raises(
        ComputationError, match=r"declared at test_computation.py:\d+ has no name. Make it an attribute"
    ):
        _ = output.stream


def test_a_schema_that_cannot_be_read_is_refused_on_its_own_line():
    with pytest.raises(
        SchemaError, match=r"The schema of the Output declared at test_computation.py:\d+ can't be used"
    ):
        tm.Output("word strng")


def test_an_output_is_never_copied():
    instance = Derived()
    instance.extra = tm.Output("n long")
    assert copy.deepcopy(instance).extra is instance.extra
    assert copy.copy(Base.counts) is Base.counts


def test_an_output_pickled_and_read_where_it_is_known_is_the_very_one():
    class Local(tm.Computation):
        counts = tm.Output("n long")

    for output in (Base.counts, Nested.Inner.counts, Local.counts, tm.Output("n long", "unnamed")):
        assert pickle.loads(pickle.dumps(output)) is output  # noqa: S301 - our own


def read_elsewhere(data, question, path):
    """What another process, which can import what lies in `path`, answers of the pickled thing."""
    program = f"import pickle, sys\nthing = pickle.loads(sys.stdin.buffer.read())\nprint({question})"
    sources = str(next(p for p in map(str, tm.__path__))).removesuffix("/tidemill")
    environment = {"PYTHONPATH": f"{path}:{sources}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@pytest.fixture
def users_module(tmp_path, monkeypatch):
    (tmp_path / "users_module.py").write_text(
        textwrap.dedent("""
            import tidemill as tm

            class Count(tm.Computation):
                words = tm.Input(key="word")
                counts = tm.Output("word string, n long")

                def process_record(self, ctx, record): ...
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "users_module", raising=False)
    return tmp_path


def test_elsewhere_an_output_is_that_of_the_class_imported_there(users_module):
    Count = import_module("users_module").Count  # noqa: N806 - a class

    data = pickle.dumps((Count.counts, Count))  # the output first: its class is not imported yet
    assert read_elsewhere(data, "thing[0] is thing[1].counts", users_module) == "True"


def test_elsewhere_a_changed_class_does_not_lend_its_output(users_module):
    Count = import_module("users_module").Count  # noqa: N806 - a class

    data = pickle.dumps(Count.counts)
    text = (users_module / "users_module.py").read_text()
    (users_module / "users_module.py").write_text(text.replace("n long", "n int"))
    question = "thing.schema.field('n').type, thing is __import__('users_module').Count.counts"
    assert read_elsewhere(data, question, users_module) == "int64 False"


def test_elsewhere_an_output_of_a_class_unknown_there_is_still_one_object(users_module):
    Count = import_module("users_module").Count  # noqa: N806 - a class

    (users_module / "users_module.py").unlink()
    data = pickle.dumps((Count.counts, pickle.dumps(Count.counts)))
    assert read_elsewhere(data, "thing[0] is pickle.loads(thing[1]), thing[0].stream", users_module) == "True counts"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda it: it.process_record(None, None), "Derived has no process_record"),
        (lambda it: it.process_bundle(None, None), "Derived has no process_bundle"),
        (lambda it: it.process_timer(None, None), "Derived sets timers but has no process_timer"),
    ],
)
def test_what_was_not_written_cannot_be_called(call, said):
    with pytest.raises(ComputationError, match=said):
        call(Derived())


def test_a_risen_watermark_needs_no_answer():
    Derived().process_watermark(None)
