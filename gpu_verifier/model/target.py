"""The target model as one function: a padded batch of rows in, float32 logits of some rows out.

Every model of transformers that follows its attention interface runs unchanged; only its
attention is ours, and its output head is cut into slabs so that the self-test has few shapes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from gpu_verifier.attention import paged
from gpu_verifier.attention.plan import AttentionPlan, SequenceRows, build_plan
from gpu_verifier.kv.cache import CacheShape, PagedCache
from gpu_verifier.model import checkpoint
from gpu_verifier.model.packed_linear import AnyLinear, PackedLinear, can_pack, pack_linear_layers
from hetero.core.errors import ModelError

ROW_TILE = 16
"""Row counts of every matrix product are multiples of this."""

HEAD_SLAB_ROWS = 64
"""Most rows the output head multiplies at once."""

_LAYER = re.compile(r"\.(layers|h)\.\d+\.")


@dataclass(frozen=True, slots=True)
class StepRows:
    """One forward pass: rows of several sequences in order, padded to a bucket."""

    token_ids: tuple[int, ...]
    sequences: tuple[SequenceRows, ...]
    logit_rows: tuple[int, ...]  # rows whose logits are wanted, in the order of the answer
    num_padded_rows: int


class RowSlabs(torch.nn.Module):
    """A linear layer that takes at most ``HEAD_SLAB_ROWS`` rows at a time."""

    def __init__(self, linear: AnyLinear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """``hidden``: [1, n, d]; returns [1, n, vocabulary]."""
        if hidden.shape[1] <= HEAD_SLAB_ROWS:
            out: torch.Tensor = self.linear(hidden)
            return out
        return torch.cat([self.linear(slab) for slab in torch.split(hidden, HEAD_SLAB_ROWS, 1)], 1)


class TargetModel:
    """Loaded weights with paged attention. Not thread-safe: one thread computes."""

    def __init__(self, module: Any, device: torch.device) -> None:
        self.module = module
        self.device = device
        self.config = module.config.get_text_config()

    @property
    def head(self) -> AnyLinear:
        """The output head, without its slabs."""
        head: AnyLinear = self.module.get_output_embeddings().linear
        return head

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights and of the cache."""
        dtype: torch.dtype = self.module.dtype
        return dtype

    def cache_shape(self, num_blocks: int, block_tokens: int) -> CacheShape:
        """Shape of a cache for this model."""
        config = self.config
        heads = config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        return CacheShape(
            num_layers=config.num_hidden_layers,
            num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=head_dim,
            num_blocks=num_blocks,
            block_tokens=block_tokens,
            dtype=self.dtype,
        )

    @property
    def executor(self) -> str:
        """How products are computed; part of the numerics identity."""
        return "eager, packed" if isinstance(self.head, PackedLinear) else "eager"

    def linear_layers(self) -> list[AnyLinear]:
        """One linear layer for each distinct (inputs, outputs, bias) of the model."""
        layers: dict[tuple[int, int, bool], AnyLinear] = {}
        for layer in self.module.modules():
            if isinstance(layer, (torch.nn.Linear, PackedLinear)):
                key = (layer.in_features, layer.out_features, layer.bias is not None)
                layers.setdefault(key, layer)
        return list(layers.values())

    def plan(self, step: StepRows, cache: PagedCache) -> AttentionPlan:
        """The attention plan of a step; separate, so that it can be timed and tested."""
        return build_plan(step.sequences, step.num_padded_rows, cache.shape, self.device)

    @torch.inference_mode()
    def forward(self, step: StepRows, cache: PagedCache) -> torch.Tensor:
        """Run a step; writes K and V of its rows; returns float32 logits [logit rows, v]."""
        output = self.module(
            input_ids=self._padded(step.token_ids, step.num_padded_rows),
            position_ids=self._padded(_positions(step.sequences), step.num_padded_rows),
            use_cache=False,
            logits_to_keep=self._logit_rows(step),
            paged_step=paged.PagedStep(cache, self.plan(step, cache)),
        )
        logits: torch.Tensor = output.logits[0, : len(step.logit_rows)]
        return logits.float()

    def _padded(self, values: Sequence[int], num_rows: int) -> torch.Tensor:
        padded = [*values, *([0] * (num_rows - len(values)))]
        return torch.tensor([padded], dtype=torch.int64, device=self.device)

    def _logit_rows(self, step: StepRows) -> torch.Tensor:
        """Rows for the head, padded by repeating the last row of the batch; none if none."""
        count = pad_to_tile(len(step.logit_rows))
        filler = [step.num_padded_rows - 1] * (count - len(step.logit_rows))
        return torch.tensor([*step.logit_rows, *filler], dtype=torch.int64, device=self.device)


def pad_to_tile(num_rows: int) -> int:
    """The next multiple of ROW_TILE."""
    return -(-num_rows // ROW_TILE) * ROW_TILE


def _positions(sequences: Sequence[SequenceRows]) -> list[int]:
    return [rows.start + i for rows in sequences for i in range(rows.num_rows)]


def load_target(model_dir: Path, device: torch.device, dtype: torch.dtype) -> TargetModel:
    """Load weights from safetensors on disk, nothing from the network, no code from the model.

    Raises ModelError if a tensor is missing, left over, misshapen or damaged, or the model's
    attention can't be replaced.
    """
    paged.register()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()  # what it would warn of is refused below
    try:
        module, loading = AutoModelForCausalLM.from_pretrained(
            model_dir,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=dtype,
            attn_implementation=paged.ATTENTION_NAME,
            ignore_mismatched_sizes=True,  # they are told, and refused below
            output_loading_info=True,
        )
    except Exception as error:  # a model's own code raises what it likes
        raise ModelError(
            f"target = {model_dir}: cannot be loaded: {checkpoint.reason_of(error)}"
        ) from error
    _refuse_incomplete(model_dir, loading)
    _refuse_damaged_numbers(model_dir, module)
    if not module._supports_attention_backend:
        raise ModelError(
            f"target = {model_dir}: {type(module).__name__} does not let its attention be "
            "replaced. Choose a model that follows transformers' attention interface."
        )
    module = module.eval().to(device)
    if can_pack(device, dtype):
        pack_linear_layers(module)
    _cut_head(module)
    return TargetModel(module, device)


def _refuse_incomplete(model_dir: Path, loading: dict[str, Any]) -> None:
    """transformers fills absent tensors with random numbers, drops others, and merely warns.

    Of tensors that no part of the model takes only those of layers count: checkpoints carry
    buffers and heads that a decoder does not need, but a layer left out is another model.
    """
    for kind in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        found = (name if isinstance(name, str) else name[0] for name in loading.get(kind, ()))
        names = sorted(n for n in found if kind != "unexpected_keys" or _LAYER.search(n))
        if names:
            raise ModelError(
                f"target = {model_dir}: {kind.replace('_', ' ')}: {', '.join(names[:3])}"
                f"{' and more' if len(names) > 3 else ''}. Fetch the model again."
            )


def _refuse_damaged_numbers(model_dir: Path, module: Any) -> None:
    for name, values in module.named_parameters():
        if not torch.isfinite(values).all():
            raise ModelError(
                f"target = {model_dir}: {name} holds NaN or infinity as {values.dtype}. Fetch the "
                "model again, or use --dtype float32."
            )


def _cut_head(module: Any) -> None:
    head = module.get_output_embeddings()
    for name, child in module.named_children():
        if child is head:
            setattr(module, name, RowSlabs(head))
            return
    raise ModelError(f"{type(module).__name__} has no output head of its own, which is needed")
