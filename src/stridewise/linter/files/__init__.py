"""Which files are looked at, and what their projects ask of them."""
