"""The target side: paged KV, batched deterministic forward, sampling and acceptance."""
