"""Which memory port holds which byte: beat b of an image lies at port b mod P, beat b div P there.

Every port then reads its share of any matrix, or of any sequence's KV, as one run of consecutive
addresses, and all ports have equally much to do. The weight image and the KV cache are placed the
same way; a port's share of each is one buffer, which on HBM cards must fit its bank.
"""

import numpy as np
from numpy.typing import NDArray

from fpga.program.layout import BEAT_BYTES


def share_bytes(image_bytes: int, num_ports: int) -> int:
    """Bytes of one port's buffer: equal for all ports, the last beats may be filler."""
    beats = -(-image_bytes // BEAT_BYTES)
    return -(-beats // num_ports) * BEAT_BYTES


def share_of(image: NDArray[np.uint8], port: int, num_ports: int) -> NDArray[np.uint8]:
    """A port's share of an image, zeros filled in behind its end. uint8 [share_bytes]."""
    size = share_bytes(image.size, num_ports)
    share = np.zeros(size, dtype=np.uint8)
    whole = image[: image.size // BEAT_BYTES * BEAT_BYTES].reshape(-1, BEAT_BYTES)[port::num_ports]
    share[: whole.size] = whole.reshape(-1)
    rest = image[image.size // BEAT_BYTES * BEAT_BYTES :]
    if rest.size and (image.size // BEAT_BYTES) % num_ports == port:
        share[whole.size : whole.size + rest.size] = rest
    return share


def join(shares: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """The inverse: the image with its filler, uint8 [sum of shares]."""
    image: NDArray[np.uint8] = np.stack([share.reshape(-1, BEAT_BYTES) for share in shares], axis=1)
    return image.reshape(-1)
