from google.protobuf import wrappers_pb2 as _wrappers_pb2
from horae.wire.generated import cis_types_pb2 as _cis_types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetJobsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetJobsResponse(_message.Message):
    __slots__ = ("Jobs",)
    class Job(_message.Message):
        __slots__ = ("JobId", "JobName", "JobType", "Description", "IsDisabled")
        JOBID_FIELD_NUMBER: _ClassVar[int]
        JOBNAME_FIELD_NUMBER: _ClassVar[int]
        JOBTYPE_FIELD_NUMBER: _ClassVar[int]
        DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
        ISDISABLED_FIELD_NUMBER: _ClassVar[int]
        JobId: str
        JobName: str
        JobType: str
        Description: _wrappers_pb2.StringValue
        IsDisabled: bool
        def __init__(self, JobId: _Optional[str] = ..., JobName: _Optional[str] = ..., JobType: _Optional[str] = ..., Description: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., IsDisabled: _Optional[bool] = ...) -> None: ...
    JOBS_FIELD_NUMBER: _ClassVar[int]
    Jobs: _containers.RepeatedCompositeFieldContainer[GetJobsResponse.Job]
    def __init__(self, Jobs: _Optional[_Iterable[_Union[GetJobsResponse.Job, _Mapping]]] = ...) -> None: ...

class GetTriggersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTriggersResponse(_message.Message):
    __slots__ = ("Triggers",)
    class Trigger(_message.Message):
        __slots__ = ("TriggerId", "JobId", "JobType", "JobName", "TriggerName", "CronExpression", "CronExpressionText", "IsDisabled")
        TRIGGERID_FIELD_NUMBER: _ClassVar[int]
        JOBID_FIELD_NUMBER: _ClassVar[int]
        JOBTYPE_FIELD_NUMBER: _ClassVar[int]
        JOBNAME_FIELD_NUMBER: _ClassVar[int]
        TRIGGERNAME_FIELD_NUMBER: _ClassVar[int]
        CRONEXPRESSION_FIELD_NUMBER: _ClassVar[int]
        CRONEXPRESSIONTEXT_FIELD_NUMBER: _ClassVar[int]
        ISDISABLED_FIELD_NUMBER: _ClassVar[int]
        TriggerId: str
        JobId: str
        JobType: str
        JobName: str
        TriggerName: str
        CronExpression: str
        CronExpressionText: str
        IsDisabled: bool
        def __init__(self, TriggerId: _Optional[str] = ..., JobId: _Optional[str] = ..., JobType: _Optional[str] = ..., JobName: _Optional[str] = ..., TriggerName: _Optional[str] = ..., CronExpression: _Optional[str] = ..., CronExpressionText: _Optional[str] = ..., IsDisabled: _Optional[bool] = ...) -> None: ...
    TRIGGERS_FIELD_NUMBER: _ClassVar[int]
    Triggers: _containers.RepeatedCompositeFieldContainer[GetTriggersResponse.Trigger]
    def __init__(self, Triggers: _Optional[_Iterable[_Union[GetTriggersResponse.Trigger, _Mapping]]] = ...) -> None: ...

class GetJobStatusesRequest(_message.Message):
    __slots__ = ("PageSize", "Page", "TraceId", "ScheduleJobStatusId")
    PAGESIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    TRACEID_FIELD_NUMBER: _ClassVar[int]
    SCHEDULEJOBSTATUSID_FIELD_NUMBER: _ClassVar[int]
    PageSize: int
    Page: int
    TraceId: _wrappers_pb2.StringValue
    ScheduleJobStatusId: _wrappers_pb2.StringValue
    def __init__(self, PageSize: _Optional[int] = ..., Page: _Optional[int] = ..., TraceId: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., ScheduleJobStatusId: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ...) -> None: ...

class GetJobStatusesResponse(_message.Message):
    __slots__ = ("Items",)
    class JobStatus(_message.Message):
        __slots__ = ("JobId", "JobName", "TriggerId", "TriggerName", "Status", "StartedAt", "StatusChangedAt", "TraceId", "ScheduleJobStatusId", "FailedMessage")
        JOBID_FIELD_NUMBER: _ClassVar[int]
        JOBNAME_FIELD_NUMBER: _ClassVar[int]
        TRIGGERID_FIELD_NUMBER: _ClassVar[int]
        TRIGGERNAME_FIELD_NUMBER: _ClassVar[int]
        STATUS_FIELD_NUMBER: _ClassVar[int]
        STARTEDAT_FIELD_NUMBER: _ClassVar[int]
        STATUSCHANGEDAT_FIELD_NUMBER: _ClassVar[int]
        TRACEID_FIELD_NUMBER: _ClassVar[int]
        SCHEDULEJOBSTATUSID_FIELD_NUMBER: _ClassVar[int]
        FAILEDMESSAGE_FIELD_NUMBER: _ClassVar[int]
        JobId: str
        JobName: str
        TriggerId: _wrappers_pb2.StringValue
        TriggerName: _wrappers_pb2.StringValue
        Status: str
        StartedAt: _cis_types_pb2.GrpcDateTime
        StatusChangedAt: _cis_types_pb2.NullableGrpcDateTime
        TraceId: str
        ScheduleJobStatusId: str
        FailedMessage: _wrappers_pb2.StringValue
        def __init__(self, JobId: _Optional[str] = ..., JobName: _Optional[str] = ..., TriggerId: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., TriggerName: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ..., Status: _Optional[str] = ..., StartedAt: _Optional[_Union[_cis_types_pb2.GrpcDateTime, _Mapping]] = ..., StatusChangedAt: _Optional[_Union[_cis_types_pb2.NullableGrpcDateTime, _Mapping]] = ..., TraceId: _Optional[str] = ..., ScheduleJobStatusId: _Optional[str] = ..., FailedMessage: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ...) -> None: ...
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    Items: _containers.RepeatedCompositeFieldContainer[GetJobStatusesResponse.JobStatus]
    def __init__(self, Items: _Optional[_Iterable[_Union[GetJobStatusesResponse.JobStatus, _Mapping]]] = ...) -> None: ...

class GetInstanceStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetInstanceStatusResponse(_message.Message):
    __slots__ = ("IsActiveInstance", "ActiveInstanceName")
    ISACTIVEINSTANCE_FIELD_NUMBER: _ClassVar[int]
    ACTIVEINSTANCENAME_FIELD_NUMBER: _ClassVar[int]
    IsActiveInstance: bool
    ActiveInstanceName: str
    def __init__(self, IsActiveInstance: _Optional[bool] = ..., ActiveInstanceName: _Optional[str] = ...) -> None: ...

class ExecuteJobRequest(_message.Message):
    __slots__ = ("JobId", "JobData")
    JOBID_FIELD_NUMBER: _ClassVar[int]
    JOBDATA_FIELD_NUMBER: _ClassVar[int]
    JobId: str
    JobData: _wrappers_pb2.StringValue
    def __init__(self, JobId: _Optional[str] = ..., JobData: _Optional[_Union[_wrappers_pb2.StringValue, _Mapping]] = ...) -> None: ...

class ExecuteJobResponse(_message.Message):
    __slots__ = ("ScheduleJobStatusId",)
    SCHEDULEJOBSTATUSID_FIELD_NUMBER: _ClassVar[int]
    ScheduleJobStatusId: str
    def __init__(self, ScheduleJobStatusId: _Optional[str] = ...) -> None: ...

class UpdateSchedulerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
