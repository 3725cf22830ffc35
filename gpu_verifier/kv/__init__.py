"""Which cache block belongs to whom (pool), and the tensors behind the blocks (cache)."""
