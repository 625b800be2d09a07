"""Whether an operator honours the layouts of its operands: run over many, in a process of its own, and compared."""
