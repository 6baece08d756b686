"""Why: from facts to sentences. Pure."""
