"""Contracts: what layout a function asks of its tensors, held when it is called."""
