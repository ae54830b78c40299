"""GPU work that is asked for once and then repeated without Python."""

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

WARM_UP = 3  # ordinary calls before recording, in which libraries and optimisers set up what they keep


class RecordedOnce:
    """A function of GPU tensors that returns nothing, called as it is at first, then replayed as a CUDA graph.

    One graph is recorded for each combination of shapes. The function must not wait for the GPU, must leave its results
    in tensors that exist before it is called, and may depend on numbers on the processor only where they never change
    (pytorch.org/docs, "CUDA semantics: CUDA Graphs").
    """

    def __init__(self, function: Callable[..., None]):
        self.function = function
        self.calls, self.recordings, self.pool = Counter(), {}, None
        self.stream = torch.cuda.Stream()

    def __call__(self, *inputs: Tensor) -> None:
        shapes = tuple(tensor.shape for tensor in inputs)
        self.calls[shapes] += 1
        if self.calls[shapes] <= WARM_UP:
            self._call_beside(inputs)
            return
        if shapes not in self.recordings:
            self.recordings[shapes] = self._record(inputs)
        graph, places = self.recordings[shapes]
        for place, tensor in zip(places, inputs, strict=True):
            place.copy_(tensor, non_blocking=True)
        graph.replay()

    def _call_beside(self, inputs: tuple[Tensor, ...]) -> None:
        """Calls the function in a stream of its own: what is set up in the main one cannot be recorded."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.function(*inputs)
        torch.cuda.current_stream().wait_stream(self.stream)

    def _record(self, inputs: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
        """The function's work as a graph that reads its inputs from these places; recording does not run it."""
        places = [tensor.clone() for tensor in inputs]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            self.function(*places)
        self.pool = graph.pool()  # graphs that never run at the same time share their memory
        return graph, places
