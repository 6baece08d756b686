"""What the class handlers of this directory may ask for: each is made once per worker process, when first needed."""

from horae import provider


class Codebooks:
    """Stands for the client of another service."""

    def names(self) -> list[str]:
        return ["countries", "currencies"]

    def download(self, name: str) -> int:
        return len(name)


@provider
def codebooks() -> Codebooks:
    return Codebooks()
