from google.protobuf import empty_pb2 as _empty_pb2
from horae.wire.generated import administration_pb2 as _administration_pb2
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor
