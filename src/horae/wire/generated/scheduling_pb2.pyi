from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitJobRequest(_message.Message):
    __slots__ = ("user_id", "schedule", "code_location", "priority", "retry_times", "resources")
    class ResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    CODE_LOCATION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RETRY_TIMES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    schedule: str
    code_location: str
    priority: int
    retry_times: int
    resources: _containers.ScalarMap[str, float]
    def __init__(self, user_id: _Optional[str] = ..., schedule: _Optional[str] = ..., code_location: _Optional[str] = ..., priority: _Optional[int] = ..., retry_times: _Optional[int] = ..., resources: _Optional[_Mapping[str, float]] = ...) -> None: ...

class SubmitJobReply(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class RetrieveAllJobsRequest(_message.Message):
    __slots__ = ("user_id", "limit", "cursor")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    limit: int
    cursor: str
    def __init__(self, user_id: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("job_id", "user_id", "job_type", "schedule", "code_location", "status", "priority", "retry_count", "created_at", "next_execution")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_TYPE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    CODE_LOCATION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    NEXT_EXECUTION_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    user_id: str
    job_type: str
    schedule: str
    code_location: str
    status: str
    priority: int
    retry_count: int
    created_at: int
    next_execution: int
    def __init__(self, job_id: _Optional[int] = ..., user_id: _Optional[str] = ..., job_type: _Optional[str] = ..., schedule: _Optional[str] = ..., code_location: _Optional[str] = ..., status: _Optional[str] = ..., priority: _Optional[int] = ..., retry_count: _Optional[int] = ..., created_at: _Optional[int] = ..., next_execution: _Optional[int] = ...) -> None: ...

class Jobs(_message.Message):
    __slots__ = ("jobs", "cursor")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    cursor: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class DeleteJobRequest(_message.Message):
    __slots__ = ("user_id", "job_id")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    job_id: int
    def __init__(self, user_id: _Optional[str] = ..., job_id: _Optional[int] = ...) -> None: ...

class DeleteJobReply(_message.Message):
    __slots__ = ("deleted",)
    DELETED_FIELD_NUMBER: _ClassVar[int]
    deleted: bool
    def __init__(self, deleted: _Optional[bool] = ...) -> None: ...

class GetExecHistoryRequest(_message.Message):
    __slots__ = ("job_id", "limit", "cursor")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    limit: int
    cursor: str
    def __init__(self, job_id: _Optional[int] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class Execution(_message.Message):
    __slots__ = ("execution_id", "job_id", "status", "worker_id", "retry_count", "scheduled_for", "started_at", "finished_at", "created_at", "message", "exit_code", "logs_path")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FOR_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    LOGS_PATH_FIELD_NUMBER: _ClassVar[int]
    execution_id: int
    job_id: int
    status: str
    worker_id: str
    retry_count: int
    scheduled_for: int
    started_at: int
    finished_at: int
    created_at: int
    message: str
    exit_code: int
    logs_path: str
    def __init__(self, execution_id: _Optional[int] = ..., job_id: _Optional[int] = ..., status: _Optional[str] = ..., worker_id: _Optional[str] = ..., retry_count: _Optional[int] = ..., scheduled_for: _Optional[int] = ..., started_at: _Optional[int] = ..., finished_at: _Optional[int] = ..., created_at: _Optional[int] = ..., message: _Optional[str] = ..., exit_code: _Optional[int] = ..., logs_path: _Optional[str] = ...) -> None: ...

class ExecHistory(_message.Message):
    __slots__ = ("executions", "cursor")
    EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    executions: _containers.RepeatedCompositeFieldContainer[Execution]
    cursor: str
    def __init__(self, executions: _Optional[_Iterable[_Union[Execution, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class GetJobsInNext5MinsRequest(_message.Message):
    __slots__ = ("limit", "cursor")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    limit: int
    cursor: str
    def __init__(self, limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class GetDueJobsRequest(_message.Message):
    __slots__ = ("limit", "cursor")
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    limit: int
    cursor: str
    def __init__(self, limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class GetBlockedJobsRequest(_message.Message):
    __slots__ = ("user_id", "limit", "cursor")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    limit: int
    cursor: str
    def __init__(self, user_id: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class BlockedJob(_message.Message):
    __slots__ = ("execution_id", "attempt", "job_id", "user_id", "code_location", "priority", "retry_count", "scheduled_for", "reason", "message", "eligible_at")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_LOCATION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_AT_FIELD_NUMBER: _ClassVar[int]
    execution_id: int
    attempt: int
    job_id: int
    user_id: str
    code_location: str
    priority: int
    retry_count: int
    scheduled_for: int
    reason: str
    message: str
    eligible_at: int
    def __init__(self, execution_id: _Optional[int] = ..., attempt: _Optional[int] = ..., job_id: _Optional[int] = ..., user_id: _Optional[str] = ..., code_location: _Optional[str] = ..., priority: _Optional[int] = ..., retry_count: _Optional[int] = ..., scheduled_for: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., eligible_at: _Optional[int] = ...) -> None: ...

class BlockedJobs(_message.Message):
    __slots__ = ("executions", "cursor")
    EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    executions: _containers.RepeatedCompositeFieldContainer[BlockedJob]
    cursor: str
    def __init__(self, executions: _Optional[_Iterable[_Union[BlockedJob, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class TakeDueJobsRequest(_message.Message):
    __slots__ = ("worker_id", "limit")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    limit: int
    def __init__(self, worker_id: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class DueJob(_message.Message):
    __slots__ = ("execution_id", "attempt", "job_id", "user_id", "code_location", "priority", "retry_count", "scheduled_for", "timeout", "lease_seconds")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_LOCATION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FOR_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    execution_id: int
    attempt: int
    job_id: int
    user_id: str
    code_location: str
    priority: int
    retry_count: int
    scheduled_for: int
    timeout: float
    lease_seconds: float
    def __init__(self, execution_id: _Optional[int] = ..., attempt: _Optional[int] = ..., job_id: _Optional[int] = ..., user_id: _Optional[str] = ..., code_location: _Optional[str] = ..., priority: _Optional[int] = ..., retry_count: _Optional[int] = ..., scheduled_for: _Optional[int] = ..., timeout: _Optional[float] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class DueJobs(_message.Message):
    __slots__ = ("executions", "cursor")
    EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    executions: _containers.RepeatedCompositeFieldContainer[DueJob]
    cursor: str
    def __init__(self, executions: _Optional[_Iterable[_Union[DueJob, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class GetLogRequest(_message.Message):
    __slots__ = ("execution_id", "attempt", "offset", "limit")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    execution_id: int
    attempt: int
    offset: int
    limit: int
    def __init__(self, execution_id: _Optional[int] = ..., attempt: _Optional[int] = ..., offset: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class LogPiece(_message.Message):
    __slots__ = ("execution_id", "attempt", "text", "next_offset", "status")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    execution_id: int
    attempt: int
    text: str
    next_offset: int
    status: str
    def __init__(self, execution_id: _Optional[int] = ..., attempt: _Optional[int] = ..., text: _Optional[str] = ..., next_offset: _Optional[int] = ..., status: _Optional[str] = ...) -> None: ...

class WriteLogRequest(_message.Message):
    __slots__ = ("execution_id", "worker_id", "offset", "text", "attempt")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    execution_id: int
    worker_id: str
    offset: int
    text: str
    attempt: int
    def __init__(self, execution_id: _Optional[int] = ..., worker_id: _Optional[str] = ..., offset: _Optional[int] = ..., text: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class WriteLogReply(_message.Message):
    __slots__ = ("next_offset",)
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    def __init__(self, next_offset: _Optional[int] = ...) -> None: ...

class DispatchRequest(_message.Message):
    __slots__ = ("job_id", "execution_id", "worker_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    execution_id: int
    worker_id: str
    def __init__(self, job_id: _Optional[int] = ..., execution_id: _Optional[int] = ..., worker_id: _Optional[str] = ...) -> None: ...

class DispatchReply(_message.Message):
    __slots__ = ("execution_id",)
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    execution_id: int
    def __init__(self, execution_id: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("worker_id", "load", "capacity", "address", "held")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    load: int
    capacity: int
    address: str
    held: Executions
    def __init__(self, worker_id: _Optional[str] = ..., load: _Optional[int] = ..., capacity: _Optional[int] = ..., address: _Optional[str] = ..., held: _Optional[_Union[Executions, _Mapping]] = ...) -> None: ...

class Executions(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("status", "worker_id", "cancel", "load", "capacity", "lost")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    status: str
    worker_id: str
    cancel: _containers.RepeatedScalarFieldContainer[int]
    load: int
    capacity: int
    lost: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, status: _Optional[str] = ..., worker_id: _Optional[str] = ..., cancel: _Optional[_Iterable[int]] = ..., load: _Optional[int] = ..., capacity: _Optional[int] = ..., lost: _Optional[_Iterable[int]] = ...) -> None: ...

class StatusUpdateRequest(_message.Message):
    __slots__ = ("execution_id", "status", "worker_id", "message", "progress", "exit_code", "attempt")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    execution_id: int
    status: str
    worker_id: str
    message: str
    progress: float
    exit_code: int
    attempt: int
    def __init__(self, execution_id: _Optional[int] = ..., status: _Optional[str] = ..., worker_id: _Optional[str] = ..., message: _Optional[str] = ..., progress: _Optional[float] = ..., exit_code: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class StatusUpdateReply(_message.Message):
    __slots__ = ("status", "cancel")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    status: str
    cancel: bool
    def __init__(self, status: _Optional[str] = ..., cancel: _Optional[bool] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("job_id", "execution_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    execution_id: int
    def __init__(self, job_id: _Optional[int] = ..., execution_id: _Optional[int] = ...) -> None: ...

class CancelReply(_message.Message):
    __slots__ = ("cancelled",)
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    cancelled: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cancelled: _Optional[_Iterable[int]] = ...) -> None: ...
