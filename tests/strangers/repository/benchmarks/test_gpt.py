import fwbench

gpt = fwbench.Model(
    "tiny-gpt",
    torch="mine.torch_gpt:GPT",
    jax="mine.jax_gpt:GPT",
    inputs=fwbench.tokens("length", vocabulary=96),
    axes={"length": (16, 32)},
)


@fwbench.benchmark(gpt, modes=("inference", "train_step"), batch_sizes=(2,))
def test_speed(fwbench_measure):
    fwbench_measure()


@fwbench.proof(gpt)
def test_parity(fwbench_prove):
    fwbench_prove()
