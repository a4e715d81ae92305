"""ckptd: the trainer's side of the checkpoint daemon.

    client = ckptd.Client()
    client.fence(optimizer)
    handle = client.save("my-job", step, {"model": model.state_dict(), ...})
    ...
    client.load("my-job", "latest", state)
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(f"ckptd needs PyTorch ({error}); pip install torch") from error

from .client import Checkpoint, Client, LoadResult
from .errors import (
    Aborted,
    AlreadyExists,
    DataLoss,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
)
from .saving import SaveHandle, SaveStatus

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Checkpoint",
    "Client",
    "DataLoss",
    "DeadlineExceeded",
    "Error",
    "FailedPrecondition",
    "InvalidArgument",
    "LoadResult",
    "NotFound",
    "PermissionDenied",
    "ResourceExhausted",
    "SaveHandle",
    "SaveStatus",
    "Unavailable",
    "Unimplemented",
]
__version__ = "0.1.0"
