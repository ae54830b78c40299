"""The matrix product of the page: kernels.wasm is what kernels.wat says, and equals NumPy's product in float64."""

import base64

import numpy as np
import pytest
from conftest import ROOT
from pages_in_browser import run_in_worker

FOLDER = ROOT / "experiments/playground"
SIZES = [(4, 8, 1), (8, 16, 5), (5, 9, 3), (3, 7, 4), (1, 65, 64), (65, 64, 33), (16, 4, 6)]
MULTIPLY = """
const given = inWebAssembly(new WebAssembly.Module(Uint8Array.from(atob(kernels), (letter) => letter.charCodeAt(0))));
const shapes = { A: isTransposed ? [K, M] : [M, K], B: [K, N + 3], C: [M, N + 5] };
const ways = { compiled: given, plain: { allocate: (n) => new Float64Array(n), multiply: plainProduct } };
return Object.fromEntries(Object.entries(ways).map(([name, { allocate, multiply }]) => {
  const { A, B, C } = makeMatrices({ all: shapes }, allocate).all;
  [A, B, C].forEach((matrix, i) => matrix.values.set(values[i]));
  multiply(C.part(0, M, 2, N), isTransposed ? A.T : A, B.part(0, K, 1, N), adds);
  return [name, [...C.values]];
}));
"""


def assembled():
    wasmtime = pytest.importorskip("wasmtime")
    return bytes(wasmtime.wat2wasm((FOLDER / "kernels.wat").read_text(encoding="utf-8")))


def test_the_assembled_file_is_that_of_the_text():
    assert (FOLDER / "kernels.wasm").read_bytes() == assembled()


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize(("M", "N", "K"), SIZES)
def test_both_products_equal_that_of_numpy_and_change_nothing_else(browser, M, N, K, adds, is_transposed):
    rng = np.random.default_rng(0)
    A, B, C = (rng.normal(size=shape) for shape in ((M, K), (K, N + 3), (M, N + 5)))
    expected = C.copy()
    expected[:, 2 : N + 2] = A @ B[:, 1 : N + 1] + adds * C[:, 2 : N + 2]
    values = [(A.T if is_transposed else A).flatten().tolist(), B.flatten().tolist(), C.flatten().tolist()]
    given = {"M": M, "N": N, "K": K, "adds": adds, "isTransposed": is_transposed, "values": values}
    given["kernels"] = base64.b64encode((FOLDER / "kernels.wasm").read_bytes()).decode()
    found = run_in_worker(browser, ["train.js"], MULTIPLY, **given)
    np.testing.assert_allclose(found["plain"], expected.flatten(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found["compiled"], expected.flatten(), rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    (FOLDER / "kernels.wasm").write_bytes(assembled())
