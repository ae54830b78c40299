"""The matrix product of the page: its files are what kernels.wat says, and equal NumPy's product in float64."""

import itertools

import numpy as np
import pytest
from page_kernels import assembled
from page_trainer import KERNELS

SIZES = [(4, 8, 1), (8, 16, 5), (5, 9, 3), (3, 7, 4), (1, 65, 64), (65, 64, 33), (16, 4, 6)]
MULTIPLY = """
const compile = (letters) => new WebAssembly.Module(Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0)));
const [fused, separate] = kernels.map((letters) => inWebAssembly(compile(letters)));
const ways = { fused, separate, plain: { allocate: (n) => new Float64Array(n), multiply: plainProduct } };
return products.map(({ M, N, K, adds, isTransposed, values }) => {
  const shapes = { A: isTransposed ? [K, M] : [M, K], B: [K, N + 3], C: [M, N + 5] };
  return Object.fromEntries(Object.entries(ways).map(([name, { allocate, multiply }]) => {
    const { A, B, C } = makeMatrices({ all: shapes }, allocate).all;
    [A, B, C].forEach((matrix, i) => matrix.values.set(values[i]));
    multiply(C.part(0, M, 2, N), isTransposed ? A.T : A, B.part(0, K, 1, N), adds);
    return [name, [...C.values]];
  }));
});
"""


def test_the_assembled_files_are_those_of_the_text():
    pytest.importorskip("wasmtime")
    for file, content in assembled().items():
        assert file.read_bytes() == content


def test_all_products_equal_that_of_numpy_and_change_nothing_else(browser):
    rng, products, expected = np.random.default_rng(0), [], []
    for (M, N, K), adds, is_transposed in itertools.product(SIZES, (False, True), (False, True)):
        A, B, C = (rng.normal(size=shape) for shape in ((M, K), (K, N + 3), (M, N + 5)))
        values = [(A.T if is_transposed else A).flatten().tolist(), B.flatten().tolist(), C.flatten().tolist()]
        products.append({"M": M, "N": N, "K": K, "adds": adds, "isTransposed": is_transposed, "values": values})
        C[:, 2 : N + 2] = A @ B[:, 1 : N + 1] + adds * C[:, 2 : N + 2]
        expected.append(C.flatten())
    found = browser.run_in_worker(["compute/train.js"], MULTIPLY, products=products, kernels=KERNELS)
    for of_product, values in zip(found, expected, strict=True):
        np.testing.assert_allclose(of_product["plain"], values, rtol=1e-12, atol=1e-12)
        for name in ("fused", "separate"):
            np.testing.assert_allclose(of_product[name], values, rtol=1e-5, atol=1e-5)
