"""The tiny checkpoints that other tests stand on are ordinary, repeatable and not degenerate."""

import itertools
import json

import numpy as np
import pytest
from support.llama_files import float_logits
from support.tiny import TOKENIZER_VOCAB_SIZE, make_tiny_checkpoint, random_weights
from tokenizers import Tokenizer

from hetero.models.bf16_file import to_bf16, write_bf16_file


def test_same_seed_same_bytes_other_seed_other_weights(tmp_path):
    one, two, three = (
        make_tiny_checkpoint(tmp_path / str(i), seed=seed) for i, seed in enumerate((1, 1, 2))
    )
    for file in sorted(one.iterdir()):
        assert file.read_bytes() == (two / file.name).read_bytes(), file.name
    assert (one / "model.safetensors").read_bytes() != (three / "model.safetensors").read_bytes()
    assert (one / "tokenizer.json").read_bytes() == (three / "tokenizer.json").read_bytes()


def test_transformers_loads_it_and_finds_our_weights(tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    path = make_tiny_checkpoint(tmp_path / "m", tied=False, hidden=96, kv_heads=1)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    config = json.loads((path / "config.json").read_text())
    for name, values in random_weights(config, seed=0).items():
        loaded = model.state_dict()[name].numpy()
        np.testing.assert_array_equal(to_bf16(loaded), to_bf16(values), err_msg=name)


def test_vocabulary_is_padded_and_every_byte_can_be_said(tiny_checkpoint):
    tokenizer = Tokenizer.from_file(str(tiny_checkpoint / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == TOKENIZER_VOCAB_SIZE
    vocab_size = json.loads((tiny_checkpoint / "config.json").read_text())["vocab_size"]
    assert vocab_size == 384
    text = "".join(map(chr, range(1, 0x3000, 7)))
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_greedy_output_wanders(tiny_checkpoint):
    config = json.loads((tiny_checkpoint / "config.json").read_text())
    weights = random_weights(config, seed=0)
    ids = [5, 17, 200, 31]
    for _ in range(60):
        ids.append(int(float_logits(config, weights, ids)[-1].argmax()))
    assert len(set(ids)) > 25
    repeats = sum(a == b for a, b in itertools.pairwise(ids))
    assert repeats < 15


def test_rounding_to_bf16_is_to_nearest_even():
    bits = np.array([0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0xBF807FFF], np.uint32)
    expected = [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0xBF80]
    assert to_bf16(bits.view(np.float32)).tolist() == expected


@pytest.mark.parametrize("block", [[1.0, float("nan")], [1.0], [1.0, 2.0, 3.0]])
def test_a_tensor_that_does_not_fit_its_shape_is_refused(block, tmp_path):
    values = np.array(block, np.float32)
    with pytest.raises(ValueError, match="tensor w"):
        write_bf16_file(tmp_path / "f", {"w": (2,)}, lambda name: [values])
