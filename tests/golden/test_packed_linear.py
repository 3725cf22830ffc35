"""The packed product against the plain one: same numbers but for rounding, any shape and bias."""

import pytest
import torch

from gpu_verifier.model import packed_linear
from gpu_verifier.model.packed_linear import PackedLinear, can_pack, pack_linear_layers
from gpu_verifier.model.target import load_target

CPU = torch.device("cpu")


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("inputs,outputs", [(64, 96), (96, 64), (33, 17)])
def test_equals_linear_to_rounding(inputs, outputs, bias):
    torch.manual_seed(1)
    linear = torch.nn.Linear(inputs, outputs, bias=bias)
    packed = PackedLinear(linear)
    x = torch.randn(1, 48, inputs)
    with torch.inference_mode():
        # Sums of `inputs` products of size about 1/sqrt(inputs) in float32.
        torch.testing.assert_close(packed(x), linear(x), rtol=0, atol=1e-5)


def test_only_float32_on_a_cpu_is_packed():
    assert can_pack(CPU, torch.float32)
    assert not can_pack(CPU, torch.bfloat16)
    assert not can_pack(torch.device("cuda"), torch.float32)


def test_every_linear_layer_of_a_model_is_replaced(tiny_checkpoint):
    module = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(8, 8)), torch.nn.Linear(8, 4))
    pack_linear_layers(module)
    assert not [m for m in module.modules() if isinstance(m, torch.nn.Linear)]
    assert load_target(tiny_checkpoint, CPU, torch.float32).executor == "eager, packed"


def test_a_torch_without_the_packed_product_runs_plain(tiny_checkpoint, monkeypatch):
    monkeypatch.setattr(packed_linear.torch.ops, "mkldnn", object())
    assert not can_pack(CPU, torch.float32)
    assert load_target(tiny_checkpoint, CPU, torch.float32).executor == "eager"
