"""What calls cost in each layout, and where converting makes a whole step cheapest."""
