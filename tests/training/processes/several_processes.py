"""Checks that `torchrun --nproc-per-node=2` of this file runs in several processes."""

import contextlib
import dataclasses
import signal
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from cli.command import run_command
from cli.errors import UserError
from cli.stopping import Stopped, StopRequest
from data.config import DataConfig
from data.corpus import open_corpus
from model.config import ModelConfig
from model.gpt import GPT
from training.config import Config, OptimConfig, TrainConfig
from training.evaluation import evaluate
from training.optim import muon
from training.processes.ddp import OtherProcessError
from training.processes.fsdp import FSDP
from training.processes.launching import for_parallel, join_processes, n_cores
from training.processes.one_process import OneProcess
from training.runtime import Runtime
from training.state import TrainingState
from training.step import TrainingStep

TINY = ModelConfig(n_layer=3, n_head=2, n_embd=16, block_size=8)


@contextlib.contextmanager
def counting_orthogonalisations():
    """Yield a list that receives the number of matrices of each batch that this process orthogonalises."""
    counted, original = [], muon.orthogonalise

    def counting(matrices, **settings):
        counted.append(len(matrices))
        return original(matrices, **settings)

    muon.orthogonalise = counting
    yield counted
    muon.orthogonalise = original


def muon_divides_the_matrices(processes: OneProcess) -> None:
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        torch.manual_seed(0)
        shapes = [(16, 16)] * 5 + [(16, 48)] * 3 + [(48, 16)] * 4 + [(8, 24)]
        ours, expected = ([torch.nn.Parameter(torch.randn(shape)) for shape in shapes] for _ in range(2))
        for p, q in zip(ours, expected, strict=True):
            q.data.copy_(p.data)
            p.grad = q.grad = torch.randn_like(p)
        muon.Muon(expected, dtype=dtype).step()
        with counting_orthogonalisations() as counted:
            muon.Muon(ours, dtype=dtype, processes=processes).step()
        assert counted == [-(-n // processes.size) for n in (5, 7, 1)], counted
        for p, q in zip(ours, expected, strict=True):
            torch.testing.assert_close(p, q, rtol=tolerance, atol=0.02 * tolerance)


def sharded_matrices_are_orthogonalised_once(processes: OneProcess) -> None:
    mesh = init_device_mesh("cpu", (processes.size,))
    torch.manual_seed(0)
    shapes = [(16, 16)] * 5 + [(16, 7)] * 3 + [(7, 16)] * 4 + [(2, 24)]
    expected = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    ours = [torch.nn.Parameter(distribute_tensor(p.detach().clone(), mesh, [Shard(0)])) for p in expected]
    settings = {"dtype": torch.float32, "weight_decay": 0.1}
    reference, optimizer = (
        muon.Muon(expected, **settings),
        muon.Muon(ours, processes=FSDP(**vars(processes)), **settings),
    )
    for step in range(2):
        for p, q in zip(ours, expected, strict=True):
            q.grad = torch.randn(q.shape)
            p.grad = distribute_tensor(q.grad, mesh, [Shard(0)])
        found_inf = torch.tensor(float(step == 1))
        reference.found_inf = optimizer.found_inf = found_inf
        with counting_orthogonalisations() as counted:
            optimizer.step()
        mine = [len(range(processes.rank, n, processes.size)) for n in (5, 3, 4, 1)]
        assert counted == ([n for n in mine if n] if step == 0 else [])
        reference.step()
        for p, q in zip(ours, expected, strict=True):
            torch.testing.assert_close(p.full_tensor(), q, rtol=1e-5, atol=1e-6)


def a_bad_gradient_in_one_process_is_skipped_by_all(processes: OneProcess) -> None:
    for parallel in ("ddp", "fsdp"):
        check_skipping(processes, parallel)


def check_skipping(processes: OneProcess, parallel: str) -> None:
    training = TrainConfig(batch_size=6, max_steps=3, parallel=parallel)
    config = Config(model=TINY, optim=OptimConfig(warmup_steps=0), train=training)
    corpus = open_corpus(DataConfig(corpus="selmere"))
    state = TrainingState(config, corpus, float32(for_parallel(processes, parallel)))
    step = TrainingStep(state, corpus.ids)
    step.run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as for a tensor in place of a number
        state.check_finite()
    assert list(state.take_skipped()) == []
    before = [state.processes.local(p).clone() for p in state.model.parameters()]
    hook = state.model.norm.register_full_backward_hook(
        lambda _module, gradients, _: tuple(g * float("nan") if processes.rank == 1 else g for g in gradients)
    )
    step.run()
    hook.remove()
    ((skipped, name),) = state.take_skipped()
    assert skipped == 1
    assert name.startswith("the gradient of")
    assert all(torch.equal(p, state.processes.local(q)) for p, q in zip(before, state.model.parameters(), strict=True))
    step.run()
    assert list(state.take_skipped()) == []
    assert not torch.equal(before[0], state.processes.local(next(state.model.parameters())))


def a_sharded_state_is_divided_among_all(processes: OneProcess) -> None:
    """Parameters, momentum and averages; three matrices of 16 rows differ by a row at most."""
    training, corpus = TrainConfig(batch_size=6, parallel="fsdp"), open_corpus(DataConfig(corpus="selmere"))
    config = Config(model=TINY, optim=OptimConfig(average_fraction=0.1), train=training)
    state = TrainingState(config, corpus, float32(for_parallel(processes, "fsdp")))
    TrainingStep(state, corpus.ids).run()
    sharded = [*state.model.parameters(), *state.average.model.parameters()]
    sharded += [x for o in state.optimizers for values in o.state.values() for x in values.values() if x.ndim]
    n_whole, n_mine = sum(x.numel() for x in sharded), sum(state.processes.local(x).numel() for x in sharded)
    assert n_mine < 1.3 * n_whole / processes.size
    expected = TrainingState(dataclasses.replace(config, train=TrainConfig()), corpus, float32(OneProcess()))
    fresh = TrainingState(config, corpus, float32(for_parallel(processes, "fsdp")))
    for (name, p), q in zip(fresh.model.named_parameters(), expected.model.parameters(), strict=True):
        assert torch.equal(p.full_tensor(), q), name


def a_sharded_model_trains_after_an_evaluation_in_all(processes: OneProcess) -> None:
    """Neither an evaluation before the first step nor one without a save after it leaves whole parameters."""
    for fraction in (0, 0.1):
        training, corpus = TrainConfig(batch_size=6, parallel="fsdp"), open_corpus(DataConfig(corpus="selmere"))
        config = Config(model=TINY, optim=OptimConfig(average_fraction=fraction), train=training)
        state = TrainingState(config, corpus, float32(for_parallel(processes, "fsdp")))
        step = TrainingStep(state, corpus.ids)
        for _ in range(3):
            evaluate(state.average.model, corpus.ids, 8, float32(for_parallel(processes, "fsdp")), n_characters=100)
            step.run()


def float32(processes: OneProcess) -> Runtime:
    return Runtime(torch.device("cpu"), torch.float32, processes)


def each_window_is_evaluated_once(processes: OneProcess) -> None:
    torch.manual_seed(1)
    model = GPT(TINY, 11)
    torch.nn.init.normal_(model.lm_head.weight)
    for n in (9, 10, 17, 8192 + 1, 8192 + 4, 8 * 8192 + 1, 9 * 8192 + 5):
        ids = np.random.default_rng(n).integers(0, 11, n).astype(np.uint8)
        for n_characters in (None, 5000):
            ours = evaluate(model, ids, 8, float32(processes), n_characters=n_characters)
            alone = evaluate(model, ids, 8, float32(OneProcess()), n_characters=n_characters)
            assert abs(ours.loss - alone.loss) < 1e-9
            assert ours.n_characters == alone.n_characters


def a_stop_in_one_process_ends_the_evaluation_in_all(processes: OneProcess) -> None:
    ids = np.zeros(50_000, dtype=np.uint8)
    stop, calls = StopRequest(agree=processes.agree), []

    def check_stop() -> None:
        calls.append(1)
        if processes.rank == processes.size - 1 and len(calls) == 2:
            stop.signal = signal.SIGINT
        stop.check()

    try:
        evaluate(GPT(TINY, 11), ids, 8, float32(processes), check_stop=check_stop)
    except Stopped:
        assert len(calls) == 2
    else:
        raise AssertionError("the evaluation was not stopped")


def a_mistake_in_one_process_ends_all_and_is_reported_once(processes: OneProcess) -> None:
    for wrong in (0, processes.size - 1):

        def work(wrong: int = wrong) -> str:
            if processes.rank >= wrong:
                raise UserError("no such file")
            return "done"

        try:
            processes.together(work)
        except OtherProcessError:
            assert processes.rank != wrong
        except UserError as error:
            assert (processes.rank, str(error)) == (wrong, "no such file")
        else:
            raise AssertionError("no error")
    assert processes.together(lambda: "done") == "done"


def a_difference_between_processes_is_reported_once(processes: OneProcess) -> None:
    processes.check_same("the same", "different texts")
    try:
        processes.check_same(f"text {processes.rank}", "different texts")
    except UserError as error:
        assert str(error) == ("different texts" if processes.is_main else "")
    else:
        raise AssertionError("no error")


def the_result_of_the_main_process_reaches_all(processes: OneProcess) -> None:
    for content in ("", "x", "".join(map(chr, range(256))) * 5000):
        assert processes.from_main(lambda content=content: content) == content
    assert processes.agree(processes.rank) == processes.size - 1
    dist.barrier()


def the_processes_share_the_cores(processes: OneProcess) -> None:
    assert torch.get_num_threads() == max(1, n_cores() // processes.size), torch.get_num_threads()


CHECKS = (
    muon_divides_the_matrices,
    sharded_matrices_are_orthogonalised_once,
    a_sharded_state_is_divided_among_all,
    a_sharded_model_trains_after_an_evaluation_in_all,
    a_bad_gradient_in_one_process_is_skipped_by_all,
    each_window_is_evaluated_once,
    a_stop_in_one_process_ends_the_evaluation_in_all,
    a_mistake_in_one_process_ends_all_and_is_reported_once,
    a_difference_between_processes_is_reported_once,
    the_result_of_the_main_process_reaches_all,
    the_processes_share_the_cores,
)


def main() -> int:
    with join_processes(60) as processes:
        assert processes.size > 1
        for check in CHECKS:
            check(processes)
            if processes.is_main:
                print("passed:", check.__name__.replace("_", " "))
    return 0


if __name__ == "__main__":
    run_command(main)
