"""Numeric arrays on the wire: packed little-endian bytes with dtype and length."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetero.core.errors import ProtocolError
from hetero.draft_protocol.limits import PREFIX_HASH_BYTES
from hetero.rpc.draft.v1 import draft_pb2 as pb

UINT32 = pb.DTYPE_UINT32
FLOAT32 = pb.DTYPE_FLOAT32

_NUMPY: dict[int, np.dtype[Any]] = {
    pb.DTYPE_UINT8: np.dtype("<u1"),
    pb.DTYPE_UINT16: np.dtype("<u2"),
    pb.DTYPE_UINT32: np.dtype("<u4"),
    pb.DTYPE_INT8: np.dtype("<i1"),
    pb.DTYPE_FLOAT16: np.dtype("<f2"),
    pb.DTYPE_BFLOAT16: np.dtype("<u2"),  # NumPy has no bfloat16: its bits
    pb.DTYPE_FLOAT32: np.dtype("<f4"),
}


def pack(
    values: Sequence[int] | Sequence[float] | NDArray[Any], dtype: "pb.Dtype.ValueType"
) -> pb.Array:
    """Any shape, written in C order."""
    array = np.ascontiguousarray(values, dtype=_NUMPY[dtype])
    return pb.Array(dtype=dtype, length=array.size, data=array.tobytes())


def unpack(array: pb.Array, *, what: str, dtypes: Iterable[int], max_length: int) -> NDArray[Any]:
    """The elements, flat and read-only. Raises ProtocolError unless all that was said holds."""
    if array.dtype not in set(dtypes):
        raise ProtocolError(f"{what}: dtype {array.dtype} is not allowed here")
    if array.length > max_length:
        raise ProtocolError(f"{what}: {array.length} elements, the limit is {max_length}")
    dtype = _NUMPY[array.dtype]
    if len(array.data) != array.length * dtype.itemsize:
        raise ProtocolError(
            f"{what}: {len(array.data)} bytes for {array.length} elements of {dtype.itemsize}"
        )
    elements: NDArray[Any] = np.frombuffer(array.data, dtype=dtype)
    return elements


def unpack_uint32(array: pb.Array, *, what: str, max_length: int) -> tuple[int, ...]:
    """The same for uint32, as Python integers."""
    return tuple(unpack(array, what=what, dtypes=(UINT32,), max_length=max_length).tolist())


def unpack_token_ids(
    array: pb.Array, *, what: str, max_length: int, vocab_size: int
) -> tuple[int, ...]:
    """Token ids, each checked to be below ``vocab_size``."""
    ids_n = unpack(array, what=what, dtypes=(UINT32,), max_length=max_length)
    if ids_n.size and int(ids_n.max()) >= vocab_size:
        raise ProtocolError(f"{what}: token id {int(ids_n.max())}, the vocabulary has {vocab_size}")
    return tuple(ids_n.tolist())


def prefix_hash(token_ids: Sequence[int]) -> bytes:
    """Identity of a committed prefix: 16 bytes of SHA-256 over little-endian uint32 ids."""
    packed = np.asarray(token_ids, dtype="<u4").tobytes()
    return hashlib.sha256(packed).digest()[:PREFIX_HASH_BYTES]
