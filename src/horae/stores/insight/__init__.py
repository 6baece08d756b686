"""What the store knows of how long runs take, and of what is to come."""
