"""A GPU that the CPU simulates, as a plugin of pytest: see `tests/test_fake_gpu.py`.

A tensor on this GPU has its numbers in main memory. Every operation on it counts as one kernel and runs on the CPU, in
order. A capture records the operations and leaves everything as it was; a replay repeats them on the same memory. As on
a GPU, a capture fails if an operation waits for the device, copies from or to main memory, reads a CPU tensor, or has a
result whose shape depends on values.

So it shows what a graph computes, with stale addresses and frozen values, and how many kernels that takes. It cannot
show streams, the order of two streams, speed, the memory of a GPU, the rounding of its kernels, or NCCL.
"""

import contextlib
import ctypes
import os
import pkgutil

guard = ctypes.CDLL(os.environ["FAKE_GPU_GUARD"])  # a library of guard.cpp, before PyTorch looks for CUDA

from types import SimpleNamespace

import safetensors.torch
import torch
import torch._dynamo  # import it before torch is changed: it inspects torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from model.attention import attend

guard.use_guard()  # it replaces the guard of a PyTorch for GPUs
GPU = torch.device("cuda:0")
# These wait for a GPU, because a result or its size is needed in main memory.
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "bincount", "unique", "_unique2")
WORKLESS = ("detach", "lift_fresh", "_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty")
state = SimpleNamespace(graph=None, sync_debug_mode="default")  # graph: the one that is being captured


def launch(_, function, types, args=(), kwargs=None):
    """Run an operation: on the CPU as it is, or as a kernel of the GPU if it uses tensors there."""
    name, kwargs = function.__name__.partition(".")[0], kwargs or {}
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    ours = [x for x in tensors if isinstance(x, GPUTensor)]
    written = tensors[0].device if name == "copy_" else GPU if ours else "cpu"
    target = torch.device(kwargs.get("device") or written)
    if not ours and target.type == "cpu":
        return function(*args, **kwargs)
    if torch.is_inference_mode_enabled():
        with EveryOperation():  # autograd, which is off, would have decomposed it
            results = function.decompose(*args, **kwargs)
        if results is not NotImplemented:
            return results
    check(name, tensors, target)
    args, kwargs = tree_map_only(GPUTensor, lambda x: x.memory, (args, kwargs))
    if "device" in kwargs:
        kwargs["device"] = "cpu"
    is_view = any(x.alias_info and not x.alias_info.is_write for x in function._schema.returns)
    graph = None if is_view or name in WORKLESS else state.graph
    if graph:
        graph.protect([x.memory for x in ours])
    results = function(*args, **kwargs)
    if graph:
        graph.steps.append((function, args, kwargs, tree_leaves(results)))
        graph.kernels.append(name)
    if target.type == "cpu":
        return results
    known = {id(x.memory): x for x in ours}  # an operation in place returns its input
    return tree_map_only(torch.Tensor, lambda x: known[id(x)] if id(x) in known else GPUTensor(x), results)


def check(name, tensors, target):
    """Raise RuntimeError if a GPU could not do this, or not during a capture."""
    on_cpu = [x for x in tensors if not isinstance(x, GPUTensor)]
    copies, indexes = name in ("_to_copy", "copy_"), name in ("index", "index_put_", "_index_put_impl_")
    if any(x.ndim for x in on_cpu) and not (copies or indexes):
        raise RuntimeError(f"{name}: all tensors must be on one device")
    selects = indexes and any(x.dtype == torch.bool for x in tensors[1:])
    reads = [x for x in on_cpu if x.ndim or name in ("where", "index_put_")]  # a single number is frozen elsewhere
    if name in WAITING or selects or (copies and target.type == "cpu") or (reads and state.graph):
        wait(name)


def wait(name="synchronize"):
    if state.graph or state.sync_debug_mode == "error":
        raise RuntimeError(f"{name} needs main memory: operation not permitted when stream is capturing")


class GPUTensor(torch.Tensor):
    """A tensor that says it is on the GPU; its numbers are in the CPU tensor `memory`."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    __torch_dispatch__ = classmethod(launch)

    @staticmethod
    def __new__(cls, memory):
        layout = {"strides": memory.stride(), "storage_offset": memory.storage_offset(), "dtype": memory.dtype}
        with torch.inference_mode(False):  # PyTorch treats a view as such even if this class makes it
            tensor = torch.Tensor._make_wrapper_subclass(cls, memory.shape, device=GPU, **layout)
        tensor.memory = memory
        return tensor

    def data_ptr(self):
        return self.memory.data_ptr()

    def __deepcopy__(self, memo):
        copied = GPUTensor(self.memory.clone()).requires_grad_(self.requires_grad)
        copied._is_param = getattr(self, "_is_param", False)
        return copied

    def tolist(self):
        return self.cpu().tolist()


class EveryOperation(TorchDispatchMode):
    """Sees also the operations that make a tensor on the GPU from none."""

    __torch_dispatch__ = launch


class Graph:
    """A CUDA graph: its steps are calls that write to the same memory at every replay."""

    def __init__(self):
        self.steps, self.kernels, self.before = [], [], {}  # before: the memory that the capture must not change

    def replay(self):
        for function, args, kwargs, results in self.steps:
            for old, new in zip(results, tree_leaves(function(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old is not new:
                    old.copy_(new)

    def protect(self, tensors):
        for storage in (x.untyped_storage() for x in tensors):
            self.before.setdefault(storage.data_ptr(), (storage, storage.clone()))


@contextlib.contextmanager
def capture(graph, stream=None):
    state.graph, random_state = graph, torch.get_rng_state()
    try:
        yield
    finally:
        state.graph = None
        torch.set_rng_state(random_state)
        for storage, old in graph.before.values():
            storage.copy_(old)


class Fused(torch.autograd.Function):
    """Runs a function for which PyTorch has one kernel on GPUs, and another for its gradients."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, function, *inputs):
        ctx.function, ctx.inputs = function, inputs
        with one_kernel(function.__name__):
            return function(*inputs)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, dy):
        inputs = [x.detach().requires_grad_() for x in ctx.inputs]
        with one_kernel(f"{ctx.function.__name__}_backward"), torch.enable_grad():
            return None, *torch.autograd.grad(ctx.function(*inputs), inputs, dy)


@contextlib.contextmanager
def one_kernel(name):
    kernels = state.graph.kernels if state.graph else []
    before = len(kernels)
    yield
    kernels[before:] = [name]


def rms_norm(x, shape):
    def fused_rms_norm(x):
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        return (y * (y.square().mean(-1, keepdim=True) + torch.finfo(y.dtype).eps).rsqrt()).to(x.dtype)

    return Fused.apply(fused_rms_norm, x)


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, enable_gqa=False):
    def fused_attention(q, k, v):
        mask = {} if attn_mask is None else {"visible" if attn_mask.dtype == torch.bool else "bias": attn_mask}
        return attend(q, k, v, **mask, causal=is_causal, dropout=dropout_p, form="explicit")

    return fused_attention(q, k, v) if dropout_p else Fused.apply(fused_attention, q, k, v)  # backward draws anew


def save(tensors, metadata, save=safetensors.torch.save):
    return save({name: x.cpu() for name, x in tensors.items()}, metadata)


def stream(device=GPU):
    return SimpleNamespace(device=GPU, wait_stream=lambda other: None, synchronize=wait)


FUNCTIONS = {
    "torch.cuda": {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: "fake GPU",
        "is_bf16_supported": lambda **_: True,
        "max_memory_allocated": lambda *_: 1,
        "is_current_stream_capturing": lambda: state.graph is not None,
        "synchronize": lambda *_: wait(),
        "set_sync_debug_mode": lambda mode: setattr(state, "sync_debug_mode", mode),
        "CUDAGraph": Graph,
        "graph": capture,
        "Stream": stream,
        "current_stream": stream,
        "stream": contextlib.nullcontext,
        **dict.fromkeys(("_lazy_init", "set_device", "manual_seed_all"), lambda *_: None),
    },
    "torch": {"tensor": lambda data, *, device="cpu", make=torch.tensor, **options: make(data, **options).to(device)},
    "torch.Tensor": {"pin_memory": lambda self: self},
    "torch.nn.functional": {"rms_norm": rms_norm, "scaled_dot_product_attention": attention},
    "torch.nn.utils.clip_grad": {"_has_foreach_support": lambda tensors, device: True},
    "safetensors.torch": {"save": save},
}
for place, functions in FUNCTIONS.items():
    for name, function in functions.items():
        owner = pkgutil.resolve_name(place)
        assert hasattr(owner, name), (place, name)
        setattr(owner, name, function)
torch.__future__.set_overwrite_module_params_on_conversion(True)  # a parameter's tensor cannot change its class
EveryOperation().__enter__()
