"""Networks of libraries, from their configurations: nothing is downloaded."""

import timm
from torch import nn
from transformers import BertConfig, BertForMaskedLM


def resnet() -> nn.Module:
    return timm.create_model("resnet10t", num_classes=10)


def bert(length: int) -> nn.Module:
    sizes = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 64}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": length}
    return BertForMaskedLM(BertConfig(**sizes, **layers))
