"""The smallest network with batch normalisation and dropout, in PyTorch and in JAX, for the processes of a proof."""


def torch_net():
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3, padding=1, bias=False)
            self.norm = torch.nn.BatchNorm2d(4)
            self.drop = torch.nn.Dropout(0.5)
            self.fc = torch.nn.Linear(4, 3)

        def forward(self, x):
            x = torch.relu(self.norm(self.conv(x)))
            return self.fc(self.drop(x.mean((2, 3))))

    return Net()


def jax_net(rngs):
    import jax
    from flax import nnx

    from fwbench.frameworks.jax.layers import BatchNorm, conv, global_average_pool

    class Net(nnx.Module):
        def __init__(self):
            self.conv = conv(3, 4, 3, rngs=rngs)
            self.norm = BatchNorm(4, rngs=rngs)
            self.drop = nnx.Dropout(0.5)
            self.fc = nnx.Linear(4, 3, rngs=rngs)

        def __call__(self, x, rngs):
            x = jax.nn.relu(self.norm(self.conv(x)))
            return self.fc(self.drop(global_average_pool(x), rngs=rngs))

    return Net()


def with_streams(rngs):
    """In JAX, with a dropout that keeps its own stream of random keys."""
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self):
            self.drop = nnx.Dropout(0.5, rngs=rngs)
            self.fc = nnx.Linear(784, 10, rngs=rngs)

        def __call__(self, x):
            return self.fc(self.drop(x))

    return Net()
