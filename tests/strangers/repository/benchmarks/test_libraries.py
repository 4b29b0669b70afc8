import fwbench

resnet = fwbench.Model("resnet10t", torch="mine.libraries:resnet", inputs=fwbench.image(64, 64, 3))
bert = fwbench.Model(
    "tiny-bert",
    torch="mine.libraries:bert",
    inputs={
        "input_ids": fwbench.tokens("length", vocabulary=100),
        "attention_mask": fwbench.ones("length", dtype="int32"),
    },
    axes={"length": (8, 16)},
    output="logits",
)


@fwbench.benchmark(resnet, bert, modes=("inference", "train_step"))
def test_libraries(fwbench_measure):
    fwbench_measure()
