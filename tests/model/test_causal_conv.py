import pytest
import torch
import torch.nn.functional as F

from model.causal_conv import CausalConv
from model.positions import Places

B, T, C = 2, 7, 5

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("width", [2, 3, 9])
def test_it_equals_pytorchs_convolution_with_one_group_per_channel(width):
    conv, x = CausalConv(C, width), torch.randn(B, T, C)
    torch.nn.init.normal_(conv.weight)
    filters = torch.cat((conv.weight.flip(0), torch.ones(1, 1, C))).permute(2, 1, 0)  # (C, 1, W), the oldest first
    expected = F.conv1d(F.pad(x.mT, (width - 1, 0)), filters, groups=C).mT
    torch.testing.assert_close(conv(x, Places(slice(0, T))), expected)


def test_the_weights_are_not_matrices_and_so_are_not_orthogonalised():
    assert CausalConv(C, 3).weight.ndim == 3
