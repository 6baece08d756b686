"""What servers do themselves with runs that wait for others: workflows, and whatever else acts on the ends of runs."""
