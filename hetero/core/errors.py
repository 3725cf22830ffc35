"""Every error that hetero raises on purpose, with exit code, gRPC status and HTTP status.

HeteroError                  1  INTERNAL            500
├── ConfigError              2  INVALID_ARGUMENT    400  a setting, flag or file
├── RequestError             2  INVALID_ARGUMENT    400  a request's parameter
│   └── ContextOverflowError 2  INVALID_ARGUMENT    400  prompt does not fit
├── ModelError               1  FAILED_PRECONDITION 500  a checkpoint: absent, damaged
│   └── UnknownModelError    2  NOT_FOUND           404
├── ArtefactError            1  FAILED_PRECONDITION 500  a draft artefact: damaged, foreign
│   └── PairError            1  FAILED_PRECONDITION 500  target and draft do not fit
├── ProtocolError            1  INVALID_ARGUMENT    400  a peer broke the draft protocol
│   └── VersionError         1  FAILED_PRECONDITION 500  a peer speaks another version
├── CardError                1  UNAVAILABLE         503  the card failed or vanished
│   └── CardTimeoutError     1  UNAVAILABLE         503
├── CapacityError            1  RESOURCE_EXHAUSTED  503  no slot, block or place in the queue
├── DraftUnavailableError    1  UNAVAILABLE         503  no draft server answers
├── NotReadyError            1  UNAVAILABLE         503  the service starts up or shuts down
├── DeterminismError         1  FAILED_PRECONDITION 500  the numeric self-test failed
└── RequestCancelledError    1  CANCELLED           499
    └── RequestDeadlineError 1  DEADLINE_EXCEEDED   504

A message names the setting, the value, the limit and the fix, in one line. An exception that is
not a HeteroError is our own bug.
"""

from typing import ClassVar


class HeteroError(Exception):
    """Base of all; the class fixes exit code, gRPC status name and HTTP status."""

    exit_code: ClassVar[int] = 1
    grpc_status: ClassVar[str] = "INTERNAL"
    http_status: ClassVar[int] = 500


class ConfigError(HeteroError):
    """A setting, flag, environment value or file is wrong."""

    exit_code = 2
    grpc_status = "INVALID_ARGUMENT"
    http_status = 400


class RequestError(HeteroError):
    """A request's parameter is out of range, unknown or unsupported. ``param`` names it."""

    exit_code = 2
    grpc_status = "INVALID_ARGUMENT"
    http_status = 400

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextOverflowError(RequestError):
    """Prompt and requested tokens do not fit the model's context."""


class ModelError(HeteroError):
    """A checkpoint is absent, damaged, or of a shape that is not supported."""

    grpc_status = "FAILED_PRECONDITION"


class UnknownModelError(ModelError):
    """No known model and no directory has this name."""

    exit_code = 2
    grpc_status = "NOT_FOUND"
    http_status = 404


class ArtefactError(HeteroError):
    """A draft artefact is damaged, truncated, or from an unknown format version."""

    grpc_status = "FAILED_PRECONDITION"


class PairError(ArtefactError):
    """This draft was not built for this target."""


class ProtocolError(HeteroError):
    """A peer sent what the draft protocol does not allow."""

    grpc_status = "INVALID_ARGUMENT"
    http_status = 400


class VersionError(ProtocolError):
    """A peer speaks a protocol version that this build does not."""

    grpc_status = "FAILED_PRECONDITION"
    http_status = 500


class CardError(HeteroError):
    """The card failed: DMA error, wrong bitstream, vanished."""

    grpc_status = "UNAVAILABLE"
    http_status = 503


class CardTimeoutError(CardError):
    """The card did not finish in its time."""


class CapacityError(HeteroError):
    """No card slot, KV block or place in the queue is free."""

    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = 503


class DraftUnavailableError(HeteroError):
    """No draft server could be started or reached."""

    grpc_status = "UNAVAILABLE"
    http_status = 503


class NotReadyError(HeteroError):
    """The service takes no requests now: it is loading its model, or shutting down."""

    grpc_status = "UNAVAILABLE"
    http_status = 503


class DeterminismError(HeteroError):
    """The start-up self-test found rows that depend on their batch."""

    grpc_status = "FAILED_PRECONDITION"


class RequestCancelledError(HeteroError):
    """The caller went away or cancelled."""

    grpc_status = "CANCELLED"
    http_status = 499


class RequestDeadlineError(RequestCancelledError):
    """The request's own deadline passed."""

    grpc_status = "DEADLINE_EXCEEDED"
    http_status = 504
