"""Chapter 9: how well does a key match a query? A scoring function, also called compatibility function, answers.

Answer to the question of chapter 8: no. The source is the only hint: without it, the loss cannot fall below (5.5 log 12
+ log 10) / 11 = 1.4518, for 5.5 random letters on average, one of 10 lengths, and 11 places.

    uniform      0                              the plain average of chapter 1
    dot          q . k                          chapter 2
    scaled dot   q . k / sqrt(D)                chapter 3
    additive     tanh(q Wq + k Wk) Ws           q and k may differ in channels
    gaussian     -|q - k|^2 w^2 / 2             near is similar (w: below)

q is a query, k a key, q . k their dot product, and |q - k|^2 the sum of their squared differences. Additive attention
(Bahdanau et al., 2015) is a small network (MLP) that reads the query and the key side by side: a linear map to `hidden`
channels, a number that one chooses, which is Wq above Wk in one matrix; tanh, which brings each number between -1 and
1; and Ws, a linear map to one number, the score. `model/scoring.py` defines all five. Whatever the score, attention
maps a query and pairs of keys and values to a sum of the values, weighted by the softmax of the scores: with T queries,
S keys and S values of any number of channels, the result has T rows with as many channels.

Averages weighted by nearness are older than attention in networks: to predict y at x from examples (x_i, y_i), average
the y_i, and give near ones more weight (Nadaraya, 1964; Watson, 1964). x is the query, the x_i are the keys and the y_i
the values, all of them vectors of one channel. This is attention pooling:

    f(x) = sum_i y_i kernel(x - x_i) / sum_j kernel(x - x_j)

The kernel is large near 0; its logarithm is the score. In a Gaussian, kernel(u) = exp(-u^2 / 2) / sqrt(2 pi), the
factor 1 / sqrt(2 pi) is in every term and cancels: the weights of the y_i are the softmax of -(x - x_i)^2 / 2. The
method is non-parametric: it keeps all examples and learns no parameters, except perhaps w of kernel(w u), whose width
is 1 / w: the larger w, the fewer examples are near. Epanechnikov's kernel, a multiple of max(1 - u^2, 0), reads only
examples within one width.

Question: what is the prediction at x = 2 with a narrower kernel? In `show`, write gaussian_kernel, w=3.0 in the line of
`pooled`.

Next: python -m textbook ladder measures what each idea is worth.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from model.attention import masked_softmax
from model.scoring import Additive, Gaussian, dot, scaled_dot, uniform

N_EXAMPLES, N_TEST, NOISE, FIT_STEPS = 50, 50, 0.5, 300

LogKernel = Callable[[Tensor], Tensor]


def as_mlp(score: Additive) -> nn.Sequential:
    """Return the MLP that computes an additive score from (..., query_size + key_size) -> (..., 1)."""
    joined = torch.cat((score.query.weight, score.key.weight), dim=1)  # (hidden, query_size + key_size)
    first, last = nn.Linear(joined.size(1), len(joined), bias=False), nn.Linear(len(joined), 1, bias=False)
    first.weight, last.weight = nn.Parameter(joined), nn.Parameter(score.weight.weight.detach())
    return nn.Sequential(first, nn.Tanh(), last)


def gaussian_kernel(u: Tensor) -> Tensor:
    """Return log K(u) = -u^2 / 2, up to a constant: every example counts, near ones most."""
    return -u.square() / 2


def epanechnikov_kernel(u: Tensor) -> Tensor:
    """Return log K(u) of K(u) = max(1 - u^2, 0), up to a constant: only examples within one width count."""
    outside = u.abs() >= 1
    return torch.log1p(-u.masked_fill(outside, 0.0).square()).masked_fill(outside, -math.inf)


def pooling(
    x: Tensor, xs: Tensor, ys: Tensor, kernel: LogKernel, *, w: Tensor | float = 1.0, visible: Tensor | None = None
) -> dict[str, Tensor]:
    """Return the prediction (T,) at each x (T,) from examples xs (S,) and ys (S,), with kernels of width 1 / w.

    Also returns the differences x - x_i and the weights, (T, S): each row of weights is the softmax of log
    K(w (x - x_i)) over the examples. Expanding (x - x_i)^2 instead would lose digits far from zero. visible (T, S) is
    False for hidden examples. Weights and prediction are zero if the kernel reaches no visible example.
    """
    differences = x[:, None] - xs[None, :]  # (T, S)
    scores = kernel(w * differences)
    within_reach = scores > -math.inf
    visible = within_reach if visible is None else within_reach & visible
    weights = masked_softmax(scores, visible=visible).nan_to_num()  # zeros where no example is within reach
    return {"differences": differences, "weights": weights, "prediction": weights @ ys}


def true_function(x: Tensor) -> Tensor:
    return 2 * torch.sin(x) + x**0.8


def fit_w(xs: Tensor, ys: Tensor) -> float:
    """Return the w of the Gaussian kernel that best predicts each example (xs, ys) from all others."""
    w = torch.ones((), requires_grad=True)
    others = ~torch.eye(len(xs), dtype=torch.bool)
    optimizer = torch.optim.Adam([w], lr=0.1)
    for _ in range(FIT_STEPS):
        loss = (pooling(xs, xs, ys, gaussian_kernel, w=w, visible=others)["prediction"] - ys).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return abs(w.item())


def examples_and_kernels() -> tuple[Tensor, Tensor, Tensor, dict[str, tuple[LogKernel, float]]]:
    """Return noisy examples xs and ys, test points x, and each kernel to compare with its w, by name."""
    torch.manual_seed(0)
    xs = torch.sort(torch.rand(N_EXAMPLES, dtype=torch.float64) * 5).values
    ys = true_function(xs) + NOISE * torch.randn(N_EXAMPLES, dtype=torch.float64)
    w = fit_w(xs, ys)
    kernels: dict[str, tuple[LogKernel, float]] = {
        "Epanechnikov, w = 1": (epanechnikov_kernel, 1.0),
        "Gaussian, w = 1": (gaussian_kernel, 1.0),
        f"Gaussian, learned w = {w:.2f}, width {1 / w:.2f}": (gaussian_kernel, w),
    }
    return xs, ys, torch.linspace(0, 5, N_TEST, dtype=torch.float64), kernels


def show(output: Path | None = None) -> Iterator[str | tuple[str, Tensor]]:
    torch.manual_seed(0)
    q, k = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    yield "q: two queries", q
    yield "k: three keys, two equal to the queries, the third three times the first", k
    for name, scores in (("uniform", uniform(q, k)), ("dot", dot(q, k)), ("scaled dot", scaled_dot(q, k))):
        yield f"{name}: scores of each query (row) and key (column)", scores
    yield "gaussian, w = 1: the equal key scores best, not the longer one", Gaussian()(q, k).detach()
    additive = Additive(query_size=2, key_size=3, hidden=4).requires_grad_(False)
    keys = torch.randn(3, 3)
    yield "additive, with random weights and 3 random keys of 3 channels", additive(q, keys)
    shapes = [tuple(each.weight.T.shape) for each in (additive.query, additive.key, additive.weight)]
    yield "Wq, Wk and Ws have the shapes {}, {} and {}: `hidden` is 4.".format(*shapes)
    values = torch.randn(3, 5)
    shapes = [tuple(x.shape) for x in (q, keys, values, masked_softmax(additive(q, keys)) @ values)]
    yield "Queries {}, keys {}, values {}: the output is {}, as wide as the values.\n".format(*shapes)
    pairs = torch.cat((q[:, None].expand(2, 3, 2), keys[None].expand(2, 3, 3)), dim=-1)  # (2, 3, 5)
    yield (
        "The additive scores from an MLP on each query and key side by side",
        as_mlp(additive)(pairs).squeeze(-1).detach(),
    )

    examples = torch.tensor([[1.0, 2.0, 4.0], [3.0, 5.0, 1.0]])
    yield "Pooling, with three examples: x_i above y_i", examples
    pooled = pooling(torch.tensor([2.0]), examples[0], examples[1], gaussian_kernel)
    yield "x - x_i: how far x = 2 is from each example", pooled["differences"]
    yield "kernel(x - x_i) / sum_j kernel(x - x_j), Gaussian: the weights", pooled["weights"]
    yield f"The prediction at x = 2 is the weighted sum of the y_i, {pooled['prediction'].item():.4f}.\n"

    yield (
        f"{N_EXAMPLES} examples with x from 0 to 5 and y = 2 sin x + x^0.8 + noise of std {NOISE}. The learned w is "
        "the one that best predicts each of them from the others. Mean squared errors of f against the curve without "
        f"noise, at {N_TEST} x:"
    )
    xs, ys, x, kernels = examples_and_kernels()
    for name, (kernel, w) in kernels.items():
        error = (pooling(x, xs, ys, kernel, w=w)["prediction"] - true_function(x)).square().mean()
        yield f"  {name:40} {error:.4f}"
    if output:
        draw(output)


def draw(path: Path) -> None:
    """Draw the fits and, below them, the weights of the examples at each test point."""
    xs, ys, x, kernels = examples_and_kernels()
    figure = Figure(figsize=(15, 7), layout="constrained")
    axes = figure.subplots(2, len(kernels))
    for (above, below), (name, (kernel, w)) in zip(axes.T, kernels.items(), strict=True):
        pooled = pooling(x, xs, ys, kernel, w=w)
        above.plot(xs, ys, "o", color="tab:gray", markersize=4, label="examples")
        above.plot(x, true_function(x), "--", color="black", label="true function")
        above.plot(x, pooled["prediction"], color="tab:orange", linewidth=2, label="attention")
        above.set(title=name, xlabel="x")
        image = below.imshow(pooled["weights"].numpy(), cmap="Blues", aspect="auto", vmin=0)
        below.set(xlabel="example, by x", ylabel="test point, by x")
        figure.colorbar(image, ax=below)
    axes[0, 0].legend()
    figure.savefig(path, dpi=120)
