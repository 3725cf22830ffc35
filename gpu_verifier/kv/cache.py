"""The tensors behind the blocks: one pair (K, V) a layer, head-major.

Head-major means that the keys of one head in one block lie in one piece, so that gathering a
sequence's keys copies runs of ``block_tokens * head_dim`` numbers and lands in the layout that a
batched matrix product wants.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Everything that sizes the cache."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    num_blocks: int
    block_tokens: int
    dtype: torch.dtype

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers, K and V."""
        numbers = self.num_layers * 2 * self.num_kv_heads * self.block_tokens * self.head_dim
        return numbers * self.dtype.itemsize


class PagedCache:
    """K and V of every layer. Zeroed at the start: masked keys must stay finite (0 * NaN)."""

    def __init__(self, shape: CacheShape, device: torch.device) -> None:
        self.shape = shape
        size = (
            shape.num_layers,
            2,
            shape.num_kv_heads * shape.num_blocks,
            shape.block_tokens * shape.head_dim,
        )
        self._kv = torch.zeros(size, dtype=shape.dtype, device=device)

    def write(
        self, layer: int, slot_hn: torch.Tensor, key_hnd: torch.Tensor, value_hnd: torch.Tensor
    ) -> None:
        """Store new rows. ``slot_hn``: int64 [heads * n], from ``slots``; K, V [heads, n, d]."""
        kv = self._kv[layer].view(2, -1, self.shape.head_dim)
        kv[0].index_copy_(0, slot_hn, key_hnd.reshape(-1, self.shape.head_dim))
        kv[1].index_copy_(0, slot_hn, value_hnd.reshape(-1, self.shape.head_dim))

    def gather(self, layer: int, block_hp: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of whole blocks. ``block_hp``: int64 [pages], from ``head_blocks``.

        Returns two tensors [pages, block_tokens * d].
        """
        kv = self._kv[layer]
        return kv[0].index_select(0, block_hp), kv[1].index_select(0, block_hp)

    def fill_(self, generator: torch.Generator) -> None:
        """Overwrite everything with random numbers: a stand-in for content, for tests."""
        self._kv.copy_(torch.randn(self._kv.shape, generator=generator))
