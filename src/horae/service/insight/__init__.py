"""What can be seen, and said, of what was, is and will be. Reads only."""
