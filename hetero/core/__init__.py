"""Types, ports, errors and the noise law. Imports nothing of ours and nothing heavy."""
