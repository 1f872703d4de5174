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

class SizeRequest(_message.Message):
    __slots__ = ("open", "step")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    open: SizeOpen
    step: SizeStep
    def __init__(self, open: _Optional[_Union[SizeOpen, _Mapping]] = ..., step: _Optional[_Union[SizeStep, _Mapping]] = ...) -> None: ...

class SizeOpen(_message.Message):
    __slots__ = ("global_batch", "quantum", "workers", "batch_sizes")
    GLOBAL_BATCH_FIELD_NUMBER: _ClassVar[int]
    QUANTUM_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZES_FIELD_NUMBER: _ClassVar[int]
    global_batch: int
    quantum: int
    workers: _containers.RepeatedCompositeFieldContainer[SizeWorker]
    batch_sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, global_batch: _Optional[int] = ..., quantum: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[SizeWorker, _Mapping]]] = ..., batch_sizes: _Optional[_Iterable[int]] = ...) -> None: ...

class SizeWorker(_message.Message):
    __slots__ = ("min", "max")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    min: int
    max: int
    def __init__(self, min: _Optional[int] = ..., max: _Optional[int] = ...) -> None: ...

class SizeStep(_message.Message):
    __slots__ = ("observed", "lag")
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    observed: _containers.RepeatedCompositeFieldContainer[Observation]
    lag: int
    def __init__(self, observed: _Optional[_Iterable[_Union[Observation, _Mapping]]] = ..., lag: _Optional[int] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("samples", "seconds", "cpu", "memory_bytes")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    samples: float
    seconds: float
    cpu: float
    memory_bytes: float
    def __init__(self, samples: _Optional[float] = ..., seconds: _Optional[float] = ..., cpu: _Optional[float] = ..., memory_bytes: _Optional[float] = ...) -> None: ...

class SizeResponse(_message.Message):
    __slots__ = ("batch_sizes", "step_seconds", "reason")
    BATCH_SIZES_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    batch_sizes: _containers.RepeatedScalarFieldContainer[int]
    step_seconds: float
    reason: str
    def __init__(self, batch_sizes: _Optional[_Iterable[int]] = ..., step_seconds: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class PlaceRequest(_message.Message):
    __slots__ = ("pools", "jobs", "bandwidth_bytes_per_second", "seed")
    POOLS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    bandwidth_bytes_per_second: float
    seed: int
    def __init__(self, pools: _Optional[_Iterable[_Union[Pool, _Mapping]]] = ..., jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., bandwidth_bytes_per_second: _Optional[float] = ..., seed: _Optional[int] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("node", "type", "count", "memory_bytes")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    node: str
    type: str
    count: int
    memory_bytes: int
    def __init__(self, node: _Optional[str] = ..., type: _Optional[str] = ..., count: _Optional[int] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "remaining_samples", "global_batch", "samples_per_second", "min_workers", "max_workers", "allreduce_bytes", "single_type", "memory_bytes", "nodes", "weight", "current", "restart_seconds", "waited_seconds", "fixed")
    class SamplesPerSecondEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    REMAINING_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_BATCH_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    MIN_WORKERS_FIELD_NUMBER: _ClassVar[int]
    MAX_WORKERS_FIELD_NUMBER: _ClassVar[int]
    ALLREDUCE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SINGLE_TYPE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    RESTART_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAITED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FIXED_FIELD_NUMBER: _ClassVar[int]
    id: str
    remaining_samples: float
    global_batch: int
    samples_per_second: _containers.ScalarMap[str, float]
    min_workers: int
    max_workers: int
    allreduce_bytes: float
    single_type: bool
    memory_bytes: int
    nodes: _containers.RepeatedScalarFieldContainer[str]
    weight: float
    current: _containers.RepeatedCompositeFieldContainer[Share]
    restart_seconds: float
    waited_seconds: float
    fixed: bool
    def __init__(self, id: _Optional[str] = ..., remaining_samples: _Optional[float] = ..., global_batch: _Optional[int] = ..., samples_per_second: _Optional[_Mapping[str, float]] = ..., min_workers: _Optional[int] = ..., max_workers: _Optional[int] = ..., allreduce_bytes: _Optional[float] = ..., single_type: bool = ..., memory_bytes: _Optional[int] = ..., nodes: _Optional[_Iterable[str]] = ..., weight: _Optional[float] = ..., current: _Optional[_Iterable[_Union[Share, _Mapping]]] = ..., restart_seconds: _Optional[float] = ..., waited_seconds: _Optional[float] = ..., fixed: bool = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("node", "type", "count")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    node: str
    type: str
    count: int
    def __init__(self, node: _Optional[str] = ..., type: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class PlaceResponse(_message.Message):
    __slots__ = ("placed",)
    PLACED_FIELD_NUMBER: _ClassVar[int]
    placed: _containers.RepeatedCompositeFieldContainer[Placed]
    def __init__(self, placed: _Optional[_Iterable[_Union[Placed, _Mapping]]] = ...) -> None: ...

class Placed(_message.Message):
    __slots__ = ("job", "shares", "start_seconds")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    START_SECONDS_FIELD_NUMBER: _ClassVar[int]
    job: int
    shares: _containers.RepeatedCompositeFieldContainer[Share]
    start_seconds: float
    def __init__(self, job: _Optional[int] = ..., shares: _Optional[_Iterable[_Union[Share, _Mapping]]] = ..., start_seconds: _Optional[float] = ...) -> None: ...
