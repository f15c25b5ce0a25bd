"""Only who has the keys can answer a challenge, and nobody reads them from a log."""

from __future__ import annotations

import pickle

from tidemill.hosts.spark.secrets import Secrets, new_secrets


def test_who_has_the_keys_answers_any_challenge():
    keys = new_secrets()
    assert keys.proves(b"what?", keys.proof(b"what?"))
    again = pickle.loads(pickle.dumps(keys))  # noqa: S301 - as they reach the workers
    assert keys.proves(b"what?", again.proof(b"what?"))


def test_an_answer_is_good_for_one_challenge():
    keys = new_secrets()
    assert not keys.proves(b"what else?", keys.proof(b"what?"))


def test_other_keys_prove_nothing():
    keys, other = new_secrets(), new_secrets()
    assert keys != other
    assert not keys.proves(b"what?", other.proof(b"what?"))
    assert not keys.proves(b"what?", Secrets(keys.public, b"").proof(b"what?")), "the public one alone is no key"


def test_they_are_not_printed():
    keys = new_secrets()
    for text in (repr(keys), str(keys), f"{[keys]}"):
        assert keys.secret.decode() not in text
