from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitJobRequest(_message.Message):
    __slots__ = ("user_id", "schedule", "code_location", "priority", "retry_times")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    CODE_LOCATION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RETRY_TIMES_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    schedule: str
    code_location: str
    priority: int
    retry_times: int
    def __init__(self, user_id: _Optional[str] = ..., schedule: _Optional[str] = ..., code_location: _Optional[str] = ..., priority: _Optional[int] = ..., retry_times: _Optional[int] = ...) -> None: ...

class SubmitJobReply(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class RetrieveAllJobsRequest(_message.Message):
    __slots__ = ("user_id",)
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    def __init__(self, user_id: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

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
    __slots__ = ("job_id", "limit")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    limit: int
    def __init__(self, job_id: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class Execution(_message.Message):
    __slots__ = ("execution_id", "job_id", "status", "worker_id", "retry_count", "scheduled_for", "started_at", "finished_at", "created_at")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FOR_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    execution_id: int
    job_id: int
    status: str
    worker_id: str
    retry_count: int
    scheduled_for: int
    started_at: int
    finished_at: int
    created_at: int
    def __init__(self, execution_id: _Optional[int] = ..., job_id: _Optional[int] = ..., status: _Optional[str] = ..., worker_id: _Optional[str] = ..., retry_count: _Optional[int] = ..., scheduled_for: _Optional[int] = ..., started_at: _Optional[int] = ..., finished_at: _Optional[int] = ..., created_at: _Optional[int] = ...) -> None: ...

class ExecHistory(_message.Message):
    __slots__ = ("executions",)
    EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    executions: _containers.RepeatedCompositeFieldContainer[Execution]
    def __init__(self, executions: _Optional[_Iterable[_Union[Execution, _Mapping]]] = ...) -> None: ...

class GetJobsInNext5MinsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DispatchRequest(_message.Message):
    __slots__ = ("job_id", "execution_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    execution_id: int
    def __init__(self, job_id: _Optional[int] = ..., execution_id: _Optional[int] = ...) -> None: ...

class DispatchReply(_message.Message):
    __slots__ = ("execution_id",)
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    execution_id: int
    def __init__(self, execution_id: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("worker_id", "load", "capacity")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    load: int
    capacity: int
    def __init__(self, worker_id: _Optional[str] = ..., load: _Optional[int] = ..., capacity: _Optional[int] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("status", "worker_id", "cancel", "load", "capacity")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    status: str
    worker_id: str
    cancel: _containers.RepeatedScalarFieldContainer[int]
    load: int
    capacity: int
    def __init__(self, status: _Optional[str] = ..., worker_id: _Optional[str] = ..., cancel: _Optional[_Iterable[int]] = ..., load: _Optional[int] = ..., capacity: _Optional[int] = ...) -> None: ...

class StatusUpdateRequest(_message.Message):
    __slots__ = ("execution_id", "status", "worker_id", "message", "progress")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    execution_id: int
    status: str
    worker_id: str
    message: str
    progress: float
    def __init__(self, execution_id: _Optional[int] = ..., status: _Optional[str] = ..., worker_id: _Optional[str] = ..., message: _Optional[str] = ..., progress: _Optional[float] = ...) -> None: ...

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
