"""Start-up proof that a row's bits do not depend on its batch, on this machine and this model.

Matrix libraries choose their kernel by the number of rows, and another kernel sums in another
order. So before serving, and bitwise:

1. every distinct linear layer, on the model's weights: a row alone in a 16-row batch against the
   same row in every row bucket. A bucket that differs is dropped; rows are then padded further.
2. attention: a tile alone against the same tile beside others, with fewer and more key splits.
3. the whole model: one prompt read at once, in chunks, and beside another sequence.

Content does not matter to a kernel's choice, so random rows prove it for all.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gpu_verifier.attention.paged import PagedStep, attend
from gpu_verifier.attention.plan import SLAB_TILES, SPLIT_KEYS, TILE_ROWS, SequenceRows, build_plan
from gpu_verifier.kv.cache import CacheShape, PagedCache
from gpu_verifier.model.packed_linear import AnyLinear
from gpu_verifier.model.target import HEAD_SLAB_ROWS, ROW_TILE, StepRows, TargetModel, pad_to_tile
from hetero.core.errors import DeterminismError

_LOG = logging.getLogger(__name__)
_SEED = 20_261_201
# Around every edge of a split up to four, where a wrong reduction order has been seen before.
_EDGE_LENGTHS = (1, 17, *(edge + d for edge in (128, 256, 384, 512) for d in (-1, 0, 1)))
_PROMPT_TOKENS = 137  # crosses a split, and no chunk below divides it


@dataclass(frozen=True, slots=True)
class _Probe:
    """Rows to follow through the buckets, and each one's result when it is alone."""

    row_pd: torch.Tensor
    alone_pd: torch.Tensor


@torch.inference_mode()
def prove_batch_invariance(
    target: TargetModel, block_tokens: int, buckets: Sequence[int]
) -> tuple[int, ...]:
    """The row buckets that are safe. Raises DeterminismError if the model can't be served.

    ``buckets``: ascending multiples of ROW_TILE, the first one ROW_TILE.
    """
    generator = torch.Generator().manual_seed(_SEED)
    kept = _safe_buckets(target, buckets, generator)
    _prove_head(target, generator)
    _prove_attention(target, block_tokens, generator)
    _prove_model(target, block_tokens, kept, generator)
    return kept


def _fail(what: str) -> DeterminismError:
    return DeterminismError(
        f"start-up self-test: {what} depends on its batch on this machine. "
        "Use dtype float32, another thread count, or another torch build."
    )


# ---- 1. linear layers -------------------------------------------------------------------------


def _safe_buckets(
    target: TargetModel, buckets: Sequence[int], generator: torch.Generator
) -> tuple[int, ...]:
    layers = [layer for layer in target.linear_layers() if layer is not target.head]
    probes = [_probe(target, layer, generator) for layer in layers]
    kept = []
    for rows in buckets:
        differs = [
            layer
            for layer, probe in zip(layers, probes, strict=True)
            if not _same_in_batch(layer, probe, rows, generator)
        ]
        if differs:
            _LOG.warning("row bucket %d dropped: %s differs in it", rows, differs[0])
        else:
            kept.append(rows)
    if not kept or kept[0] != buckets[0] or kept[-1] != buckets[-1]:
        raise _fail(f"a linear layer at {sorted(set(buckets) - set(kept))} rows")
    return tuple(kept)


def _prove_head(target: TargetModel, generator: torch.Generator) -> None:
    """The output head sees slabs of at most HEAD_SLAB_ROWS, so all of its shapes are few."""
    probe = _probe(target, target.head, generator)
    for rows in range(ROW_TILE, HEAD_SLAB_ROWS + 1, ROW_TILE):
        if not _same_in_batch(target.head, probe, rows, generator):
            raise _fail(f"the output head at {rows} rows")


def _probe(target: TargetModel, layer: AnyLinear, generator: torch.Generator) -> _Probe:
    row_pd = _random(target, (3, layer.in_features), generator)
    alone = []
    for row in row_pd:
        batch = torch.zeros(ROW_TILE, layer.in_features, dtype=target.dtype, device=target.device)
        batch[0] = row
        alone.append(layer(batch)[0])
    return _Probe(row_pd, torch.stack(alone))


def _same_in_batch(layer: AnyLinear, probe: _Probe, rows: int, generator: torch.Generator) -> bool:
    """Whether the probe's rows come out alike at the start, inside and at the end of a batch."""
    noise = torch.randn(rows, layer.in_features, generator=generator)
    batch = noise.to(probe.row_pd)
    places = [0, rows // 2 + 1, rows - 1]
    batch[places] = probe.row_pd
    return torch.equal(layer(batch)[places], probe.alone_pd)


def _random(target: TargetModel, size: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(size, generator=generator).to(device=target.device, dtype=target.dtype)


# ---- 2. attention -----------------------------------------------------------------------------


def _prove_attention(target: TargetModel, block_tokens: int, generator: torch.Generator) -> None:
    """Every tile count of a slab, and every split count that the edge lengths lead to."""
    shape = _one_layer_shape(target, max(_EDGE_LENGTHS), block_tokens)
    cache = PagedCache(shape, target.device)
    cache.fill_(generator)
    heads = int(target.config.num_attention_heads)
    # One query for every tile: a kernel is chosen by shapes, so content need not differ.
    query_nhd = _random(target, (1, heads, shape.head_dim), generator).float()
    query_nhd = query_nhd.repeat(SLAB_TILES, 1, 1)
    blocks = tuple(range(shape.num_blocks))
    alone = {n: _attend_together(query_nhd[:1], [n], blocks, cache)[0] for n in _EDGE_LENGTHS}
    for tiles in range(1, SLAB_TILES + 1):
        for shift in range(0, len(_EDGE_LENGTHS), 2):
            lengths = [_EDGE_LENGTHS[(shift + i) % len(_EDGE_LENGTHS)] for i in range(tiles)]
            out = _attend_together(query_nhd[:tiles], lengths, blocks, cache)
            if not all(torch.equal(out[i], alone[n]) for i, n in enumerate(lengths)):
                raise _fail(f"attention over {lengths} keys")
    _prove_tile_rows(query_nhd, blocks, cache)


def _prove_tile_rows(query_nhd: torch.Tensor, blocks: tuple[int, ...], cache: PagedCache) -> None:
    """A row inside a tile of TILE_ROWS consecutive positions against the row alone."""
    query = query_nhd[:1].repeat(TILE_ROWS, 1, 1)
    for start in (SPLIT_KEYS - 3, 2 * SPLIT_KEYS - 9):
        rows = SequenceRows(start, TILE_ROWS, blocks)
        plan = build_plan([rows], TILE_ROWS, cache.shape, query.device)
        out = attend(query, 0, PagedStep(cache, plan))
        for i in range(TILE_ROWS):
            alone = _attend_together(query_nhd[:1], [start + i + 1], blocks, cache)
            if not torch.equal(out[i], alone[0]):
                raise _fail(f"attention at row {i} of a tile")


def _attend_together(
    query_nhd: torch.Tensor, lengths: Sequence[int], blocks: tuple[int, ...], cache: PagedCache
) -> torch.Tensor:
    """Query i, as the last of ``lengths[i]`` positions, all in one step: [n, heads, d]."""
    sequences = [SequenceRows(length - 1, 1, blocks) for length in lengths]
    plan = build_plan(sequences, len(lengths), cache.shape, query_nhd.device)
    return attend(query_nhd, 0, PagedStep(cache, plan))


def _one_layer_shape(target: TargetModel, num_tokens: int, block_tokens: int) -> CacheShape:
    shape = target.cache_shape(-(-num_tokens // block_tokens), block_tokens)
    return CacheShape(
        num_layers=1,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        num_blocks=shape.num_blocks,
        block_tokens=block_tokens,
        dtype=shape.dtype,
    )


# ---- 3. the whole model -----------------------------------------------------------------------


def _prove_model(
    target: TargetModel, block_tokens: int, buckets: Sequence[int], generator: torch.Generator
) -> None:
    """One prompt at once, in uneven chunks, and last beside a second sequence: same logits."""
    vocab = int(target.config.vocab_size)
    prompt = torch.randint(vocab, (_PROMPT_TOKENS,), generator=generator).tolist()
    chunk = min(100, buckets[-1] // 2)
    blocks = -(-_PROMPT_TOKENS // block_tokens)
    first, second = tuple(range(blocks)), tuple(range(blocks, 2 * blocks))
    cache = PagedCache(target.cache_shape(2 * blocks, block_tokens), target.device)

    at_once = _read(target, cache, prompt, first, chunk=buckets[-1])
    in_chunks = _read(target, cache, prompt, second, chunk=chunk)
    if not torch.equal(at_once, in_chunks):
        raise _fail("the whole model, read in chunks,")
    last = _PROMPT_TOKENS - 1
    together = StepRows(
        token_ids=(prompt[last], *prompt[:20]),
        sequences=(SequenceRows(last, 1, first), SequenceRows(0, 20, second)),
        logit_rows=(0,),
        num_padded_rows=pad_to_tile(21),
    )
    if not torch.equal(target.forward(together, cache), at_once):
        raise _fail("the whole model, beside another sequence,")


def _read(
    target: TargetModel, cache: PagedCache, prompt: list[int], blocks: tuple[int, ...], chunk: int
) -> torch.Tensor:
    """Read a prompt in chunks; logits after its last token."""
    for start in range(0, len(prompt), chunk):
        tokens = prompt[start : start + chunk]
        logits = target.forward(
            StepRows(
                token_ids=tuple(tokens),
                sequences=(SequenceRows(start, len(tokens), blocks),),
                logit_rows=(len(tokens) - 1,),
                num_padded_rows=pad_to_tile(len(tokens)),
            ),
            cache,
        )
    return logits
