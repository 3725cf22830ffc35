"""From logits to committed tokens: filters, the coupled draw, acceptance."""
