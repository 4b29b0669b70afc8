"""Networks as users of PyTorch write and import them, right ones and wrong ones."""

import torch
from torch import nn
from torch.nn import functional
from transformers.modeling_outputs import TokenClassifierOutput


def of_timm(name, **options):
    import timm

    return timm.create_model(name, num_classes=7, **options)


def vision_transformer(image_size):
    return of_timm("vit_tiny_patch16_224", img_size=image_size, embed_dim=32, depth=2, num_heads=2)


def resnet():
    return of_timm("resnet10t")


def swin():
    small = {"img_size": 32, "window_size": 4, "embed_dim": 16, "depths": (1, 1), "num_heads": (2, 2)}
    return of_timm("swin_tiny_patch4_window7_224", **small)


def bert():
    from transformers import BertConfig, BertForTokenClassification

    return BertForTokenClassification(
        BertConfig(
            vocab_size=1000,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=64,
            num_labels=5,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


class GPT(nn.Module):
    """A language model of one block whose output layer is its embedding."""

    def __init__(self, length):
        super().__init__()
        self.embedding = nn.Embedding(1000, 32)
        self.position = nn.Parameter(torch.zeros(length, 32))
        self.block = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 1000, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position
        return self.head(self.block(x, src_mask=self.mask, is_causal=True))


class Tagger(nn.Module):
    """What BERT takes and returns, and nothing of what is between."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, input_ids, attention_mask):
        return TokenClassifierOutput(logits=self.head(self.embedding(input_ids) * attention_mask.unsqueeze(-1)))


class Bigram(nn.Module):
    """What GPT ties, and nothing of what is between."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 16)
        self.head = nn.Linear(16, 1000, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def attention(query, key, value):
    return torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, -1) @ value


def roll(x, by):
    return x.roll(by, -1)


def attention_of(heads):
    return lambda x: functional.scaled_dot_product_attention(*(x.unflatten(-1, (heads, -1)),) * 3)


class Normalised(nn.Module):
    """Batch normalisation, and two outputs."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.norm(x), self.fc(self.norm(x))


class Named(nn.Module):
    """A dict of outputs from a mask and numbers, with constants of its own."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 3)
        self.register_buffer("factor", torch.full((8,), 3.0))
        self.register_buffer("turn", torch.tensor([1 + 2j]))

    def forward(self, x, mask):
        return {"kept": self.fc(torch.where(mask, x, 0) * self.factor), "turned": x[:, :1] * self.turn}


class Curious(nn.Module):
    """Reads its weights, calls itself and asks tensors for their numbers while it is being built."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 3)
        nn.init.normal_(self.fc.weight, 2.0, 0.5)
        self.fc.weight.data.mul_(2)
        self.register_buffer("mean", self.fc.weight.detach().mean())
        self.register_buffer("first", self.fc(torch.ones(1, 8)).detach())
        self.register_buffer("noise", torch.rand(3))
        self.count = nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False)
        self.count.fill_(int(torch.tensor(2.0).item()))
        self.untouched = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(x) + self.count + self.noise


def sum_of(output):
    return output.square().sum()


def distance(output, targets):
    return (output - targets).abs().mean()


def per_sample(output):
    return output.sum(-1)


def of_numpy(output):
    return output.detach().numpy().sum()


class Head(nn.Linear):
    """A linear layer whose input has a name."""

    def __init__(self):
        super().__init__(8, 3)

    def forward(self, x):
        return super().forward(x)


# Wrong ones.

LEARNING = 3


def raising():
    raise ValueError("no such depth")


def number():
    return 3


def a_class():
    return Normalised


def configured(config):
    return config


class Configured(nn.Module):
    def __init__(self, config):
        super().__init__()


def lazy():
    return nn.LazyLinear(3)


def meta():
    with torch.device("meta"):
        return nn.Linear(8, 3)


built = nn.Linear(8, 3)


class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(9, 3)

    def forward(self, x):
        return self.fc(x)


class Mean(nn.Module):
    """Loses the batch."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(x).mean(0)


class Hungry(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        raise torch.OutOfMemoryError("CUDA out of memory")


def frozen():
    return nn.Linear(8, 3).requires_grad_(False)


class Decay(nn.Module):
    """Starts from log 1..16, ones and zeros, as a state-space layer does."""

    def __init__(self):
        super().__init__()
        self.log_rates = nn.Parameter(torch.log(torch.arange(1.0, 17.0)))
        self.gain = nn.Parameter(torch.ones(16))
        self.shift = nn.Parameter(torch.zeros(16))
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc(x * torch.exp(-torch.exp(self.log_rates)) * self.gain + self.shift)


class Tempered(nn.Module):
    """Divides by a temperature, a parameter without axes."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(x) / self.temperature
