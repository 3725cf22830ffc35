"""Versions, bounds and timings that both ends of the draft protocol agree on."""

from dataclasses import dataclass
from typing import Final

PROTOCOL_VERSION: Final = 1
"""The one version this build speaks. A peer names a range in its hello."""

METHOD: Final = "/hetero.rpc.draft.v1.DraftService/Draft"
SERVICE: Final = "hetero.rpc.draft.v1.DraftService"

MAX_FRAME_BYTES: Final = 4 << 20
"""Default bound on one frame: sixteen contexts of 32,768 tokens fit, twice over."""

MAX_ITEMS: Final = 1_024
"""Entries of any one list in a frame."""

MAX_DETAIL_BYTES: Final = 512
MAX_Q_ROW_TOKENS: Final = 64
Q_ONE: Final = 1 << 16
MAX_HIDDEN_ELEMENTS: Final = 4 << 20
PREFIX_HASH_BYTES: Final = 16

MAX_DRAFT_CYCLES: Final = 1 << 44
MAX_DRAFT_MODELLED_S: Final = 3_600.0
"""Card work that one draft may claim: hours. Usage is added up over an answer and reported, so a
peer's 2^64 - 1 cycles or 1e308 seconds would end as infinity in somebody's JSON."""

MAX_TIMEOUT_S: Final = 3_600.0
"""Any silence or deadline that is configured."""

HEARTBEAT_INTERVAL_S: Final = 0.05
HEARTBEAT_TIMEOUT_S: Final = 0.15
"""Silence after which a peer on a quiet machine is dead; both ends take a longer one in
configuration, because a loaded machine is late without being dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimits:
    """What a decoder accepts. Whoever decodes states its own bounds."""

    vocab_size: int
    max_context_tokens: int
    max_draft_tokens: int
    max_nodes: int
    max_depth: int
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_items: int = MAX_ITEMS


def grpc_options(max_frame_bytes: int, *, silence_s: float) -> tuple[tuple[str, int], ...]:
    """Channel options of both ends; ``silence_s``: when our heartbeats would give up.

    Keepalive is the second line: it ends a dead connection that no stream watches. It gets twice
    the heartbeat's patience, or a loaded machine would lose streams that are only late.
    keepalive_timeout_ms alone took a minute to notice a stopped peer; ping_timeout_ms is what
    works. No allocator tuning: mallopt pays from about 1 MB a message, and a round of 32
    sequences is a few kilobytes.
    """
    patience_ms = max(500, int(2_000 * silence_s))
    return (
        ("grpc.max_receive_message_length", max_frame_bytes),
        ("grpc.max_send_message_length", max_frame_bytes),
        ("grpc.keepalive_time_ms", 1_000),
        ("grpc.keepalive_timeout_ms", patience_ms),
        ("grpc.http2.ping_timeout_ms", patience_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    )


SERVER_ONLY_OPTIONS: Final = (
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    # Without this a second server on the same port starts, and takes half the connections.
    ("grpc.so_reuseport", 0),
)

CLIENT_ONLY_OPTIONS: Final = (
    # A global subchannel would keep its back-off (up to two minutes) across our reconnections.
    ("grpc.use_local_subchannel_pool", 1),
    # A proxy from the environment has no business between a verifier and its card.
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)
