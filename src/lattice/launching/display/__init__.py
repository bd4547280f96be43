"""What a user sees of a launch besides its logs: how each host stands, live in a terminal, in plain lines elsewhere."""
