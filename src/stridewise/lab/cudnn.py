"""What torch uses cuDNN for, with or without a GPU."""


def operators() -> list[str]:
    """The names of torch's operators for cuDNN, which builds without it list too; none where torch does not tell.

    Private: tried on 2.13.
    """
    import torch

    names = getattr(torch._C, "_dispatch_get_all_op_names", None)
    return [] if names is None else sorted(name for name in names() if name.startswith("aten::") and "cudnn" in name)
