"""Exceptions, one class per code of the daemon's answer."""

from __future__ import annotations


class Error(Exception):
    """Whatever went wrong in a save, a load or a wait. ``code`` is the canonical name."""

    code = "UNKNOWN"


class InvalidArgument(Error, ValueError):
    """The call itself makes no sense: a bad name, value, shape or option."""

    code = "INVALID_ARGUMENT"


class DeadlineExceeded(Error, TimeoutError):
    """A wait's timeout passed; the message says who was waited for."""

    code = "DEADLINE_EXCEEDED"


class NotFound(Error, LookupError):
    """No such checkpoint; the message lists those that exist."""

    code = "NOT_FOUND"


class AlreadyExists(Error):
    """That step is committed already (see ``overwrite``)."""

    code = "ALREADY_EXISTS"


class PermissionDenied(Error, PermissionError):
    """The job belongs to another user."""

    code = "PERMISSION_DENIED"


class ResourceExhausted(Error):
    """No room: in the arena, in storage, or in a bounded queue."""

    code = "RESOURCE_EXHAUSTED"


class FailedPrecondition(Error):
    """Not in this state: a step in flight, a superseded world, a forked child, a closed client."""

    code = "FAILED_PRECONDITION"


class Aborted(Error):
    """This attempt was given up; saving or loading again may work."""

    code = "ABORTED"


class DataLoss(Error):
    """Stored or delivered bytes are not what they should be."""

    code = "DATA_LOSS"


class Unavailable(Error, ConnectionError):
    """No daemon answers. The same call may work later."""

    code = "UNAVAILABLE"


class Unimplemented(Error, NotImplementedError):
    """Not done yet, by this version."""

    code = "UNIMPLEMENTED"


_BY_NUMBER: dict[int, type[Error]] = {
    3: InvalidArgument,
    4: DeadlineExceeded,
    5: NotFound,
    6: AlreadyExists,
    7: PermissionDenied,
    8: ResourceExhausted,
    9: FailedPrecondition,
    10: Aborted,
    11: InvalidArgument,  # OUT_OF_RANGE
    12: Unimplemented,
    14: Unavailable,
    15: DataLoss,
}


def from_code(number: int, message: str) -> Error:
    """The exception for a canonical status code (the numbers of gRPC)."""
    return _BY_NUMBER.get(number, Error)(message)
