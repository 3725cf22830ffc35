"""Times a verify step beside transformers' own eager attention.

``python -m gpu_verifier.measure_step MODEL_DIR [THREADS]``. float32 on CPU, 256 positions of
context; the ways are interleaved in one run, so that a busy machine disturbs all alike. Prints
minimum and median of ten.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from gpu_verifier.attention.plan import SequenceRows
from gpu_verifier.kv.cache import PagedCache
from gpu_verifier.model.target import StepRows, TargetModel, load_target, pad_to_tile

_CONTEXT, _REPEATS, _BLOCK_TOKENS = 256, 10, 16
_BLOCKS_EACH = _CONTEXT // _BLOCK_TOKENS + 1


def main() -> int:
    """Print one line for each kind of step."""
    model_dir = Path(sys.argv[1])
    torch.set_num_threads(int(sys.argv[2]) if len(sys.argv) > 2 else torch.get_num_threads())
    target = load_target(model_dir, torch.device("cpu"), torch.float32)
    cache = PagedCache(target.cache_shape(8 * _BLOCKS_EACH, _BLOCK_TOKENS), target.device)
    eager = AutoModelForCausalLM.from_pretrained(
        model_dir, local_files_only=True, dtype=torch.float32, attn_implementation="eager"
    )
    ways: dict[str, Callable[[], object]] = {
        "verify, 16 rows of one sequence": lambda: _verify(target, cache, 1, 16),
        "verify, 8 sequences of 5 rows": lambda: _verify(target, cache, 8, 5),
        "verify, 256 rows of prefill": lambda: _prefill(target, cache),
        "transformers eager, 1 row": _eager_step(eager, 1),
        "transformers eager, 5 rows": _eager_step(eager, 5),
        "transformers eager, 16 rows": _eager_step(eager, 16),
    }
    sys.stdout.write(f"{torch.get_num_threads()} threads, {target.executor}\n")
    for name, times_ms in _interleave(ways).items():
        median = sorted(times_ms)[len(times_ms) // 2]
        sys.stdout.write(f"{name}: min {min(times_ms):.0f} ms, median {median:.0f} ms\n")
    return 0


def _interleave(ways: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    times_ms: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_REPEATS + 1):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            times_ms[name].append((time.perf_counter() - started) * 1e3)
    return {name: measured[1:] for name, measured in times_ms.items()}  # the first warms up


def _verify(target: TargetModel, cache: PagedCache, num_sequences: int, rows_each: int) -> object:
    blocks = [tuple(range(i * _BLOCKS_EACH, (i + 1) * _BLOCKS_EACH)) for i in range(num_sequences)]
    num_rows = num_sequences * rows_each
    step = StepRows(
        token_ids=tuple(range(1, num_rows + 1)),
        sequences=tuple(SequenceRows(_CONTEXT, rows_each, held) for held in blocks),
        logit_rows=tuple(range(num_rows)),
        num_padded_rows=pad_to_tile(num_rows),
    )
    return target.forward(step, cache)


def _prefill(target: TargetModel, cache: PagedCache) -> object:
    rows = SequenceRows(0, _CONTEXT, tuple(range(_BLOCKS_EACH)))
    return target.forward(StepRows(tuple(range(_CONTEXT)), (rows,), (_CONTEXT - 1,), 256), cache)


@torch.inference_mode()
def _eager_step(eager: Any, num_rows: int) -> Callable[[], object]:
    past = eager(torch.arange(_CONTEXT)[None], use_cache=True).cache

    @torch.inference_mode()
    def step() -> object:
        output = eager(torch.arange(1, num_rows + 1)[None], cache=past, use_cache=True)
        past.crop(-num_rows)
        return output

    return step


if __name__ == "__main__":
    sys.exit(main())
