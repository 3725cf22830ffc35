"""The target side: paged KV, batched deterministic forward, sampling and acceptance."""

import os

# torch's OpenMP reads this once, when it loads. By default its threads spin at barriers, hundreds
# a step; where another process (the simulated card, say) wants the cores, they spin in vain: on
# two busy cores 120 small matrix products took 1.9 s with spinning threads, 0.11 s with sleeping.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
