"""IPython and Jupyter: `%load_ext stridewise`, and tensors that show their layout."""

from stridewise.integrations.notebook.display import hide_layout, show_layout
from stridewise.integrations.notebook.extension import load_ipython_extension, unload_ipython_extension

__all__ = ["hide_layout", "load_ipython_extension", "show_layout", "unload_ipython_extension"]
