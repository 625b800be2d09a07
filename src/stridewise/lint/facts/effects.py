"""What functions of torch and numpy do to layout, by name. `tests/lint/facts/test_effects.py` runs each and looks."""

from enum import Enum


class Effect(Enum):
    """What a call gives, seen from its first tensor."""

    FRESH = "new memory, contiguous whatever went in"
    LIKE = "new memory, contiguous if all tensors that went in are"
    ANY = "new memory, in an order that depends on more than that"
    PERMUTED = "a view with dimensions in another order"
    EXPANDED = "a view that repeats elements"
    PART = "a view of a part"
    RESHAPED = "a view that is contiguous if the tensor is, and as a rule if only then"
    MAYBE = (
        "the tensor, a view or a copy: which one depends on its layout, dtype or device; contiguous if the tensor is"
    )
    SAME = "the tensor itself, changed in place"
    HOST = "no tensor"


RELAYOUTS = frozenset(
    (
        "t_",
        "transpose_",
        "swapaxes_",
        "swapdims_",
        "squeeze_",
        "unsqueeze_",
        "resize_",
        "resize_as_",
        "set_",
        "as_strided_",
    )
)
"""Methods that change the layout of the tensor itself, and so what is known of every name that it has."""
METHODS: dict[str, Effect] = {}
"""By the name of a method of `torch.Tensor`. Names that end in `_` change in place, and are not listed."""
FUNCTIONS: dict[str, Effect] = {}
"""By full name, such as `torch.nn.functional.pad`."""
ARRAY_METHODS: dict[str, Effect] = {}
"""Of `numpy.ndarray`."""
ARRAY_FUNCTIONS: dict[str, Effect] = {}


def _both(effect: Effect, *names: str) -> None:
    METHODS.update(dict.fromkeys(names, effect))
    FUNCTIONS.update({f"torch.{name}": effect for name in names})


_both(Effect.PERMUTED, "transpose", "permute", "t", "swapaxes", "swapdims", "movedim", "moveaxis", "adjoint")
METHODS["expand"] = METHODS["expand_as"] = Effect.EXPANDED
_both(Effect.EXPANDED, "broadcast_to")
_both(Effect.PART, "narrow", "select", "chunk", "split", "unbind", "diagonal")
_both(Effect.RESHAPED, "unsqueeze", "squeeze", "detach", "unflatten")
METHODS["view"] = METHODS["view_as"] = Effect.RESHAPED
_both(Effect.MAYBE, "reshape", "flatten", "ravel")
METHODS.update(dict.fromkeys(("to", "float", "half", "bfloat16", "double", "cpu", "cuda", "type_as"), Effect.MAYBE))
_both(Effect.LIKE, "clone", "relu", "exp")
_both(Effect.HOST, "numel", "is_floating_point")
METHODS.update(dict.fromkeys(("size", "stride", "dim", "data_ptr", "is_contiguous", "item", "tolist"), Effect.HOST))
FUNCTIONS.update(dict.fromkeys(("torch.zeros", "torch.ones", "torch.empty", "torch.arange"), Effect.FRESH))
