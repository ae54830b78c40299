"""Checks that torchrun runs in several processes: torchrun --nproc-per-node=2 tests/several_processes.py"""

import contextlib
import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from cli.command import run_command
from data.batches import TrainingBatches
from data.corpus import load_corpus
from model.config import ModelConfig
from model.gpt import GPT
from training.evaluation import EvaluationStoppedError, evaluate
from training.optim import muon
from training.processes.distributed import ALONE, OtherProcessError, World, join_world, local
from training.processes.sharding import ShardedMuon
from training.processes.threads import n_cores
from training.runtime import Runtime
from training.settings.config import Config, OptimConfig, TrainConfig
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


def muon_divides_the_matrices(world: World) -> None:
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        torch.manual_seed(0)
        shapes = [(16, 16)] * 5 + [(16, 48)] * 3 + [(48, 16)] * 4 + [(8, 24)]
        ours, expected = ([torch.nn.Parameter(torch.randn(shape)) for shape in shapes] for _ in range(2))
        for p, q in zip(ours, expected, strict=True):
            q.data.copy_(p.data)
            p.grad = q.grad = torch.randn_like(p)
        muon.Muon(expected, dtype=dtype).step()
        with counting_orthogonalisations() as counted:
            muon.Muon(ours, dtype=dtype, world=world).step()
        assert counted == [-(-n // world.size) for n in (5, 7, 1)], counted
        for p, q in zip(ours, expected, strict=True):
            torch.testing.assert_close(p, q, rtol=tolerance, atol=0.02 * tolerance)


def sharded_matrices_are_orthogonalised_once(world: World) -> None:
    mesh = init_device_mesh("cpu", (world.size,))
    torch.manual_seed(0)
    shapes = [(16, 16)] * 5 + [(16, 7)] * 3 + [(7, 16)] * 4 + [(2, 24)]
    expected = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    ours = [torch.nn.Parameter(distribute_tensor(p.detach().clone(), mesh, [Shard(0)])) for p in expected]
    settings = {"dtype": torch.float32, "weight_decay": 0.1}
    reference, optimizer = muon.Muon(expected, **settings), ShardedMuon(ours, processes=world, **settings)
    for step in range(2):
        for p, q in zip(ours, expected, strict=True):
            q.grad = torch.randn(q.shape)
            p.grad = distribute_tensor(q.grad, mesh, [Shard(0)])
        found_inf = torch.tensor(float(step == 1))
        reference.found_inf = optimizer.found_inf = found_inf
        with counting_orthogonalisations() as counted:
            optimizer.step()
        mine = [len(range(world.rank, n, world.size)) for n in (5, 3, 4, 1)]
        assert counted == ([n for n in mine if n] if step == 0 else [])
        reference.step()
        for p, q in zip(ours, expected, strict=True):
            torch.testing.assert_close(p.full_tensor(), q, rtol=1e-5, atol=1e-6)


def a_bad_gradient_in_one_process_is_skipped_by_all(world: World) -> None:
    for parallel in ("ddp", "fsdp"):
        check_skipping(world, parallel)


def check_skipping(world: World, parallel: str) -> None:
    training = TrainConfig(batch_size=6, max_steps=3, parallel=parallel)
    config = Config(model=TINY, optim=OptimConfig(warmup_steps=0), train=training)
    runtime = Runtime(torch.device("cpu"), torch.float32, world)
    corpus = load_corpus("selmere")
    state = TrainingState(config, corpus, runtime)
    batches = TrainingBatches(corpus.ids, block_size=8, batch_size=6, seed=0, part=world.share_of(6))
    step = TrainingStep(state, batches, runtime)
    step.run()
    assert list(state.take_skipped()) == []
    before = [local(p).clone() for p in state.model.parameters()]
    hook = state.model.norm.register_full_backward_hook(
        lambda _module, gradients, _: tuple(g * float("nan") if world.rank == 1 else g for g in gradients)
    )
    step.run()
    hook.remove()
    ((skipped, name),) = state.take_skipped()
    assert skipped == 1
    assert name.startswith("the gradient of")
    assert all(torch.equal(p, local(q)) for p, q in zip(before, state.model.parameters(), strict=True))
    step.run()
    assert list(state.take_skipped()) == []
    assert not torch.equal(before[0], local(next(state.model.parameters())))


def a_sharded_state_is_divided_among_all(world: World) -> None:
    """Parameters, momentum and averages; three matrices of 16 rows differ by a row at most."""
    training, corpus = TrainConfig(batch_size=6, parallel="fsdp"), load_corpus("selmere")
    config = Config(model=TINY, optim=OptimConfig(average_fraction=0.1), train=training)
    state = TrainingState(config, corpus, float32(world))
    batches = TrainingBatches(corpus.ids, block_size=8, batch_size=6, seed=0, part=world.share_of(6))
    TrainingStep(state, batches, float32(world)).run()
    sharded = [*state.model.parameters(), *state.average.model.parameters()]
    sharded += [x for o in state.optimizers for values in o.state.values() for x in values.values() if x.ndim]
    n_whole, n_mine = sum(x.numel() for x in sharded), sum(local(x).numel() for x in sharded)
    assert n_mine < 1.3 * n_whole / world.size
    expected = TrainingState(dataclasses.replace(config, train=TrainConfig()), corpus, float32(ALONE))
    fresh = TrainingState(config, corpus, float32(world))
    for (name, p), q in zip(fresh.model.named_parameters(), expected.model.parameters(), strict=True):
        assert torch.equal(p.full_tensor(), q), name


def a_sharded_model_trains_after_an_evaluation_in_all(world: World) -> None:
    """Neither an evaluation before the first step nor one without a save after it leaves whole parameters."""
    for fraction in (0, 0.1):
        training, corpus = TrainConfig(batch_size=6, parallel="fsdp"), load_corpus("selmere")
        config = Config(model=TINY, optim=OptimConfig(average_fraction=fraction), train=training)
        state = TrainingState(config, corpus, float32(world))
        batches = TrainingBatches(corpus.ids, block_size=8, batch_size=6, seed=0, part=world.share_of(6))
        step = TrainingStep(state, batches, float32(world))
        for _ in range(3):
            evaluate(state.average.model, corpus.ids, 8, float32(world), n_characters=100)
            step.run()


def float32(world: World) -> Runtime:
    return Runtime(torch.device("cpu"), torch.float32, world)


def each_window_is_evaluated_once(world: World) -> None:
    torch.manual_seed(1)
    model = GPT(TINY, 11)
    torch.nn.init.normal_(model.lm_head.weight)
    device = torch.device("cpu")
    for n in (9, 10, 17, 8192 + 1, 8192 + 4, 8 * 8192 + 1, 9 * 8192 + 5):
        ids = np.random.default_rng(n).integers(0, 11, n).astype(np.uint8)
        for n_characters in (None, 5000):
            ours = evaluate(model, ids, 8, Runtime(device, torch.float32, world), n_characters=n_characters)
            alone = evaluate(model, ids, 8, Runtime(device, torch.float32, ALONE), n_characters=n_characters)
            assert abs(ours.loss - alone.loss) < 1e-9
            assert ours.n_characters == alone.n_characters


def a_stop_in_one_process_ends_the_evaluation_in_all(world: World) -> None:
    ids = np.zeros(50_000, dtype=np.uint8)
    calls = []

    def must_stop() -> bool:
        calls.append(1)
        return world.rank == world.size - 1 and len(calls) == 2

    try:
        evaluate(GPT(TINY, 11), ids, 8, Runtime(torch.device("cpu"), torch.float32, world), must_stop=must_stop)
    except EvaluationStoppedError:
        assert len(calls) == 2
    else:
        raise AssertionError("the evaluation was not stopped")


def a_mistake_in_one_process_ends_all_and_is_reported_once(world: World) -> None:
    for wrong in (0, world.size - 1):
        try:
            with world.together():
                if world.rank >= wrong:
                    raise ValueError("no such file")
        except ValueError as error:
            assert (world.rank, str(error)) == (wrong, "no such file")
        except OtherProcessError:
            assert world.rank != wrong
        else:
            raise AssertionError("no error")
    with world.together():
        pass


def the_content_of_the_main_process_reaches_all(world: World) -> None:
    for content in (b"", b"x", bytes(range(256)) * 5000):
        assert world.share(content if world.is_main else b"other") == content
    assert world.agree(world.rank) == world.size - 1
    dist.barrier()


def the_processes_share_the_cores(world: World) -> None:
    assert torch.get_num_threads() == max(1, n_cores() // world.size), torch.get_num_threads()


CHECKS = (
    muon_divides_the_matrices,
    sharded_matrices_are_orthogonalised_once,
    a_sharded_state_is_divided_among_all,
    a_sharded_model_trains_after_an_evaluation_in_all,
    a_bad_gradient_in_one_process_is_skipped_by_all,
    each_window_is_evaluated_once,
    a_stop_in_one_process_ends_the_evaluation_in_all,
    a_mistake_in_one_process_ends_all_and_is_reported_once,
    the_content_of_the_main_process_reaches_all,
    the_processes_share_the_cores,
)


def main() -> int:
    with join_world(60) as world:
        assert world.size > 1
        for check in CHECKS:
            check(world)
            if world.is_main:
                print("passed:", check.__name__.replace("_", " "))
    return 0


if __name__ == "__main__":
    run_command(main)
