"""The keys of one run: made by the driver, and carried to the workers in Spark's own closure.

Whoever has them is of the run; nobody else gets a word in. ZeroMQ's CURVE encrypts and proves both ends of every
connection with them, and the lifelines prove themselves with a hash that only a holder can make.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

import zmq


class Secrets(NamedTuple):
    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        """Without them: what is printed ends in a log."""
        return "<the keys of a run>"

    def proof(self, challenge: bytes) -> bytes:
        """What only a holder of the keys can answer to a challenge."""
        return hmac.digest(self.secret, challenge, hashlib.sha256)

    def proves(self, challenge: bytes, answer: bytes) -> bool:
        return hmac.compare_digest(self.proof(challenge), answer)


def new_secrets() -> Secrets:
    return Secrets(*zmq.curve_keypair())
