"""The models of the suite, and the empty one that prices the harness."""

from typing import Any

from fwbench.models.inputs import image, normal, tokens
from fwbench.models.model import Model

_IMAGENET: dict[str, Any] = {
    "inputs": image("image_size", "image_size", 3),
    "axes": {"image_size": 224},
    "classes": 1000,
    "published": True,
}
_JAX = "fwbench.frameworks.jax"
_TORCH = "fwbench.frameworks.torch"

CATALOG = {
    model.name: model
    for model in (
        Model(
            "resnet50",
            title="ResNet-50 v1.5",
            torch="torchvision.models:resnet50",
            jax=f"{_JAX}.resnet:ResNet50",
            **_IMAGENET,
            parameters=25_557_032,
            macs=4.089e9,
            source="He et al., arXiv:1512.03385, with the stride in the 3x3 convolution; figures: torchvision",
            proof_axes={"image_size": 32},
            proof_batch=32,
        ),
        Model(
            "vit_b_16",
            title="ViT-B/16",
            torch=f"{_TORCH}.vit:vit_b_16",
            jax=f"{_JAX}.vit:ViTB16",
            weights={r"in_proj\.": "in_proj_"},
            **_IMAGENET,
            parameters=86_567_656,
            macs=17.564e9,
            source="Dosovitskiy et al., arXiv:2010.11929; figures: torchvision",
            conv="lecun_trunc_normal",
            linear="xavier_uniform",
            proof_axes={"image_size": 64},
        ),
        Model(
            "mobilenet_v3_small",
            title="MobileNetV3-Small",
            torch="torchvision.models:mobilenet_v3_small",
            jax=f"{_JAX}.mobilenet_v3:MobileNetV3Small",
            **_IMAGENET,
            parameters=2_542_856,
            macs=0.057e9,
            source="Howard et al., arXiv:1905.02244; figures: torchvision",
            linear="normal_0.01",
            proof_axes={"image_size": 32},
        ),
        Model(
            "efficientnet_b0",
            title="EfficientNet-B0",
            torch="torchvision.models:efficientnet_b0",
            jax=f"{_JAX}.efficientnet:EfficientNetB0",
            **_IMAGENET,
            parameters=5_288_548,
            macs=0.386e9,
            source="Tan and Le, arXiv:1905.11946; figures: torchvision",
            linear="uniform_fan_out",
            proof_axes={"image_size": 32},
        ),
        # 784-256-128-10 with ReLU, the course report's network. The figures follow from the layer sizes.
        Model(
            "mlp",
            title="MLP 784-256-128-10",
            torch=f"{_TORCH}.mlp:MLP",
            jax=f"{_JAX}.mlp:MLP",
            inputs=normal(784),
            classes=10,
            parameters=784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10,
            macs=784 * 256 + 256 * 128 + 128 * 10,
            source="MNIST course report",
        ),
        # Three 3x3 convolutions with ReLU (32, 64, 128 channels), 2x2 max pooling after the first two, global average
        # pooling, one linear layer. docs/models.md says why.
        Model(
            "cnn",
            title="small CNN",
            torch=f"{_TORCH}.cnn:CNN",
            jax=f"{_JAX}.cnn:CNN",
            inputs=image(32, 32, 3),
            classes=10,
            parameters=3 * 32 * 9 + 32 + 32 * 64 * 9 + 64 + 64 * 128 * 9 + 128 + 128 * 10 + 10,
            macs=3 * 32 * 9 * 32 * 32 + 32 * 64 * 9 * 16 * 16 + 64 * 128 * 9 * 8 * 8 + 128 * 10,
            source="three-framework study; defined here, see docs/models.md",
        ),
        # The size that a CPU serves in milliseconds a token; its `axes` give any other. The figures follow from these.
        Model(
            "decoder",
            title="decoder, 25 M",
            torch=f"{_TORCH}.decoder:Decoder",
            jax=f"{_JAX}.decoder:Decoder",
            inputs=tokens("length", vocabulary=8192),
            axes={"length": (128, 1024)},
            state={"torch": f"{_TORCH}.decoder:cache", "jax": f"{_JAX}.decoder:cache"},
            classes=8192,
            parameters=8192 * 512 + 8 * (2 * 512 * 512 + 2 * 512 * 128 + 3 * 512 * 1280 + 2 * 512) + 512,
            source="Touvron et al., arXiv:2302.13971, with grouped queries; defined here, see docs/models.md",
            proof_axes={"length": 16},
        ),
        # It computes nothing, and prices the harness.
        Model("noop", title="no-op", inputs=normal(1), classes=1, parameters=0, macs=0, source="harness"),
    )
}
