import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from helpers import train_run

from training import runtime
from training.runtime import choose_runtime, n_cores


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16"])
def test_a_usable_device_and_the_requested_dtype_are_used(dtype):
    chosen = choose_runtime("auto" if dtype == "auto" else "cpu", dtype)
    x = torch.randn(4, 4, device=chosen.device)
    with chosen.autocast():
        assert (x @ x).dtype == chosen.dtype == getattr(torch, dtype, chosen.dtype)


@pytest.mark.parametrize(("content", "n"), [("max 100000", 3), ("250000 100000", 2), ("50 100", 1), ("900 100", 3)])
def test_the_quota_of_a_container_limits_the_cores(tmp_path, monkeypatch, content, n):
    """`docker run --cpus=2.5` writes such a file."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5}, raising=False)
    assert n_cores(tmp_path / "cpu.max") == 3
    (tmp_path / "cpu.max").write_text(f"{content}\n")
    assert n_cores(tmp_path / "cpu.max") == n


def test_pytorch_uses_no_more_threads_than_the_quota_allows(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(runtime, "n_cores", lambda: 1)
    torch.set_num_threads(2)
    choose_runtime("cpu", "float32")
    assert torch.get_num_threads() == 1  # as in all tests


@pytest.mark.slow
def test_auto_selects_float32_if_the_environment_limits_onednn_to_instructions_without_bfloat16():
    code = "from training.runtime import choose_runtime; print(choose_runtime('cpu', 'auto').dtype)"
    limits = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    output = subprocess.check_output([sys.executable, "-c", code], env=os.environ | limits, text=True)
    assert output == "torch.float32\n"


@pytest.mark.parametrize(
    ("instructions", "name", "chosen"),
    [
        (["avx512_bf16"], "AMD EPYC 9R14", "bfloat16"),
        (["avx512_bf16"], "Intel(R) Xeon(R) Platinum 8581C", "float32"),
        (["avx512_bf16", "amx_bf16"], "Intel(R) Xeon(R) Platinum 8581C", "bfloat16"),
        (["sve_bf16"], "Neoverse-V2", "bfloat16"),
        ([], "AMD EPYC 7R13", "float32"),
    ],
)
def test_auto_selects_the_format_in_which_such_a_processor_multiplies_faster(monkeypatch, instructions, name, chosen):
    monkeypatch.setattr(runtime, "processor_name", lambda: name)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(instructions, True), raising=False)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    assert choose_runtime("cpu", "auto").dtype == getattr(torch, chosen)


@pytest.mark.parametrize(("card", "capability", "dtype"), [("T4", 7, torch.float32), ("A100", 8, torch.bfloat16)])
def test_auto_selects_bfloat16_only_for_gpus_that_do_not_emulate_it(monkeypatch, card, capability, dtype):
    """PyTorch says of a T4 that it supports bfloat16, too, because it can create such tensors there."""
    for name, value in (("is_available", True), ("device_count", 1), ("current_device", 0)):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(name=card, major=capability))
    monkeypatch.setattr(torch.cuda, "_check_bf16_tensor_supported", lambda _: True)
    assert torch.cuda.is_bf16_supported()
    assert choose_runtime("auto", "auto").dtype == dtype
    assert choose_runtime("cuda", "bfloat16").dtype == torch.bfloat16


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="needs a CPU build of PyTorch")
def test_a_cpu_build_of_pytorch_on_a_machine_with_an_nvidia_gpu_is_a_reason_to_be_slow(monkeypatch, workplace, capsys):
    monkeypatch.setenv("PATH", str(workplace))
    train_run("tiny", "train.max_steps=1")
    assert capsys.readouterr().err == ""
    (workplace / "nvidia-smi").touch(mode=0o755)
    train_run("tiny", "train.max_steps=1")
    assert "but its PyTorch is a CPU build" in capsys.readouterr().err
