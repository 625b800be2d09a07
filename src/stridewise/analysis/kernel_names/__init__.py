"""What a device kernel's name tells: whether it only changes layout, and which library ran what."""

from stridewise.analysis.kernel_names.implementation import Implementation, implementation
from stridewise.analysis.kernel_names.layout_kernels import (
    LAYOUT_KERNELS,
    LayoutPattern,
    layout_kernel,
    project_pattern,
)

__all__ = ["LAYOUT_KERNELS", "Implementation", "LayoutPattern", "implementation", "layout_kernel", "project_pattern"]
