"""GPU work that is asked for once and then repeated without Python."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

WARM_UP = 3  # ordinary calls before the capture, in which libraries and optimisers set up what they keep


class CapturedFunction:
    """A function of GPU tensors that returns nothing, called as it is at first, then replayed as a CUDA graph.

    The graph is captured anew where the shapes of the inputs change. The function must not wait for the GPU, must leave
    its results in tensors that exist before it is called, and may depend on numbers of the processor only where they
    never change (PyTorch's notes on CUDA semantics, "CUDA Graphs").
    """

    def __init__(self, function: Callable[..., None]):
        self.function = function
        self.shapes, self.n_calls = None, 0
        self.graph, self.inputs = None, []  # of the capture; the graph reads from these tensors
        self.stream = torch.cuda.Stream()

    def __call__(self, *inputs: Tensor) -> None:
        shapes = [tensor.shape for tensor in inputs]
        if shapes != self.shapes:
            self.shapes, self.n_calls, self.graph, self.inputs = shapes, 0, None, []
        self.n_calls += 1
        if self.n_calls <= WARM_UP:
            self._warm_up(inputs)
            return
        if self.graph is None:
            self._capture(inputs)
        for static, tensor in zip(self.inputs, inputs, strict=True):
            static.copy_(tensor, non_blocking=True)
        self.graph.replay()

    def _warm_up(self, inputs: tuple[Tensor, ...]) -> None:
        """Calls the function in a stream of its own: what is set up in the main one cannot be captured."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*capturable=True.*")  # it will be captured soon
            self.function(*inputs)
        torch.cuda.current_stream().wait_stream(self.stream)

    def _capture(self, inputs: tuple[Tensor, ...]) -> None:
        """Captures the function's work; that does not run it."""
        self.inputs, self.graph = [tensor.clone() for tensor in inputs], torch.cuda.CUDAGraph()
        inference = torch.is_inference_mode_enabled()
        # What the capture makes for the random numbers outlives it, and must not belong to inference alone
        # (github.com/pytorch/pytorch/issues/166792).
        with torch.inference_mode(False), torch.cuda.graph(self.graph), torch.inference_mode(inference):
            self.function(*self.inputs)
