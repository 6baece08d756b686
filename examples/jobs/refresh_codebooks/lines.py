"""The sentences this job writes to its output."""


def started(name: str) -> str:
    return f"refreshing codebook {name}"


def finished(name: str) -> str:
    return f"codebook {name} is up to date"
