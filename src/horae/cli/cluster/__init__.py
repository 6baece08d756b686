"""What runs are made with and wait for: nodes, queues, limits, secrets, tokens."""
