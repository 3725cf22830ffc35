"""What the accelerator reaches: measured in RTL simulation, and modelled for whole cards."""
