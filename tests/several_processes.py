"""Checks that torchrun runs in several processes: torchrun --nproc-per-node=2 tests/several_processes.py"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
import torch.distributed as dist

from data.batches import TrainingBatches
from data.corpus import load_corpus
from model.config import ModelConfig
from model.gpt import GPT
from training import muon
from training.config import Config, OptimConfig, TrainConfig
from training.distributed import ALONE, OtherProcessError, World, join_world
from training.evaluation import EvaluationStoppedError, evaluate
from training.runtime import Runtime
from training.state import TrainingState
from training.step import TrainingStep
from training.threads import n_cores

TINY = ModelConfig(n_layer=3, n_head=2, n_embd=16, block_size=8)


def muon_divides_the_matrices(world: World) -> None:
    counted = []
    original = muon.orthogonalise

    def counting(matrices, **settings):
        counted.append(len(matrices))
        return original(matrices, **settings)

    muon.orthogonalise = counting
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        torch.manual_seed(0)
        shapes = [(16, 16)] * 5 + [(16, 48)] * 3 + [(48, 16)] * 4 + [(8, 24)]
        ours, expected = ([torch.nn.Parameter(torch.randn(shape)) for shape in shapes] for _ in range(2))
        for p, q in zip(ours, expected, strict=True):
            q.data.copy_(p.data)
            p.grad = q.grad = torch.randn_like(p)
        muon.Muon(expected, dtype=dtype).step()
        counted.clear()
        muon.Muon(ours, dtype=dtype, world=world).step()
        assert counted == [-(-n // world.size) for n in (5, 7, 1)], counted
        for p, q in zip(ours, expected, strict=True):
            torch.testing.assert_close(p, q, rtol=tolerance, atol=0.02 * tolerance)


def a_bad_gradient_in_one_process_is_skipped_by_all(world: World) -> None:
    config = Config(model=TINY, optim=OptimConfig(warmup_steps=0), train=TrainConfig(batch_size=6, max_steps=3))
    runtime = Runtime(torch.device("cpu"), torch.float32, world)
    corpus = load_corpus("selmere")
    state = TrainingState(config, corpus, runtime)
    batches = TrainingBatches(corpus.ids, block_size=8, batch_size=6, seed=0, part=world.share_of(6))
    step = TrainingStep(state, batches, runtime)
    step.run()
    assert list(state.take_skipped()) == []
    before = [p.clone() for p in state.model.parameters()]
    hook = state.model.lm_head.weight.register_hook(lambda g: g * float("nan") if world.rank == 1 else g)
    step.run()
    hook.remove()
    ((skipped, name),) = state.take_skipped()
    assert (skipped, name) == (1, "the gradient of lm_head.weight")
    assert all(torch.equal(p, q) for p, q in zip(before, state.model.parameters(), strict=True))
    step.run()
    assert list(state.take_skipped()) == []
    assert not torch.equal(before[0], next(state.model.parameters()))


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
    a_bad_gradient_in_one_process_is_skipped_by_all,
    each_window_is_evaluated_once,
    a_stop_in_one_process_ends_the_evaluation_in_all,
    a_mistake_in_one_process_ends_all_and_is_reported_once,
    the_content_of_the_main_process_reaches_all,
    the_processes_share_the_cores,
)

if __name__ == "__main__":
    with join_world(60) as world:
        assert world.size > 1
        for check in CHECKS:
            check(world)
            if world.is_main:
                print("passed:", check.__name__.replace("_", " "))
