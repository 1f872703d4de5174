from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: str
    def __init__(self, version: _Optional[str] = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProbeResponse(_message.Message):
    __slots__ = ("devices", "notes")
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("id", "kind", "type", "uuid", "parent", "pci", "cores", "quota_cores", "cores_available", "memory_bytes", "memory_free_bytes", "compute_capability", "nvlink_peers", "sm_clock_mhz", "sm_clock_max_mhz", "memory_clock_max_mhz", "throttle", "power_watts", "power_limit_watts", "temperature_celsius", "ecc_errors", "xid_errors")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PCI_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    QUOTA_CORES_FIELD_NUMBER: _ClassVar[int]
    CORES_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    NVLINK_PEERS_FIELD_NUMBER: _ClassVar[int]
    SM_CLOCK_MHZ_FIELD_NUMBER: _ClassVar[int]
    SM_CLOCK_MAX_MHZ_FIELD_NUMBER: _ClassVar[int]
    MEMORY_CLOCK_MAX_MHZ_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    POWER_WATTS_FIELD_NUMBER: _ClassVar[int]
    POWER_LIMIT_WATTS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_CELSIUS_FIELD_NUMBER: _ClassVar[int]
    ECC_ERRORS_FIELD_NUMBER: _ClassVar[int]
    XID_ERRORS_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    type: str
    uuid: str
    parent: str
    pci: str
    cores: int
    quota_cores: float
    cores_available: float
    memory_bytes: int
    memory_free_bytes: int
    compute_capability: str
    nvlink_peers: _containers.RepeatedScalarFieldContainer[str]
    sm_clock_mhz: float
    sm_clock_max_mhz: float
    memory_clock_max_mhz: float
    throttle: _containers.RepeatedScalarFieldContainer[str]
    power_watts: float
    power_limit_watts: float
    temperature_celsius: float
    ecc_errors: int
    xid_errors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., type: _Optional[str] = ..., uuid: _Optional[str] = ..., parent: _Optional[str] = ..., pci: _Optional[str] = ..., cores: _Optional[int] = ..., quota_cores: _Optional[float] = ..., cores_available: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., memory_free_bytes: _Optional[int] = ..., compute_capability: _Optional[str] = ..., nvlink_peers: _Optional[_Iterable[str]] = ..., sm_clock_mhz: _Optional[float] = ..., sm_clock_max_mhz: _Optional[float] = ..., memory_clock_max_mhz: _Optional[float] = ..., throttle: _Optional[_Iterable[str]] = ..., power_watts: _Optional[float] = ..., power_limit_watts: _Optional[float] = ..., temperature_celsius: _Optional[float] = ..., ecc_errors: _Optional[int] = ..., xid_errors: _Optional[_Iterable[int]] = ...) -> None: ...
