"""Paged attention whose result for a row depends on that row and its own prefix only.

Softmax over all keys with one global maximum, in float32; probabilities times values in splits
of SPLIT_KEYS keys, summed in order from zero. A split that a row may not see has weights of
exactly 0, so computing it (because a neighbour needs it) adds exact zeros.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface

from gpu_verifier.attention.plan import SPLIT_KEYS, TILE_ROWS, AttentionPlan, TileSlab
from gpu_verifier.kv.cache import PagedCache
from hetero.core.errors import ModelError

ATTENTION_NAME = "hetero_paged"
"""Name under which transformers finds ``paged_attention_forward``."""

# What other attention functions understand and this one does not: refused, never ignored.
_UNSUPPORTED = ("position_bias", "sliding_window", "softcap", "s_aux")


@dataclass(frozen=True, slots=True)
class PagedStep:
    """Travels through the model's keyword arguments to each attention layer."""

    cache: PagedCache
    plan: AttentionPlan


def register() -> None:
    """Make the attention known to transformers. Idempotent."""
    AttentionInterface.register(ATTENTION_NAME, paged_attention_forward)


def paged_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention interface. query [1, heads, n, d]; key, value [1, kv heads, n, d].

    Takes ``paged_step`` and ``scaling`` from the keyword arguments; writes the new K and V to the
    cache before it attends. Returns [1, n, heads, d] in the query's dtype.
    """
    refused = [name for name in _UNSUPPORTED if kwargs.get(name) is not None]
    if refused or attention_mask is not None:
        raise ModelError(
            f"{type(module).__name__} asks for {', '.join(refused) or 'a mask'}, which paged "
            "attention does not support. Choose a target with plain causal attention."
        )
    step: PagedStep = kwargs["paged_step"]
    num_rows = step.plan.num_rows
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    step.cache.write(layer, step.plan.slot_hn, key[0, :, :num_rows], value[0, :, :num_rows])
    query_nhd = query[0].transpose(0, 1).float() * kwargs["scaling"]
    return attend(query_nhd, layer, step).to(query.dtype).unsqueeze(0), None


def attend(query_nhd: torch.Tensor, layer: int, step: PagedStep) -> torch.Tensor:
    """Attention of scaled float32 queries [n, heads, d] over the cache; returns [n, heads, d]."""
    parts = [_attend_slab(query_nhd, layer, step.cache, slab) for slab in step.plan.slabs]
    tile_rows = torch.cat(parts) if len(parts) > 1 else parts[0]
    return tile_rows.index_select(0, step.plan.tile_row_n)


def _attend_slab(
    query_nhd: torch.Tensor, layer: int, cache: PagedCache, slab: TileSlab
) -> torch.Tensor:
    """One slab: h kv heads, g queries to each, t tiles of r rows; returns [t * r, h * g, d]."""
    num_heads, head_dim = query_nhd.shape[1:]
    kv_heads = cache.shape.num_kv_heads
    groups = num_heads // kv_heads
    batch = kv_heads * slab.num_tiles
    keys = slab.num_splits * SPLIT_KEYS
    tile_shape = (kv_heads, slab.num_tiles, groups, TILE_ROWS)

    query = query_nhd.index_select(0, slab.row_tr)
    query = query.view(slab.num_tiles, TILE_ROWS, kv_heads, groups, head_dim)
    query = query.permute(2, 0, 3, 1, 4).reshape(batch, groups * TILE_ROWS, head_dim)
    key, value = cache.gather(layer, slab.block_htp)
    key = key.float().view(batch, keys, head_dim)
    value = value.float().view(batch, slab.num_splits, SPLIT_KEYS, head_dim)

    score = torch.bmm(query, key.transpose(1, 2)).view(*tile_shape, keys)
    score.add_(slab.bias_trk)
    score.sub_(score.amax(dim=-1, keepdim=True)).exp_()
    total = _sum_in_splits(score)
    weight = score.view(batch, groups * TILE_ROWS, keys)
    out = _weigh_in_splits(weight, value)
    out.view(*tile_shape, head_dim).div_(total.unsqueeze(-1))
    out = out.view(kv_heads, slab.num_tiles, groups, TILE_ROWS, head_dim).permute(1, 3, 0, 2, 4)
    return out.reshape(slab.num_tiles * TILE_ROWS, num_heads, head_dim)


def _sum_in_splits(weight: torch.Tensor) -> torch.Tensor:
    """Sum over the last axis: inside each split, then over splits in order, from zero."""
    split_sum = weight.view(*weight.shape[:-1], -1, SPLIT_KEYS).sum(dim=-1)
    total = torch.zeros_like(split_sum[..., 0])
    for split in range(split_sum.shape[-1]):
        total.add_(split_sum[..., split])
    return total


def _weigh_in_splits(weight_bqk: torch.Tensor, value_bskd: torch.Tensor) -> torch.Tensor:
    """Weights [b, q, s * k] times values [b, s, k, d], summed over splits in order, from zero."""
    batch, num_queries, _ = weight_bqk.shape
    out = weight_bqk.new_zeros(batch, num_queries, value_bskd.shape[-1])
    for split in range(value_bskd.shape[1]):
        keys = slice(split * SPLIT_KEYS, (split + 1) * SPLIT_KEYS)
        out.baddbmm_(weight_bqk[:, :, keys], value_bskd[:, split])
    return out
