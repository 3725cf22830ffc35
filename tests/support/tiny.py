"""Tiny random Llama checkpoints in ordinary Hugging Face directories, made in milliseconds.

They have everything a real one has: bfloat16 weights, a byte-level BPE tokenizer trained on the
text below, SmolLM2's special tokens and chat template, an end-of-sequence id. Made with NumPy and
tokenizers alone, so that a card host can use them.
"""

import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from hetero.models.bf16_file import write_bf16_file

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_TOKEN_ID = 2
TOKENIZER_VOCAB_SIZE = 375  # no multiple of 32: models pad their vocabulary
_VOCAB_UNIT = 32

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named Tiny<|im_end|>\n' }}"
    "{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_TRAINING_TEXT = """
The user asks a question and the assistant writes an answer. You are a helpful AI assistant.
system user assistant message content token draft verify accept reject commit round sequence.
A small model on a card proposes what the large model may say; the large model decides alone.
What is the capital of France? The capital of France is Paris. There are many other cities.
for i in range(10): print(i, "and the rest of the line") # nothing that is not in the text
It was the best of times, it was the worst of times, it was the age of reading and writing.
Stop when the text ends here, and then start again from the beginning with another string.
"""


def make_tiny_checkpoint(
    path: Path,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    intermediate: int = 96,
    max_positions: int = 1024,
    tied: bool = True,
    vocab_size: int | None = None,
) -> Path:
    """Write the directory and return it. The same arguments give the same bytes.

    ``vocab_size`` of the model is the tokenizer's, rounded up to a multiple of 32, unless given.
    """
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer()
    size = vocab_size or -(-tokenizer.get_vocab_size() // _VOCAB_UNIT) * _VOCAB_UNIT
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": size,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": max_positions,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": 1,
        "eos_token_id": EOS_TOKEN_ID,
    }
    _write_json(path / "config.json", config)
    weights = random_weights(config, seed)
    shapes = {name: values.shape for name, values in weights.items()}
    write_bf16_file(path / "model.safetensors", shapes, lambda name: [weights[name]])
    _write_tokenizer(path, tokenizer)
    return path


def train_tokenizer() -> Tokenizer:
    """Byte-level BPE over single digits, like SmolLM2's: any bytes can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENIZER_VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TRAINING_TEXT.splitlines(keepends=True), trainer)
    return tokenizer


def random_weights(config: dict, seed: int) -> dict[str, np.ndarray]:
    """name -> float32 array. Greedy output wanders and logits spread by about 3.

    The layers add several times what the embedding puts into the residual stream: with a tied
    embedding the model would otherwise repeat the last token for ever.
    """
    rng = np.random.default_rng(seed)
    hidden, ff = config["hidden_size"], config["intermediate_size"]
    q_rows = config["num_attention_heads"] * config["head_dim"]
    kv_rows = config["num_key_value_heads"] * config["head_dim"]

    def matrix(rows: int, columns: int, gain: float) -> np.ndarray:
        return (rng.normal(size=(rows, columns)) * gain / np.sqrt(columns)).astype(np.float32)

    def norm() -> np.ndarray:
        return rng.uniform(0.75, 1.25, hidden).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden, 3.0)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        weights |= {
            f"{prefix}.input_layernorm.weight": norm(),
            f"{prefix}.self_attn.q_proj.weight": matrix(q_rows, hidden, 1.5),
            f"{prefix}.self_attn.k_proj.weight": matrix(kv_rows, hidden, 1.5),
            f"{prefix}.self_attn.v_proj.weight": matrix(kv_rows, hidden, 1.0),
            f"{prefix}.self_attn.o_proj.weight": matrix(hidden, q_rows, 4.0),
            f"{prefix}.post_attention_layernorm.weight": norm(),
            f"{prefix}.mlp.gate_proj.weight": matrix(ff, hidden, 1.5),
            f"{prefix}.mlp.up_proj.weight": matrix(ff, hidden, 1.5),
            f"{prefix}.mlp.down_proj.weight": matrix(hidden, ff, 4.0),
        }
    weights["model.norm.weight"] = norm()
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(config["vocab_size"], hidden, 3.0)
    return weights


def _write_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(str(path / "tokenizer.json"))
    _write_json(
        path / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "unk_token": "<|endoftext|>",
            "pad_token": "<|im_end|>",
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    generation = {"bos_token_id": 1, "eos_token_id": EOS_TOKEN_ID, "pad_token_id": EOS_TOKEN_ID}
    _write_json(path / "generation_config.json", generation)


def _write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
