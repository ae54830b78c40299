"""CUDA graphs: the GPU work of a step, which Python launches once and then replays."""

import gc
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

WARM_UP = 3  # ordinary calls before the capture, in which libraries and optimisers allocate their state


class CapturedFunction:
    """A function of GPU tensors that runs as usual at first and is then replayed as a CUDA graph.

    Without a graph, a GPU finishes small products before Python launches the next ones.

    New shapes of the inputs cause a new capture; if one fails, the function runs as usual from then on. It must not
    wait for the GPU, must write its results to tensors that exist before the call, and must not depend on CPU values
    that change (PyTorch's notes on CUDA semantics, "CUDA Graphs"). A graph does not run the hooks of modules, so a
    model that has hooks runs without it.
    """

    def __init__(self, function: Callable[..., object], model: nn.Module):
        self.function, self.model = function, model
        self.hooks = [hooks for m in model.modules() for hooks in (m._forward_hooks, m._forward_pre_hooks)]
        self.shapes: list[torch.Size] = []
        self.n_calls, self.failed = 0, False
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []  # the graph reads from these tensors
        self.stream = torch.cuda.Stream(next(model.parameters()).device)

    def __call__(self, *inputs: Tensor) -> None:
        if self.failed or any(self.hooks):
            self.function(*inputs)
            return
        shapes = [tensor.shape for tensor in inputs]
        if shapes != self.shapes:
            self.shapes, self.n_calls, self.graph, self.inputs = shapes, 0, None, []
        self.n_calls += 1
        if self.n_calls <= WARM_UP:
            self._warm_up(inputs)
            return
        if self.graph is None:
            try:
                self.inputs, self.graph = self._capture(inputs)
            except RuntimeError as error:
                self.failed = True
                self.model.zero_grad()  # gradients in the memory of the graph
                reason = str(error).splitlines()[0]
                warnings.warn(f"running without a CUDA graph, which is slower: {reason}", RuntimeWarning, stacklevel=2)
                self.function(*inputs)
                return
        for static, tensor in zip(self.inputs, inputs, strict=True):
            static.copy_(tensor, non_blocking=True)
        self.graph.replay()

    def _warm_up(self, inputs: tuple[Tensor, ...]) -> None:
        """Call the function in a side stream, as PyTorch requires before a capture."""
        current = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*capturable=True.*")
            self.function(*inputs)
        current.wait_stream(self.stream)

    def _capture(self, inputs: tuple[Tensor, ...]) -> tuple[list[Tensor], torch.cuda.CUDAGraph]:
        """Record the function's work in a graph, without running it; return its inputs and the graph."""
        static_inputs, graph = [tensor.clone() for tensor in inputs], torch.cuda.CUDAGraph()
        collects = gc.isenabled()
        gc.disable()  # it might free a tensor or another graph, which would end the capture
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                self.function(*static_inputs)
        finally:
            if collects:
                gc.enable()
        return static_inputs, graph
