"""Frames of the draft protocol as plain types, and the codec between them and the wire.

Both ends import it; neither end's policy is in it. docs/draft-protocol.md is the reference.
"""
