"""Executes the draft program fast and exactly; shares no code with the golden model."""
