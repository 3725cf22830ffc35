"""Drafts of a given size with random weights: for figures of speed, which depend on no value."""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpga.program import isa, tables
from fpga.program.artefact import FORMAT_VERSION, load_artefact
from fpga.program.build import build_artefact
from hetero.core.errors import ArtefactError

_SEED: Final = 1
_NO_TOKENIZER: Final = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSize:
    """A Llama shape with a tied embedding."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int = 64
    vocab_size: int = 8192
    context_tokens: int = 2048

    def config(self) -> dict[str, Any]:
        """As config.json says it."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.context_tokens,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
        }

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Tensor name -> rows, columns."""
        hidden, ff = self.hidden_size, self.intermediate_size
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        layer = {
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (ff, hidden),
            "mlp.up_proj": (ff, hidden),
            "mlp.down_proj": (hidden, ff),
        }
        sizes = {
            f"model.layers.{i}.{name}.weight": size
            for i in range(self.num_layers)
            for name, size in layer.items()
        }
        return {"model.embed_tokens.weight": (self.vocab_size, hidden), **sizes}

    def norms(self) -> list[str]:
        """Names of vectors of ``hidden_size``."""
        names = ("input_layernorm", "post_attention_layernorm")
        layers = range(self.num_layers)
        inner = [f"model.layers.{i}.{name}.weight" for i in layers for name in names]
        return [*inner, "model.norm.weight"]


SHAPES: Final[Mapping[str, DraftSize]] = {
    "5m": DraftSize(
        hidden_size=192, intermediate_size=576, num_layers=8, num_heads=3, num_kv_heads=1
    ),
    "10m": DraftSize(
        hidden_size=256, intermediate_size=768, num_layers=10, num_heads=4, num_kv_heads=2
    ),
    "15m": DraftSize(
        hidden_size=320, intermediate_size=960, num_layers=11, num_heads=5, num_kv_heads=1
    ),
}
"""5.0, 10.0 and 15.5 million parameters."""


def random_draft(size: DraftSize, folder: Path) -> Path:
    """The artefact ``folder / "draft"``, built unless it is there and of this version."""
    draft = folder / "draft"
    if _is_current(draft):
        return draft
    source = folder / "checkpoint"
    source.mkdir(parents=True, exist_ok=True)
    (source / "config.json").write_text(json.dumps(size.config()), encoding="utf-8")
    _write_safetensors(source / "model.safetensors", size)
    build_artefact(source, draft, target_tokenizer_sha256=_NO_TOKENIZER)
    return draft


def cached_draft(name: str, drafts_dir: Path, progress: Callable[[str], None]) -> Path:
    """``SHAPES[name]`` below a directory of drafts; says so when it has to be built."""
    versions = f"{FORMAT_VERSION}.{isa.ISA_VERSION}.{tables.ARITHMETIC_VERSION}"
    folder = drafts_dir / f"random-{name}-{versions}"
    if not _is_current(folder / "draft"):
        progress(f"building a random draft of {name} parameters (once; kept in {drafts_dir})")
    return random_draft(SHAPES[name], folder)


def _is_current(draft: Path) -> bool:
    try:
        load_artefact(draft)
    except ArtefactError:
        return False
    return True


def _write_safetensors(path: Path, size: DraftSize) -> None:
    """https://github.com/huggingface/safetensors#format: length, JSON header, then the data."""
    rng = np.random.default_rng(_SEED)
    tensors: dict[str, NDArray[np.float32]] = {
        name: (rng.standard_normal(shape) / np.sqrt(shape[1])).astype(np.float32)
        for name, shape in size.matrices().items()
    }
    tensors |= {name: np.ones(size.hidden_size, dtype=np.float32) for name in size.norms()}
    header, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        shape = list(tensor.shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.astype("<f4").tobytes())
