"""Linear layers with weights packed once for oneDNN: about half the time of a plain step on CPU.

torch's own ``F.linear`` in float32 hands the weights to MKL in their ordinary layout, which MKL
packs anew in every call; with 16 rows that costs as much as the product. The packed product is
what torch.compile uses after freezing, and like any other it must pass the start-up self-test.
"""

import torch

_PACK_ROWS = 16  # the layout is chosen for the smallest, commonest step


class PackedLinear(torch.nn.Module):
    """``torch.nn.Linear`` for inference; the ordinary weight is not kept."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        with torch.no_grad():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(
                linear.weight.detach(), _PACK_ROWS
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x``: float32 [..., in_features]; returns [..., out_features]."""
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._packed, self.bias, "none", [], ""
        )
        return out


AnyLinear = torch.nn.Linear | PackedLinear


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this build of torch has the packed product for ``dtype`` on ``device``."""
    has_ops = hasattr(torch.ops.mkldnn, "_linear_pointwise") and hasattr(
        torch.ops.mkldnn, "_reorder_linear_weight"
    )
    return device.type == "cpu" and dtype == torch.float32 and has_ops


def pack_linear_layers(module: torch.nn.Module) -> None:
    """Replace every linear layer inside ``module``, one at a time to bound peak memory."""
    for name, child in list(module.named_children()):
        if isinstance(child, torch.nn.Linear):
            setattr(module, name, PackedLinear(child))
        else:
            pack_linear_layers(child)
