import fwbench

gpt2 = fwbench.Model(
    "small-gpt2",
    torch="mine.torch_gpt2:GPT2",
    jax="mine.jax_gpt2:GPT2",
    inputs=fwbench.tokens("length", vocabulary=512),
    axes={"length": (32, 128)},
    weights={r"^": "transformer."},
    state={"torch": "mine.torch_gpt2:cache", "jax": "mine.jax_gpt2:cache"},
)


@fwbench.benchmark(gpt2, modes=["prefill", "decode"], batch_sizes=[1, 8])
def test_gpt2(fwbench_measure):
    fwbench_measure()
