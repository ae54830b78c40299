"""Checks that torchrun runs in several processes; see test_processes.py."""

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch

from cli.stopping import Stopped, StopRequest
from model.config import ModelConfig
from model.gpt import GPT
from training.evaluation import evaluate
from training.processes import Processes, join_processes
from training.runtime import Runtime

TINY = ModelConfig(n_layer=1, n_head=2, n_embd=16, block_size=8)


def float32(processes):
    return Runtime(torch.device("cpu"), torch.float32, processes)


def each_window_is_evaluated_once(processes):
    torch.manual_seed(1)
    model = GPT(TINY, 11)
    torch.nn.init.normal_(model.lm_head.weight)
    for n in (9, 17, 8192 + 1, 8192 + 4, 9 * 8192 + 5):
        ids = np.random.default_rng(n).integers(0, 11, n).astype(np.uint8)
        for n_characters in (None, 5000):
            ours = evaluate(model, ids, float32(processes), n_characters=n_characters)
            alone = evaluate(model, ids, float32(Processes()), n_characters=n_characters)
            assert abs(ours.loss - alone.loss) < 1e-9
            assert ours.n_characters == alone.n_characters


def a_signal_to_process_0_ends_the_evaluation_in_all(processes):
    ids = np.zeros(50_000, dtype=np.uint8)
    stop, calls = StopRequest(agree=processes.of_main), []

    def check_stop():
        calls.append(1)
        if processes.rank == 0 and len(calls) == 2:
            stop.signal = signal.SIGINT
        stop.check()

    try:
        evaluate(GPT(TINY, 11), ids, float32(processes), check_stop=check_stop)
    except Stopped:
        assert len(calls) == 2
    else:
        raise AssertionError("the evaluation was not stopped")


def all_use_the_folder_of_process_0(processes):
    assert processes.of_main(Path(f"found by {processes.rank}, \udcff")) == Path("found by 0, \udcff")  # not UTF-8


if __name__ == "__main__":
    with join_processes() as processes:
        each_window_is_evaluated_once(processes)
        a_signal_to_process_0_ends_the_evaluation_in_all(processes)
        all_use_the_folder_of_process_0(processes)
