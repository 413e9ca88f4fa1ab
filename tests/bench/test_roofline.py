import torch

from gpo.bench.roofline import Machine, Work


def test_a_product_counts_two_operations_per_pair_and_a_sum_its_bytes():
    one, other = torch.randn(30, 20), torch.randn(20, 10)
    assert Work.of(lambda: one @ other) == Work(flops=2 * 30 * 20 * 10, num_bytes=0)
    # Two are read, one is written.
    assert Work.of(lambda: one + one) == Work(flops=0, num_bytes=3 * 4 * 600)
    assert Work.of(lambda: one.T.reshape(4, 150)).num_bytes == 2 * 4 * 600
    assert Work.of(lambda: one.view(20, 30).T) == Work(flops=0, num_bytes=0)


def test_a_backward_pass_counts_too():
    weight, given = torch.randn(20, 10, requires_grad=True), torch.randn(30, 20, requires_grad=True)
    forward = 2 * 30 * 20 * 10
    assert Work.of(lambda: (given @ weight).sum().backward()).flops == 3 * forward


def test_least_time_is_that_of_products_and_of_bytes_together():
    assert Work(flops=100, num_bytes=60).seconds(Machine(flops=50.0, bandwidth=20.0)) == 5
