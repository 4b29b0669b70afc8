"""GPT-2 of transformers with its static cache."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, StaticCache

STEPS = 256
CONFIG = GPT2Config(
    vocab_size=512, n_positions=STEPS, n_embd=64, n_layer=2, n_head=4, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0
)


class GPT2(GPT2LMHeadModel):
    def __init__(self):
        super().__init__(CONFIG)
        self.cache = StaticCache(CONFIG, STEPS)

    def forward(self, tokens, state=None):
        if state is None:
            return super().forward(tokens, use_cache=False).logits, None
        for layer, (keys, values, position) in zip(self.cache.layers, state, strict=True):
            layer.keys, layer.values, layer.cumulative_length = keys, values, position
            layer.device, layer.is_initialized = keys.device, True
        return super().forward(tokens, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits[:, 0], state


def cache(batch_size):
    shape = batch_size, CONFIG.n_head, STEPS, CONFIG.n_embd // CONFIG.n_head
    return [(torch.zeros(shape), torch.zeros(shape), torch.tensor(0)) for _ in range(CONFIG.n_layer)]
