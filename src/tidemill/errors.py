"""One tree of exceptions: everything Tidemill raises on purpose is a `TidemillError`.

A message names the thing, says where it was declared, lists what exists and ends with the remedy.
"""

from __future__ import annotations


class TidemillError(Exception):
    """The root of the tree."""


class PipelineError(TidemillError):
    """The pipeline can't run as declared. Raised before anything starts."""


class UnknownStreamError(PipelineError):
    """A computation or a sink reads a stream that nothing produces."""


class UnknownColumnError(PipelineError):
    """A key or a timestamp names a column that its stream does not have."""


class SchemaError(PipelineError):
    """A schema can't be read, or one stream was given two."""


class KeyTypeError(PipelineError):
    """A key has a type that can't be placed on the ring, or another type than the other inputs' keys."""


class UnreachableError(PipelineError):
    """A computation that no source reaches."""


class TimestampError(PipelineError):
    """A source has no event time where one is needed, or a column of the wrong type for it."""


class StateTypeError(PipelineError):
    """A state type that can't be made without arguments or can't be encoded."""


class DuplicateNameError(PipelineError):
    """Two things of one pipeline have one name."""


class ComputationError(PipelineError):
    """A computation class that is not put together as it must be."""


class DataError(TidemillError):
    """A record that does not fit its stream's schema."""


class UserCodeError(TidemillError):
    """The user's code raised. Carries where: computation, key, stream and the record's identity."""


class RunError(TidemillError):
    """A run ended and not of its own will."""


class StorageError(TidemillError):
    """Stored bytes are torn, corrupted, of another version, or not to be reached."""


class FencedError(TidemillError):
    """A newer owner exists; what an older one asked for was refused."""
