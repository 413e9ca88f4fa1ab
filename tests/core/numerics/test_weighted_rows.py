"""Weighted sums of rows equal plain indexing, forward and backward."""

import pytest
import torch

from gpo.numerics.weighted_rows import RowTable


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_sums_and_gradients_are_those_of_plain_indexing(dtype, index_dtype):
    content = torch.randn(5, 3, 8).to(dtype).requires_grad_()
    index = torch.randint(0, 30, (40, 4), dtype=index_dtype)
    weights, target = torch.rand(40, 4, requires_grad=True), torch.randn(40, 4)
    fast = RowTable.of(content).weighted(index, weights, 4)
    plain = (content.view(-1, 4)[index.long()] * weights.unsqueeze(-1)).sum(1)
    tolerance = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(fast.float(), plain.float(), **tolerance)
    gradients = (
        torch.autograd.grad((one * target).sum(), (content, weights)) for one in (fast, plain)
    )
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, **tolerance)
