"""One row a model: shapes, published size and cost, source, and how its weights are drawn."""

from dataclasses import dataclass
from typing import Literal

ConvInit = Literal["kaiming_normal_fan_out", "lecun_trunc_normal"]
LinearInit = Literal["uniform_fan_in", "uniform_fan_out", "normal_0.01", "xavier_uniform"]


@dataclass(frozen=True)
class Model:
    """A network that every framework can build.

    Attributes:
        input_shape: of one sample; images are (height, width, channels), as decoders deliver them.
        classes: length of the logits.
        parameters: published count of trainable numbers; the built model must match it exactly.
        macs: published multiply-accumulates of one sample's forward pass, counting convolutions, matrix products and
            attention, nothing element-wise; the built model must match it within 2 %.
        source: of the definition and of the two figures.
        conv, linear: rules by which `fwbench.models.weights` draws these layers' weights.
        torchvision: whether PyTorch's definition is torchvision's builder of the same name.
        sized: whether weights depend on the images' size (position embeddings); its builders then take `image_size`.
    """

    name: str
    title: str
    input_shape: tuple[int, ...]
    classes: int
    parameters: int
    macs: float
    source: str
    conv: ConvInit = "kaiming_normal_fan_out"
    linear: LinearInit = "uniform_fan_in"
    torchvision: bool = False
    sized: bool = False

    @property
    def options(self) -> dict[str, int]:
        """What a builder must know beside the model's name."""
        return {"image_size": self.input_shape[0]} if self.sized else {}


_IMAGENET = (224, 224, 3)

CATALOG = {
    model.name: model
    for model in (
        Model(
            "resnet50",
            "ResNet-50 v1.5",
            _IMAGENET,
            1000,
            25_557_032,
            4.089e9,
            "He et al., arXiv:1512.03385, with the stride in the 3x3 convolution; figures: torchvision",
            torchvision=True,
        ),
        Model(
            "vit_b_16",
            "ViT-B/16",
            _IMAGENET,
            1000,
            86_567_656,
            17.564e9,
            "Dosovitskiy et al., arXiv:2010.11929; figures: torchvision",
            conv="lecun_trunc_normal",
            linear="xavier_uniform",
            torchvision=True,
            sized=True,
        ),
        Model(
            "mobilenet_v3_small",
            "MobileNetV3-Small",
            _IMAGENET,
            1000,
            2_542_856,
            0.057e9,
            "Howard et al., arXiv:1905.02244; figures: torchvision",
            linear="normal_0.01",
            torchvision=True,
        ),
        Model(
            "efficientnet_b0",
            "EfficientNet-B0",
            _IMAGENET,
            1000,
            5_288_548,
            0.386e9,
            "Tan and Le, arXiv:1905.11946; figures: torchvision",
            linear="uniform_fan_out",
            torchvision=True,
        ),
        # 784-256-128-10 with ReLU, the course report's network. The figures follow from the layer sizes.
        Model(
            "mlp",
            "MLP 784-256-128-10",
            (784,),
            10,
            784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10,
            784 * 256 + 256 * 128 + 128 * 10,
            "MNIST course report",
        ),
        # Three 3x3 convolutions with ReLU (32, 64, 128 channels), 2x2 max pooling after the first two, global average
        # pooling, one linear layer. docs/models.md says why.
        Model(
            "cnn",
            "small CNN",
            (32, 32, 3),
            10,
            3 * 32 * 9 + 32 + 32 * 64 * 9 + 64 + 64 * 128 * 9 + 128 + 128 * 10 + 10,
            3 * 32 * 9 * 32 * 32 + 32 * 64 * 9 * 16 * 16 + 64 * 128 * 9 * 8 * 8 + 128 * 10,
            "three-framework study; defined here, see docs/models.md",
        ),
        # Nothing to compute: prices the harness.
        Model("noop", "no-op", (1,), 1, 0, 0, "harness"),
    )
}
