"""A server full of believable jobs, with a week of history: to look at the pages with something in them."""
