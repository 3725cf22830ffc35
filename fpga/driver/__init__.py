"""The host's side of a draft card, on the PYNQ API only. pynq is imported by whoever opens one."""
