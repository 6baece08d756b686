from horae.wire.generated import handlers_pb2 as _handlers_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AgentFrame(_message.Message):
    __slots__ = ("id", "hello", "join", "beat", "claim", "finish", "load_previous", "disown", "goodbye", "chunks", "note_phases", "note_progress", "note_ailment", "handlers", "renew")
    ID_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    LOAD_PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    DISOWN_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    NOTE_PHASES_FIELD_NUMBER: _ClassVar[int]
    NOTE_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    NOTE_AILMENT_FIELD_NUMBER: _ClassVar[int]
    HANDLERS_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    id: int
    hello: Hello
    join: Join
    beat: Beat
    claim: Claim
    finish: Finish
    load_previous: LoadPrevious
    disown: Disown
    goodbye: Goodbye
    chunks: Chunks
    note_phases: NotePhases
    note_progress: NoteProgress
    note_ailment: NoteAilment
    handlers: _handlers_pb2.HandlerList
    renew: Renew
    def __init__(self, id: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., join: _Optional[_Union[Join, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., claim: _Optional[_Union[Claim, _Mapping]] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ..., load_previous: _Optional[_Union[LoadPrevious, _Mapping]] = ..., disown: _Optional[_Union[Disown, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., chunks: _Optional[_Union[Chunks, _Mapping]] = ..., note_phases: _Optional[_Union[NotePhases, _Mapping]] = ..., note_progress: _Optional[_Union[NoteProgress, _Mapping]] = ..., note_ailment: _Optional[_Union[NoteAilment, _Mapping]] = ..., handlers: _Optional[_Union[_handlers_pb2.HandlerList, _Mapping]] = ..., renew: _Optional[_Union[Renew, _Mapping]] = ...) -> None: ...

class ServerFrame(_message.Message):
    __slots__ = ("id", "more", "welcome", "done", "beat", "assignments", "accepted", "previous_results", "failure", "stored", "hint", "leaving", "strangers", "list_handlers")
    ID_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_RESULTS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    STRANGERS_FIELD_NUMBER: _ClassVar[int]
    LIST_HANDLERS_FIELD_NUMBER: _ClassVar[int]
    id: int
    more: bool
    welcome: Welcome
    done: Done
    beat: BeatAnswer
    assignments: Assignments
    accepted: Accepted
    previous_results: PreviousResults
    failure: Failure
    stored: Stored
    hint: Hint
    leaving: Leaving
    strangers: Strangers
    list_handlers: _handlers_pb2.ListHandlers
    def __init__(self, id: _Optional[int] = ..., more: _Optional[bool] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., beat: _Optional[_Union[BeatAnswer, _Mapping]] = ..., assignments: _Optional[_Union[Assignments, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., previous_results: _Optional[_Union[PreviousResults, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., stored: _Optional[_Union[Stored, _Mapping]] = ..., hint: _Optional[_Union[Hint, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ..., strangers: _Optional[_Union[Strangers, _Mapping]] = ..., list_handlers: _Optional[_Union[_handlers_pb2.ListHandlers, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("lowest_protocol", "highest_protocol", "node", "identity", "session", "kinds", "labels", "slots", "version", "started_at", "capacity", "resources", "handlers", "credential")
    class CapacityEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class ResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    LOWEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    HANDLERS_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    lowest_protocol: int
    highest_protocol: int
    node: str
    identity: str
    session: str
    kinds: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    version: str
    started_at: int
    capacity: _containers.ScalarMap[str, int]
    resources: _containers.ScalarMap[str, int]
    handlers: bool
    credential: str
    def __init__(self, lowest_protocol: _Optional[int] = ..., highest_protocol: _Optional[int] = ..., node: _Optional[str] = ..., identity: _Optional[str] = ..., session: _Optional[str] = ..., kinds: _Optional[_Iterable[str]] = ..., labels: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., version: _Optional[str] = ..., started_at: _Optional[int] = ..., capacity: _Optional[_Mapping[str, int]] = ..., resources: _Optional[_Mapping[str, int]] = ..., handlers: _Optional[bool] = ..., credential: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "node", "version", "lease_seconds", "heartbeat_seconds", "window", "files", "shared", "ailments", "installation", "trace_ratio", "credential_id", "renewal_seconds")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    AILMENTS_FIELD_NUMBER: _ClassVar[int]
    INSTALLATION_FIELD_NUMBER: _ClassVar[int]
    TRACE_RATIO_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_ID_FIELD_NUMBER: _ClassVar[int]
    RENEWAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    node: str
    version: str
    lease_seconds: float
    heartbeat_seconds: float
    window: int
    files: bool
    shared: bool
    ailments: bool
    installation: str
    trace_ratio: float
    credential_id: int
    renewal_seconds: float
    def __init__(self, protocol: _Optional[int] = ..., node: _Optional[str] = ..., version: _Optional[str] = ..., lease_seconds: _Optional[float] = ..., heartbeat_seconds: _Optional[float] = ..., window: _Optional[int] = ..., files: _Optional[bool] = ..., shared: _Optional[bool] = ..., ailments: _Optional[bool] = ..., installation: _Optional[str] = ..., trace_ratio: _Optional[float] = ..., credential_id: _Optional[int] = ..., renewal_seconds: _Optional[float] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("held", "fences")
    HELD_FIELD_NUMBER: _ClassVar[int]
    FENCES_FIELD_NUMBER: _ClassVar[int]
    held: _containers.RepeatedScalarFieldContainer[int]
    fences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, held: _Optional[_Iterable[int]] = ..., fences: _Optional[_Iterable[int]] = ...) -> None: ...

class Renew(_message.Message):
    __slots__ = ("hash",)
    HASH_FIELD_NUMBER: _ClassVar[int]
    hash: str
    def __init__(self, hash: _Optional[str] = ...) -> None: ...

class NoteAilment(_message.Message):
    __slots__ = ("ailment",)
    AILMENT_FIELD_NUMBER: _ClassVar[int]
    ailment: str
    def __init__(self, ailment: _Optional[str] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("busy", "held", "free")
    class FreeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BUSY_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    busy: int
    held: Holding
    free: _containers.ScalarMap[str, int]
    def __init__(self, busy: _Optional[int] = ..., held: _Optional[_Union[Holding, _Mapping]] = ..., free: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Holding(_message.Message):
    __slots__ = ("count", "digest")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    count: int
    digest: int
    def __init__(self, count: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...

class BeatAnswer(_message.Message):
    __slots__ = ("retired", "cancel", "wanted", "in_doubt")
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    IN_DOUBT_FIELD_NUMBER: _ClassVar[int]
    retired: bool
    cancel: _containers.RepeatedCompositeFieldContainer[Held]
    wanted: str
    in_doubt: bool
    def __init__(self, retired: _Optional[bool] = ..., cancel: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., wanted: _Optional[str] = ..., in_doubt: _Optional[bool] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("run_id", "fence")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    run_id: int
    fence: int
    def __init__(self, run_id: _Optional[int] = ..., fence: _Optional[int] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("kind", "limit", "room", "free")
    class RoomEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class FreeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    limit: int
    room: _containers.ScalarMap[str, int]
    free: _containers.ScalarMap[str, int]
    def __init__(self, kind: _Optional[str] = ..., limit: _Optional[int] = ..., room: _Optional[_Mapping[str, int]] = ..., free: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Assignments(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Assignment]
    def __init__(self, items: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("run_id", "fence", "attempt", "job_id", "trigger_id", "due_at", "kind", "name", "spec", "policy", "data", "secrets", "source", "cursor", "owner", "answers", "callbacks", "root")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    CALLBACKS_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    run_id: int
    fence: int
    attempt: int
    job_id: int
    trigger_id: int
    due_at: int
    kind: str
    name: str
    spec: str
    policy: str
    data: str
    secrets: str
    source: str
    cursor: str
    owner: str
    answers: str
    callbacks: str
    root: int
    def __init__(self, run_id: _Optional[int] = ..., fence: _Optional[int] = ..., attempt: _Optional[int] = ..., job_id: _Optional[int] = ..., trigger_id: _Optional[int] = ..., due_at: _Optional[int] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., spec: _Optional[str] = ..., policy: _Optional[str] = ..., data: _Optional[str] = ..., secrets: _Optional[str] = ..., source: _Optional[str] = ..., cursor: _Optional[str] = ..., owner: _Optional[str] = ..., answers: _Optional[str] = ..., callbacks: _Optional[str] = ..., root: _Optional[int] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Result]
    def __init__(self, results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("run_id", "fence", "state", "reason", "started_at", "finished_at", "exit_code", "message", "result", "output", "retry_after", "final", "cursor", "wait")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    run_id: int
    fence: int
    state: int
    reason: str
    started_at: int
    finished_at: int
    exit_code: int
    message: str
    result: str
    output: str
    retry_after: float
    final: bool
    cursor: str
    wait: Wait
    def __init__(self, run_id: _Optional[int] = ..., fence: _Optional[int] = ..., state: _Optional[int] = ..., reason: _Optional[str] = ..., started_at: _Optional[int] = ..., finished_at: _Optional[int] = ..., exit_code: _Optional[int] = ..., message: _Optional[str] = ..., result: _Optional[str] = ..., output: _Optional[str] = ..., retry_after: _Optional[float] = ..., final: _Optional[bool] = ..., cursor: _Optional[str] = ..., wait: _Optional[_Union[Wait, _Mapping]] = ...) -> None: ...

class Wait(_message.Message):
    __slots__ = ("reason", "awaits", "seconds", "until", "calls")
    REASON_FIELD_NUMBER: _ClassVar[int]
    AWAITS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    awaits: str
    seconds: float
    until: int
    calls: _containers.RepeatedCompositeFieldContainer[Call]
    def __init__(self, reason: _Optional[str] = ..., awaits: _Optional[str] = ..., seconds: _Optional[float] = ..., until: _Optional[int] = ..., calls: _Optional[_Iterable[_Union[Call, _Mapping]]] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("task", "job", "data")
    TASK_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    task: str
    job: str
    data: str
    def __init__(self, task: _Optional[str] = ..., job: _Optional[str] = ..., data: _Optional[str] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("run_ids",)
    RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    run_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, run_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class NotePhases(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[PhaseOf]
    def __init__(self, items: _Optional[_Iterable[_Union[PhaseOf, _Mapping]]] = ...) -> None: ...

class PhaseOf(_message.Message):
    __slots__ = ("run_id", "fence", "phase")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    run_id: int
    fence: int
    phase: int
    def __init__(self, run_id: _Optional[int] = ..., fence: _Optional[int] = ..., phase: _Optional[int] = ...) -> None: ...

class NoteProgress(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ProgressOf]
    def __init__(self, items: _Optional[_Iterable[_Union[ProgressOf, _Mapping]]] = ...) -> None: ...

class ProgressOf(_message.Message):
    __slots__ = ("run_id", "fence", "progress")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    run_id: int
    fence: int
    progress: str
    def __init__(self, run_id: _Optional[int] = ..., fence: _Optional[int] = ..., progress: _Optional[str] = ...) -> None: ...

class LoadPrevious(_message.Message):
    __slots__ = ("job_ids",)
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class PreviousResults(_message.Message):
    __slots__ = ("results",)
    class ResultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.ScalarMap[int, str]
    def __init__(self, results: _Optional[_Mapping[int, str]] = ...) -> None: ...

class Disown(_message.Message):
    __slots__ = ("held", "fences")
    HELD_FIELD_NUMBER: _ClassVar[int]
    FENCES_FIELD_NUMBER: _ClassVar[int]
    held: _containers.RepeatedScalarFieldContainer[int]
    fences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, held: _Optional[_Iterable[int]] = ..., fences: _Optional[_Iterable[int]] = ...) -> None: ...

class Strangers(_message.Message):
    __slots__ = ("run_ids", "fences")
    RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    FENCES_FIELD_NUMBER: _ClassVar[int]
    run_ids: _containers.RepeatedScalarFieldContainer[int]
    fences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, run_ids: _Optional[_Iterable[int]] = ..., fences: _Optional[_Iterable[int]] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message", "hint")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    hint: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ...) -> None: ...

class Chunks(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Chunk]
    def __init__(self, items: _Optional[_Iterable[_Union[Chunk, _Mapping]]] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("run_id", "attempt", "fence", "number", "data", "file")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    run_id: int
    attempt: int
    fence: int
    number: int
    data: bytes
    file: int
    def __init__(self, run_id: _Optional[int] = ..., attempt: _Optional[int] = ..., fence: _Optional[int] = ..., number: _Optional[int] = ..., data: _Optional[bytes] = ..., file: _Optional[int] = ...) -> None: ...

class Stored(_message.Message):
    __slots__ = ("items", "refused")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ChunkName]
    refused: _containers.RepeatedCompositeFieldContainer[ChunkName]
    def __init__(self, items: _Optional[_Iterable[_Union[ChunkName, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[ChunkName, _Mapping]]] = ...) -> None: ...

class ChunkName(_message.Message):
    __slots__ = ("run_id", "fence", "number", "file")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    run_id: int
    fence: int
    number: int
    file: int
    def __init__(self, run_id: _Optional[int] = ..., fence: _Optional[int] = ..., number: _Optional[int] = ..., file: _Optional[int] = ...) -> None: ...

class Hint(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class Leaving(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
