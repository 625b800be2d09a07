"""Tensors that ranks exchange: guards around collectives and around DistributedDataParallel."""
