"""ViT-B/16 for a size of images, which torchvision's builder takes among its keyword arguments."""

import torchvision


def vit_b_16(image_size: int) -> torchvision.models.VisionTransformer:
    """Logits of shape (batch, 1000) from images of shape (batch, 3, image_size, image_size)."""
    return torchvision.models.vit_b_16(image_size=image_size)
