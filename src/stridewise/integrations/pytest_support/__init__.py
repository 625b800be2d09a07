"""What the pytest plugin does once a session records something."""
