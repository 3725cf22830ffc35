"""Numeric arrays on the wire: packed little-endian bytes with dtype and length.

Token ids and the like go through ``struct``, which beats NumPy by far on the handful of elements
that a round has per sequence; hidden states go through NumPy.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetero.core.errors import ProtocolError
from hetero.draft_protocol.limits import PREFIX_HASH_BYTES
from hetero.rpc.draft.v1 import draft_pb2 as pb

_NUMPY: dict[int, np.dtype[Any]] = {
    pb.DTYPE_UINT8: np.dtype("<u1"),
    pb.DTYPE_UINT16: np.dtype("<u2"),
    pb.DTYPE_UINT32: np.dtype("<u4"),
    pb.DTYPE_INT8: np.dtype("<i1"),
    pb.DTYPE_FLOAT16: np.dtype("<f2"),
    pb.DTYPE_BFLOAT16: np.dtype("<u2"),  # NumPy has no bfloat16: its bits
    pb.DTYPE_FLOAT32: np.dtype("<f4"),
}


def pack_uint32(values: Sequence[int]) -> pb.Array:
    """Token ids, node ids, row starts."""
    data = struct.pack(f"<{len(values)}I", *values)
    return pb.Array(dtype=pb.DTYPE_UINT32, length=len(values), data=data)


def pack_float32(values: Sequence[float]) -> pb.Array:
    """Confidences."""
    data = struct.pack(f"<{len(values)}f", *values)
    return pb.Array(dtype=pb.DTYPE_FLOAT32, length=len(values), data=data)


def unpack_uint32(array: pb.Array, *, what: str, max_length: int) -> tuple[int, ...]:
    """The elements. Raises ProtocolError unless all that the array says of itself holds."""
    _check(array, what=what, dtypes=(pb.DTYPE_UINT32,), max_length=max_length)
    return struct.unpack(f"<{array.length}I", array.data)


def unpack_float32(array: pb.Array, *, what: str, max_length: int) -> tuple[float, ...]:
    """The same for float32."""
    _check(array, what=what, dtypes=(pb.DTYPE_FLOAT32,), max_length=max_length)
    return struct.unpack(f"<{array.length}f", array.data)


def unpack_token_ids(
    array: pb.Array, *, what: str, max_length: int, vocab_size: int
) -> tuple[int, ...]:
    """Token ids, each checked to be below ``vocab_size``."""
    ids = unpack_uint32(array, what=what, max_length=max_length)
    if ids and max(ids) >= vocab_size:
        raise ProtocolError(f"{what}: token id {max(ids)}, the vocabulary has {vocab_size}")
    return ids


def pack_tensor(values: NDArray[Any], dtype: "pb.Dtype.ValueType") -> pb.Array:
    """Any shape, written in C order."""
    array = np.ascontiguousarray(values, dtype=_NUMPY[dtype])
    return pb.Array(dtype=dtype, length=array.size, data=array.tobytes())


def unpack_tensor(
    array: pb.Array, *, what: str, dtypes: Iterable[int], max_length: int
) -> NDArray[Any]:
    """The elements, flat and read-only."""
    _check(array, what=what, dtypes=dtypes, max_length=max_length)
    elements: NDArray[Any] = np.frombuffer(array.data, dtype=_NUMPY[array.dtype])
    return elements


def prefix_hash(token_ids: Sequence[int]) -> bytes:
    """Identity of a committed prefix: 16 bytes of SHA-256 over little-endian uint32 ids."""
    packed = struct.pack(f"<{len(token_ids)}I", *token_ids)
    return hashlib.sha256(packed).digest()[:PREFIX_HASH_BYTES]


def _check(array: pb.Array, *, what: str, dtypes: Iterable[int], max_length: int) -> None:
    length = array.length
    if array.dtype not in dtypes:
        raise ProtocolError(f"{what}: dtype {array.dtype} is not allowed here")
    if length > max_length:
        raise ProtocolError(f"{what}: {length} elements, the limit is {max_length}")
    item_bytes = _NUMPY[array.dtype].itemsize
    if len(array.data) != length * item_bytes:
        raise ProtocolError(
            f"{what}: {len(array.data)} bytes for {length} elements of {item_bytes}"
        )
