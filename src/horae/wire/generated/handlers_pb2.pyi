from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListHandlers(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class HandlerList(_message.Message):
    __slots__ = ("items", "left_out", "unknown")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Handler]
    left_out: int
    unknown: bool
    def __init__(self, items: _Optional[_Iterable[_Union[Handler, _Mapping]]] = ..., left_out: _Optional[int] = ..., unknown: _Optional[bool] = ...) -> None: ...

class Handler(_message.Message):
    __slots__ = ("name", "file", "kind", "version", "loaded_at", "error")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOADED_AT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    file: str
    kind: str
    version: str
    loaded_at: int
    error: str
    def __init__(self, name: _Optional[str] = ..., file: _Optional[str] = ..., kind: _Optional[str] = ..., version: _Optional[str] = ..., loaded_at: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...
