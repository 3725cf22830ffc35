"""Build scripts for real cards. Nothing here has run under Vivado or Vitis yet."""
