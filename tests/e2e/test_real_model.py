"""SmolLM2-135M-Instruct as pulled, against vectors that other engines made.

tests/vectors/smollm2_tokenizer_vectors.jsonl: 86 strings tokenised by llama.cpp from the GGUF.
tests/vectors/smollm2_greedy_vectors.jsonl: 8 prompts and the 128 greedy tokens (EOS ignored) on
which transformers, OpenVINO GenAI, vLLM, CTranslate2 and llama.cpp agree in float32, from weights
dequantised and rounded to bfloat16.
"""

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer

from hetero.models.convert import PEAK_MEMORY_BYTES
from hetero.models.manifest import check_contents
from hetero.models.registry import DEFAULT_MODEL, known_model
from hetero.models.tokenizer import load_tokenizer

pytestmark = pytest.mark.real_model

VECTORS = Path(__file__).parent.parent / "vectors"


def vectors(name):
    return [json.loads(line) for line in (VECTORS / name).read_text().splitlines()]


TOKENIZER = vectors("smollm2_tokenizer_vectors.jsonl")
GREEDY = vectors("smollm2_greedy_vectors.jsonl")


@pytest.fixture(scope="module")
def tokenizer(real_model_dir):
    return load_tokenizer(real_model_dir)


def test_every_byte_is_what_was_pinned(real_model_dir):
    model = known_model(DEFAULT_MODEL)
    manifest = check_contents(real_model_dir)
    assert manifest.files["model.safetensors"].sha256 == model.weights_sha256
    with (real_model_dir / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    header.pop("__metadata__")
    assert sum(int(np.prod(entry["shape"])) for entry in header.values()) == model.params


def test_vectors_are_all_there():
    assert (len(TOKENIZER), len(GREEDY)) == (86, 8)
    assert {len(vector["greedy_token_ids"]) for vector in GREEDY} == {128}


def test_text_becomes_llama_cpps_ids(tokenizer, real_model_dir):
    parsing = Tokenizer.from_file(str(real_model_dir / "tokenizer.json"))
    for vector in TOKENIZER:
        text = vector["text"]
        assert tokenizer.encode(text) == vector["ids"], text
        parsed = parsing.encode(text, add_special_tokens=False).ids
        assert parsed == vector["ids_special_parsed"], text
        assert tokenizer.decode(vector["ids"]) == text


def test_transformers_reads_the_same_tokenizer(tokenizer, real_model_dir):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(real_model_dir)
    for vector in TOKENIZER:
        ids = theirs(vector["text"], add_special_tokens=False).input_ids
        assert ids == vector["ids_special_parsed"], vector["text"]
    for vector in TOKENIZER:
        if vector["ids"] == vector["ids_special_parsed"]:
            chat = [{"role": "user", "content": vector["text"]}]
            ids = theirs.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
            assert tokenizer.apply_chat_template([("user", vector["text"])]) == ids


def test_chat_template_gives_the_vectors_prompts(tokenizer):
    for vector in GREEDY:
        text = tokenizer.decode(vector["prompt_token_ids"], skip_special_tokens=False)
        head, content = text.split("<|im_start|>user\n")
        assert head.endswith("named SmolLM, trained by Hugging Face<|im_end|>\n")
        content = content.removesuffix("<|im_end|>\n<|im_start|>assistant\n")
        assert tokenizer.apply_chat_template([("user", content)]) == vector["prompt_token_ids"]


@pytest.fixture(scope="module")
def float32_model(real_model_dir):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(real_model_dir, dtype=torch.float32).eval()


@pytest.mark.parametrize("vector", GREEDY, ids=[f"{v['kind']}{i}" for i, v in enumerate(GREEDY)])
def test_each_greedy_token_is_the_argmax_of_its_prefix(vector, float32_model):
    """One forward over prompt and answer: by induction that is what greedy decoding writes."""
    import torch

    prompt, answer = vector["prompt_token_ids"], vector["greedy_token_ids"]
    with torch.inference_mode():
        logits = float32_model(torch.tensor([prompt + answer])).logits[0]
    assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == answer


@pytest.mark.parametrize("number", [0, 5])
def test_plain_generation_writes_the_vectors(number, float32_model):
    import torch

    prompt, answer = (GREEDY[number][key] for key in ("prompt_token_ids", "greedy_token_ids"))
    ids = torch.tensor([prompt])
    length = dict(min_new_tokens=24, max_new_tokens=24, do_sample=False)
    written = float32_model.generate(ids, attention_mask=torch.ones_like(ids), **length)
    assert written[0, len(prompt) :].tolist() == answer[:24]


MEASURED = """
import sys
from pathlib import Path
from hetero.models.convert import convert_gguf
convert_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) * 1024)
"""
# Not ru_maxrss: Linux lets a child start from the peak of the process that it was forked from.


def write_gguf_of_real_size(path, real_model_dir):
    """Real vocabulary and shapes, weights all zero: what memory sees of the real file."""
    config = json.loads((real_model_dir / "config.json").read_text())
    model = json.loads((real_model_dir / "tokenizer.json").read_text())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 17 + [1] * (len(tokens) - 17))
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    hidden, ff = config["hidden_size"], config["intermediate_size"]
    kv = hidden * config["num_key_value_heads"] // config["num_attention_heads"]
    kinds = gguf.GGMLQuantizationType
    add_zeros(writer, "token_embd", (len(tokens), hidden), kinds.Q8_0)
    for layer in range(config["num_hidden_layers"]):
        rows = {"attn_q": hidden, "attn_k": kv, "attn_v": kv, "attn_output": hidden}
        for name, count in {**rows, "ffn_gate": ff, "ffn_up": ff}.items():
            add_zeros(writer, f"blk.{layer}.{name}", (count, hidden), kinds.Q4_1)
        add_zeros(writer, f"blk.{layer}.ffn_down", (hidden, ff), kinds.Q4_1)
        for name in ("attn_norm", "ffn_norm"):
            add_zeros(writer, f"blk.{layer}.{name}", (hidden,), kinds.F32)
    add_zeros(writer, "output_norm", (hidden,), kinds.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_zeros(writer, name, shape, kind):
    if kind == gguf.GGMLQuantizationType.F32:
        data = np.zeros(shape, np.float32)
    else:
        data = np.zeros(gguf.quant_shape_to_byte_shape(shape, kind), np.uint8)
    writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)


def test_conversion_stays_within_its_memory(real_model_dir, tmp_path):
    source, out = tmp_path / "source.gguf", tmp_path / "out"
    out.mkdir()
    write_gguf_of_real_size(source, real_model_dir)
    model = known_model(DEFAULT_MODEL)
    assert source.stat().st_size == pytest.approx(model.source.member_bytes, rel=0.01)
    command = [sys.executable, "-c", MEASURED, str(source), str(out)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    peak_bytes = int(result.stdout)
    real_size = (real_model_dir / "model.safetensors").stat().st_size
    assert (out / "model.safetensors").stat().st_size == real_size
    assert PEAK_MEMORY_BYTES / 2 < peak_bytes < PEAK_MEMORY_BYTES, peak_bytes
