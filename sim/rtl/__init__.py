"""The accelerator's own RTL as a simulated card: Verilator, and a C++ memory around it."""
