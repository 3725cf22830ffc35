"""The start-up self-test passes on an honest model and notices each kind of dishonesty."""

import pytest
import torch

from gpu_verifier.attention import paged
from gpu_verifier.model.packed_linear import PackedLinear
from gpu_verifier.model.target import load_target
from gpu_verifier.selftest import prove_batch_invariance
from hetero.core.errors import DeterminismError

BUCKETS = tuple(range(16, 257, 16))


@pytest.fixture
def target(tiny_checkpoint):
    torch.set_num_threads(1)
    return load_target(tiny_checkpoint, torch.device("cpu"), torch.float32)


def nudge_linear(monkeypatch, when):
    """Linear layers whose result moves by the last bit in batches that ``when`` picks."""
    honest = PackedLinear.forward

    def forward(self, x):
        out = honest(self, x)
        return torch.nextafter(out, out + 1) if when(self, x.shape[-2]) else out

    monkeypatch.setattr(PackedLinear, "forward", forward)


def test_an_honest_model_keeps_every_bucket(target):
    assert prove_batch_invariance(target, 16, BUCKETS) == BUCKETS


def test_a_dishonest_bucket_is_dropped_and_named(target, monkeypatch, caplog):
    nudge_linear(monkeypatch, lambda layer, rows: rows == 96 and layer.in_features == 96)
    kept = prove_batch_invariance(target, 16, BUCKETS)
    assert kept == tuple(bucket for bucket in BUCKETS if bucket != 96)
    assert "row bucket 96 dropped" in caplog.text


def test_a_layer_that_changes_with_large_batches_fails(target, monkeypatch):
    nudge_linear(monkeypatch, lambda layer, rows: rows >= 200)
    with pytest.raises(DeterminismError, match=r"a linear layer at \[208, 224, 240, 256\] rows"):
        prove_batch_invariance(target, 16, BUCKETS)


def test_a_head_that_depends_on_its_slab_fails(target, monkeypatch):
    nudge_linear(monkeypatch, lambda layer, rows: layer is target.head and rows == 48)
    with pytest.raises(DeterminismError, match="the output head at 48 rows"):
        prove_batch_invariance(target, 16, BUCKETS)


def test_attention_that_depends_on_the_number_of_splits_fails(target, monkeypatch):
    """Reading three splits where two would do must not move a bit."""
    honest = paged._weigh_in_splits

    def weigh(weight_bqk, value_bskd):
        out = honest(weight_bqk, value_bskd)
        return torch.nextafter(out, out + 1) if value_bskd.shape[1] >= 3 else out

    monkeypatch.setattr(paged, "_weigh_in_splits", weigh)
    with pytest.raises(DeterminismError, match="attention over"):
        prove_batch_invariance(target, 16, BUCKETS)


def test_attention_that_depends_on_the_number_of_tiles_fails(target, monkeypatch):
    honest = paged._sum_in_splits

    def total(weight):
        out = honest(weight)
        return torch.nextafter(out, out + 1) if weight.shape[1] == 5 else out

    monkeypatch.setattr(paged, "_sum_in_splits", total)
    with pytest.raises(DeterminismError, match="attention over"):
        prove_batch_invariance(target, 16, BUCKETS)


def test_an_activation_that_depends_on_its_batch_fails(target, monkeypatch):
    """Nothing but running the whole model finds this one."""
    mlp = target.module.model.layers[1].mlp
    honest = mlp.act_fn

    class Activation(torch.nn.Module):
        def forward(self, x):
            out = honest(x)
            return torch.nextafter(out, out + 1) if x.shape[-2] > 64 else out

    mlp.act_fn = Activation()
    with pytest.raises(DeterminismError, match="the whole model"):
        prove_batch_invariance(target, 16, BUCKETS)


def test_normalisation_that_scales_over_the_batch_fails(target):
    """A scale taken over all rows, as dynamic per-tensor quantisation does."""
    norm = target.module.model.norm
    honest = norm.forward
    norm.forward = lambda x: honest(x) * (1 + x.abs().max() * 1e-3)
    with pytest.raises(DeterminismError, match="the whole model"):
        prove_batch_invariance(target, 16, BUCKETS)
