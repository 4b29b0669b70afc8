"""The lanes `tensorflow` (`tf.function`) and `tensorflow-xla` (compiled by XLA); TensorFlow is not imported."""

from fwbench.record.lanes import NVIDIA, Lane, compiled

_TENSORFLOW = Lane(
    name="tensorflow",
    framework="tensorflow",
    title="TensorFlow (tf.function)",
    adapter=f"{__package__}.adapter:FRAMEWORK",
    distributions=("tensorflow", "keras"),
    libraries=NVIDIA,
    environment={
        "TF_NUM_INTRAOP_THREADS": "{threads}",
        "TF_NUM_INTEROP_THREADS": "{threads}",
        # TensorFlow would open every GPU that it sees.
        "CUDA_VISIBLE_DEVICES": {"cpu": "-1"},
        # TensorFlow's pool would take the whole GPU at start, and a memory meter would see nothing but the pool.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    },
    # Longer than TF_, with which Terraform's variables begin, too.
    recorded=(
        *("TF_AUTOTUNE_", "TF_CPU_", "TF_CUBLAS", "TF_CUDA_", "TF_CUDNN_", "TF_DETERMINISTIC_", "TF_DISABLE_"),
        *("TF_ENABLE_", "TF_FORCE_", "TF_GPU_", "TF_NUM_", "TF_ONEDNN_", "TF_USE_", "TF_XLA_", "XLA_", "ONEDNN_"),
    ),
    parity=f"{__package__}.parity:TensorFlowSide",
    networks={
        "resnet50": f"{__package__}.resnet:ResNet50",
        "vit_b_16": f"{__package__}.vit:ViTB16",
        "mobilenet_v3_small": f"{__package__}.mobilenet_v3:MobileNetV3Small",
        "efficientnet_b0": f"{__package__}.efficientnet:EfficientNetB0",
        "mlp": f"{__package__}.mlp:MLP",
        "cnn": f"{__package__}.cnn:CNN",
    },
    processes={"cpu": "device", "gpu": "device"},
)

LANES = (_TENSORFLOW, compiled(_TENSORFLOW, "tensorflow-xla", "TensorFlow (XLA)"))
