"""Recordings: how they are made (`live`, `calls`, `modules`, `script`) and how they are read (`kineto`)."""
