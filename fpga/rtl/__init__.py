"""The draft accelerator in SystemVerilog, and the generator of what it shares with software."""
