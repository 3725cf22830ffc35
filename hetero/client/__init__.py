"""What a Python caller imports: a client of the inference service that needs no extra."""

from hetero.client.client import Answer, Asked, InferenceClient, Prompt

__all__ = ["Answer", "Asked", "InferenceClient", "Prompt"]
