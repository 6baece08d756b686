"""Attempts: given to agents, taken back with a result, decided upon.

attempts     what an agent calls, wherever it lives
books        what becomes of runs whose attempts are over
local_link   how an agent in the same process calls it
"""

from horae.service.execution.attempts import ANY_FENCE, Execution, ExecutionStore
from horae.service.execution.books import REFUSED_WAIT
from horae.service.execution.local_link import LocalLink

__all__ = ["ANY_FENCE", "REFUSED_WAIT", "Execution", "ExecutionStore", "LocalLink"]
