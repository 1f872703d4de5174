from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BalanceRequest(_message.Message):
    __slots__ = ("open", "report")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    open: Open
    report: StepReport
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., report: _Optional[_Union[StepReport, _Mapping]] = ...) -> None: ...

class BalanceResponse(_message.Message):
    __slots__ = ("opened", "allocation")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    allocation: Allocation
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., allocation: _Optional[_Union[Allocation, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("job", "global_batch", "quantum", "workers", "rank", "policy", "workload", "batch_sizes")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_BATCH_FIELD_NUMBER: _ClassVar[int]
    QUANTUM_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZES_FIELD_NUMBER: _ClassVar[int]
    job: str
    global_batch: int
    quantum: int
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    rank: int
    policy: str
    workload: str
    batch_sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job: _Optional[str] = ..., global_batch: _Optional[int] = ..., quantum: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., rank: _Optional[int] = ..., policy: _Optional[str] = ..., workload: _Optional[str] = ..., batch_sizes: _Optional[_Iterable[int]] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("node", "device_type", "device_memory_bytes", "min_batch_size", "max_batch_size")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MIN_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    node: str
    device_type: str
    device_memory_bytes: int
    min_batch_size: int
    max_batch_size: int
    def __init__(self, node: _Optional[str] = ..., device_type: _Optional[str] = ..., device_memory_bytes: _Optional[int] = ..., min_batch_size: _Optional[int] = ..., max_batch_size: _Optional[int] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("core_version", "policy")
    CORE_VERSION_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    core_version: str
    policy: str
    def __init__(self, core_version: _Optional[str] = ..., policy: _Optional[str] = ...) -> None: ...

class StepReport(_message.Message):
    __slots__ = ("step", "next_free_step", "workers")
    STEP_FIELD_NUMBER: _ClassVar[int]
    NEXT_FREE_STEP_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    step: int
    next_free_step: int
    workers: _containers.RepeatedCompositeFieldContainer[WorkerReport]
    def __init__(self, step: _Optional[int] = ..., next_free_step: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[WorkerReport, _Mapping]]] = ...) -> None: ...

class WorkerReport(_message.Message):
    __slots__ = ("rank", "compute_seconds", "samples", "cpu_available", "memory_available_bytes", "device_memory_used_bytes", "sm_clock_mhz", "throttle_reasons", "sm_clock_max_mhz")
    RANK_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    CPU_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_AVAILABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SM_CLOCK_MHZ_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_REASONS_FIELD_NUMBER: _ClassVar[int]
    SM_CLOCK_MAX_MHZ_FIELD_NUMBER: _ClassVar[int]
    rank: int
    compute_seconds: float
    samples: float
    cpu_available: float
    memory_available_bytes: int
    device_memory_used_bytes: int
    sm_clock_mhz: float
    throttle_reasons: _containers.RepeatedScalarFieldContainer[str]
    sm_clock_max_mhz: float
    def __init__(self, rank: _Optional[int] = ..., compute_seconds: _Optional[float] = ..., samples: _Optional[float] = ..., cpu_available: _Optional[float] = ..., memory_available_bytes: _Optional[int] = ..., device_memory_used_bytes: _Optional[int] = ..., sm_clock_mhz: _Optional[float] = ..., throttle_reasons: _Optional[_Iterable[str]] = ..., sm_clock_max_mhz: _Optional[float] = ...) -> None: ...

class Allocation(_message.Message):
    __slots__ = ("version", "from_step", "batch_sizes", "step_seconds", "reason", "answers_step")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZES_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_STEP_FIELD_NUMBER: _ClassVar[int]
    version: int
    from_step: int
    batch_sizes: _containers.RepeatedScalarFieldContainer[int]
    step_seconds: float
    reason: str
    answers_step: int
    def __init__(self, version: _Optional[int] = ..., from_step: _Optional[int] = ..., batch_sizes: _Optional[_Iterable[int]] = ..., step_seconds: _Optional[float] = ..., reason: _Optional[str] = ..., answers_step: _Optional[int] = ...) -> None: ...
