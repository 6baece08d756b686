"""What the records say: why something ran or did not, and what is to come. Pure."""
