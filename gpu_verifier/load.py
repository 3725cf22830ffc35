"""From a VerifierConfig to a verifier that has proved itself: every start-up check is here."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from gpu_verifier.attention.plan import SPLIT_KEYS
from gpu_verifier.compute_thread import ComputeThread
from gpu_verifier.kv.cache import CacheShape, PagedCache
from gpu_verifier.kv.memory import available_bytes
from gpu_verifier.kv.pool import BlockPool
from gpu_verifier.model import checkpoint, identity
from gpu_verifier.model.target import ROW_TILE, TargetModel, load_target
from gpu_verifier.selftest import prove_batch_invariance
from gpu_verifier.verifier import PagedVerifier, VerifierParts
from hetero.core.errors import CapacityError, ConfigError, ModelError
from hetero.core.types import VerifierInfo

_LOG = logging.getLogger(__name__)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_BLOCK_SIZES = (16, 32, 64, 128)
_MAX_ROWS = 4096
_DEFAULT_KV_BYTES = 1 << 30
"""KV cache when ``num_kv_blocks`` is not given; touched only as it fills."""
_DEFAULT_CONTEXTS = 64
"""Nor more than this many sequences of full length: small models need no gigabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierConfig:
    """Which target to load, where, and how much of it to run at once.

    ``dtype`` auto is bfloat16 where the processor has instructions for it or on a GPU, else
    float32. ``threads`` None is torch's own choice. ``num_kv_blocks`` None sizes the cache to 1 GiB
    or a quarter of free memory, whichever is less, and at most 64 full contexts.
    """

    model_dir: Path
    model_name: str
    tokenizer_sha256: str
    tokenizer_vocab_size: int
    device: str = "cpu"
    dtype: str = "auto"
    threads: int | None = None
    num_kv_blocks: int | None = None
    kv_block_tokens: int = 16
    max_batch_rows: int = 256
    self_test: bool = True


def load_verifier(cfg: VerifierConfig) -> PagedVerifier:
    """Load the target, prove it deterministic, give it a cache.

    Raises ConfigError for a setting, ModelError for the checkpoint, CapacityError when memory does
    not hold the cache, DeterminismError when the self-test fails.
    """
    _check_settings(cfg)
    device = _device(cfg.device)
    dtype = _dtype(cfg.dtype, device)
    config = checkpoint.read_config(cfg.model_dir)
    checkpoint.refuse_unsupported(config, cfg.model_dir)
    checkpoint.context_tokens(cfg.model_dir, config)
    compute = ComputeThread(cfg.threads or torch.get_num_threads())
    try:
        return compute.call(lambda: _load(cfg, device, dtype, compute))
    except BaseException:
        compute.close()
        raise


def _load(
    cfg: VerifierConfig, device: torch.device, dtype: torch.dtype, compute: ComputeThread
) -> PagedVerifier:
    files = checkpoint.weight_files(cfg.model_dir)
    target = load_target(cfg.model_dir, device, dtype)
    _check_vocabulary(cfg, target)
    buckets = tuple(range(ROW_TILE, cfg.max_batch_rows + 1, ROW_TILE))
    if cfg.self_test:
        started = time.monotonic()
        buckets = prove_batch_invariance(target, cfg.kv_block_tokens, buckets)
        _LOG.info("numeric self-test passed in %.1f s", time.monotonic() - started)
    shape = _cache_shape(cfg, target)
    numerics = identity.numerics_identity(
        device=device,
        dtype=dtype,
        threads=compute.threads,
        executor=target.executor,
        weights_sha256=identity.weights_digest(cfg.model_dir, files),
    )
    capacity_tokens = shape.num_blocks * shape.block_tokens
    info = VerifierInfo(
        model_name=cfg.model_name,
        vocab_size=cfg.tokenizer_vocab_size,
        max_context_tokens=min(int(target.config.max_position_embeddings), capacity_tokens),
        eos_token_ids=checkpoint.eos_token_ids(cfg.model_dir, target.config),
        tokenizer_sha256=cfg.tokenizer_sha256,
        system_fingerprint=identity.fingerprint(numerics),
        device=str(device),
        dtype=str(dtype).removeprefix("torch."),
    )
    return PagedVerifier(
        VerifierParts(
            target=target,
            cache=PagedCache(shape, device),
            pool=BlockPool(shape.num_blocks, shape.block_tokens),
            info=info,
            row_buckets=buckets,
            compute=compute,
        )
    )


def _check_settings(cfg: VerifierConfig) -> None:
    if cfg.threads is not None and cfg.threads < 1:
        raise ConfigError(f"threads = {cfg.threads}: must be at least 1.")
    if cfg.kv_block_tokens not in _BLOCK_SIZES:
        sizes = ", ".join(map(str, _BLOCK_SIZES))
        raise ConfigError(
            f"kv_block_tokens = {cfg.kv_block_tokens}: must divide {SPLIT_KEYS}; "
            f"use one of {sizes}."
        )
    if cfg.num_kv_blocks is not None and cfg.num_kv_blocks < 1:
        raise ConfigError(f"num_kv_blocks = {cfg.num_kv_blocks}: must be at least 1.")
    if cfg.max_batch_rows % ROW_TILE or not ROW_TILE <= cfg.max_batch_rows <= _MAX_ROWS:
        raise ConfigError(
            f"max_batch_rows = {cfg.max_batch_rows}: must be a multiple of {ROW_TILE} "
            f"in {ROW_TILE}..{_MAX_ROWS}."
        )


def _device(name: str) -> torch.device:
    if name == "cpu":
        return torch.device("cpu")
    if name.partition(":")[0] != "cuda":
        raise ConfigError(f"target_device = {name}: use cpu, cuda or cuda:N.")
    if not torch.cuda.is_available():
        raise ConfigError(
            f"target_device = {name}: this host has no usable CUDA device "
            f"(torch {torch.__version__}). Use cpu, or install a CUDA build of torch."
        )
    device = torch.device(name)
    if (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"target_device = {name}: only {torch.cuda.device_count()} found.")
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        fast = device.type == "cuda" or {"avx512_bf16", "amx_bf16"} & identity.cpu_flags()
        return torch.bfloat16 if fast else torch.float32
    if name not in _DTYPES:
        raise ConfigError(f"dtype = {name}: use auto, {', '.join(_DTYPES)}.")
    if name == "float16" and device.type == "cpu":
        raise ConfigError("dtype = float16: only on cuda. Use float32 or bfloat16 on a CPU.")
    return _DTYPES[name]


def _check_vocabulary(cfg: VerifierConfig, target: TargetModel) -> None:
    model_vocab = int(target.config.vocab_size)
    if not 0 < cfg.tokenizer_vocab_size <= model_vocab:
        raise ModelError(
            f"target = {cfg.model_dir}: the tokenizer has {cfg.tokenizer_vocab_size} ids, the "
            f"model {model_vocab}. They do not belong together; fetch the model again."
        )


def _cache_shape(cfg: VerifierConfig, target: TargetModel) -> CacheShape:
    block_bytes = target.cache_shape(1, cfg.kv_block_tokens).block_bytes
    free_bytes = available_bytes(target.device)
    num_blocks = cfg.num_kv_blocks or min(
        min(_DEFAULT_KV_BYTES, free_bytes // 4) // block_bytes,
        _DEFAULT_CONTEXTS * int(target.config.max_position_embeddings) // cfg.kv_block_tokens,
    )
    if num_blocks < 1 or num_blocks * block_bytes > free_bytes:
        raise CapacityError(
            f"num_kv_blocks = {cfg.num_kv_blocks or 'auto'}: {max(num_blocks, 1)} blocks of "
            f"{block_bytes} bytes do not fit the {free_bytes} bytes free on {target.device}. "
            "Lower num_kv_blocks, or free memory."
        )
    return target.cache_shape(num_blocks, cfg.kv_block_tokens)
