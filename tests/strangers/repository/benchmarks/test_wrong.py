import fwbench

PATHS = {
    "right": "mine.wrong:Right",
    "no-batch": "mine.wrong:NoBatch",
    "tuple": "mine.wrong:Tuple",
    "raises": "mine.wrong:raises",
    "number": "mine.wrong:number",
    "endless": "mine.wrong:endless",
    "no-module": "mine.worng:Right",
    "no-name": "mine.wrong:Rigth",
}
models = [fwbench.Model(name, torch=path, inputs=fwbench.normal(4)) for name, path in PATHS.items()]


@fwbench.benchmark(*models, lanes=["torch"], batch_sizes=[2])
def test_wrong(fwbench_measure):
    fwbench_measure()


@fwbench.benchmark(models[0], lanes=["pytorch"])
def test_lane(fwbench_measure):
    fwbench_measure()
