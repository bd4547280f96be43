"""
JAX: ``framework="jax"`` gives each worker what ``jax.distributed.initialize()`` reads; torch has no part in it.

    python examples/launch/jax_train.py --hosts node1 node2 --workers 2
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import lattice
from trained import FEATURES, Trained, checksum, numbers, settings, show


def loss(weights: jax.Array, some: jax.Array, wanted: jax.Array) -> jax.Array:
    return jnp.mean((some @ weights - wanted) ** 2)


@jax.jit
def step(weights: jax.Array, some: jax.Array, wanted: jax.Array) -> jax.Array:
    # The mean is over the batch of all workers: JAX adds up their gradients by itself.
    return weights - 0.02 * jax.grad(loss)(weights, some, wanted)


def train(epochs: int = 3, batch: int = 32) -> Trained:
    jax.distributed.initialize()
    rank, world = jax.process_index(), jax.process_count()
    mesh = Mesh(jax.devices(), ("data",))
    split, copied = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    inputs, targets = numbers()

    def part(rows: slice) -> list[jax.Array]:
        """Give every worker its part of some rows, as one array of all."""
        mine = range(len(inputs))[rows][rank::world]
        return [jax.make_array_from_process_local_data(split, whole[mine]) for whole in (inputs, targets)]

    weights = jax.device_put(jnp.zeros((FEATURES, 1)), copied)
    before = float(jax.jit(loss)(weights, *part(slice(None))))
    samples = 0
    for _ in range(epochs):
        for first in range(0, len(inputs), batch):
            some, wanted = part(slice(first, first + batch))
            samples += sum(len(shard.data) for shard in some.addressable_shards)
            weights = step(weights, some, wanted)
    after = float(jax.jit(loss)(weights, *part(slice(None))))
    return Trained(rank, world, samples, before, after, checksum([weights.addressable_data(0)]))


if __name__ == "__main__":
    show(lattice.launch(train, framework="jax", backend=None, **settings("Train with JAX.")))
