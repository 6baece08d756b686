"""A handler that is a class: the folder and the class have the same name, and the constructor says what it needs.

It is declared in examples/declarations/0001_codebooks.yaml.
"""

import json
import logging

from horae import Cancellation

from ..providers import Codebooks


class DownloadRdmCodebooksHandler:
    def __init__(self, codebooks: Codebooks, logger: logging.Logger) -> None:
        self._codebooks = codebooks
        self._logger = logger

    async def execute(self, job_data: str | None, cancellation: Cancellation) -> dict[str, int]:
        """Download the codebooks that the data names, a JSON list; without data, all of them."""
        names = json.loads(job_data) if job_data else self._codebooks.names()
        sizes = {}
        for name in names:
            cancellation.raise_if_cancelled()
            sizes[name] = self._codebooks.download(name)
            self._logger.info("downloaded %s", name)
        return sizes
