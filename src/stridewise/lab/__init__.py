"""The claims of an article about memory layout as experiments that anyone can run; see `docs/explanation/claims.md`."""
