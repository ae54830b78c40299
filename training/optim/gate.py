"""Skip updates whose loss or gradient is infinite or NaN, without waiting for the device."""

from collections import deque

import torch
from torch import Tensor

from model.gpt import GPT
from training.processes.one_process import OneProcess


class UpdateGate:
    """Checks the loss and the gradients of each step on the device; the host learns the result one step later.

    found_inf (): 1 if the update must be skipped, otherwise 0. Optimisers read it by this name, which PyTorch's fused
    AdamW knows from `torch.amp.GradScaler`. All processes take the same decision.
    """

    def __init__(self, model: GPT, processes: OneProcess):
        self._processes = processes
        names, self._parameters = zip(*model.named_parameters(), strict=True)
        self._checked = ["the loss", *(f"the gradient of {name}" for name in names)]
        device = model.lm_head.weight.device
        self.found_inf = torch.zeros((), device=device)
        self.n_behind = int(self.found_inf.is_cuda)  # steps by which the host is behind the device
        self._first = torch.zeros((), device=device)  # index in _checked
        self._unread: deque[tuple[int, Tensor, torch.cuda.Event | None]] = deque()

    def check(self, loss: Tensor) -> None:
        """Set found_inf from a step's loss () and the parameters' gradients."""
        # A norm is also infinite if a square overflows, as it would in AdamW's second moment.
        norms = torch._foreach_norm([self._processes.local(p.grad) for p in self._parameters])
        is_bad = self._processes.largest(torch.stack([loss, *norms]).isfinite().logical_not().int())
        self.found_inf.copy_(is_bad.any())
        self._first.copy_(is_bad.argmax())

    def record(self, step: int) -> None:
        """Send the result of a step to the host; see `read`."""
        result, event = torch.stack([self.found_inf, self._first]), None
        if result.is_cuda:
            result = torch.empty(2, pin_memory=True).copy_(result, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._unread.append((step, result, event))

    def read(self, *, wait: bool) -> list[tuple[int, str | None]]:
        """Return the steps whose results have not been read, each with the first tensor that is not finite or None.

        wait: read the newest step too. Otherwise, a GPU's newest step is left for the next call, so that the GPU never
        runs out of work.
        """
        results = []
        while len(self._unread) > (0 if wait else self.n_behind):
            step, result, event = self._unread.popleft()
            if event:
                event.synchronize()
            is_skipped, first = result.tolist()
            results.append((step, self._checked[int(first)] if is_skipped else None))
        return results
