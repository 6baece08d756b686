"""What crosses a process border: the messages of horae.v1, and the limits both ends keep.

`generated/` is made from horae/v1/*.proto by `make wire`; a test compares. Nothing here is imported by a process
that speaks to nobody: loading gRPC and protobuf takes a tenth of a second.
"""

from __future__ import annotations

PROTOCOL = 2  # the newest this code speaks: agents say under which fences they hold what
OLDEST_PROTOCOL = 1  # and the oldest: always one less
CONNECT = "/horae.v1.AgentLink/Connect"
READ_OUTPUT = "/horae.v1.Outputs/Read"
LIST_PIECES = "/horae.v1.Outputs/List"
LIST_HANDLERS = "/horae.v1.Handlers/List"

MAX_MESSAGE = 4 << 20  # bytes; larger ones end the stream
FRAME = 1 << 20  # bytes from which a list goes on in the next frame
WINDOW = 512 << 10  # bytes of output under way: all that a beat may have to wait for
MAX_CHUNK = 256 << 10  # bytes
MAX_FILES = 1000  # beside one log
MAX_REQUESTS = 64  # of one agent, unanswered
SECRET_HEADER = "horae-secret"  # noqa: S105  # the name of a header
