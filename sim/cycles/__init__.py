"""How long a start takes: a cycle-approximate model, not yet calibrated against RTL."""
