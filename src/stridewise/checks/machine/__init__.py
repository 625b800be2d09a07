"""What works on this machine: each thing is really tried, in a process of its own."""
