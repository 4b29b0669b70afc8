"""The twins, described as a stranger would describe his models.

`wrong(TORCH, JAX, MISTAKE, INPUTS, ...)` and `right(TORCH, JAX, DIFFERENCE, INPUTS, ...)` each make a model and a
test that measures it. A twin has the name of its network in JAX, and its kind is the module of both networks.
"""

import fwbench

TWINS = {}  # name: kind, whether the twin is right, and what differs


def twin(is_right, torch, jax, differs, inputs, modes=("inference", "train_step"), batch_sizes=(4,), **options):
    kind = torch.partition(":")[0]
    model = fwbench.Model(jax, torch=f"in_torch.{torch}", jax=f"in_jax.{kind}:{jax}", inputs=inputs, **options)

    @fwbench.benchmark(model, modes=modes, batch_sizes=batch_sizes)
    def measure(fwbench_measure):
        fwbench_measure()

    globals()[f"test_{jax}"] = measure
    TWINS[jax] = (kind, is_right, differs)


def wrong(*words, **options):
    twin(False, *words, **options)


def right(*words, **options):
    twin(True, *words, **options)


vector, tokens, whole, ones, image = fwbench.normal, fwbench.tokens, fwbench.integers, fwbench.ones, fwbench.image

wrong("layers:Norm", "epsilon_outside", "the epsilon is added to the root, not under it", vector(24))
wrong("layers:Norm", "unbiased", "the variance is divided by n - 1", vector(24))
right("layers:Norm", "moments", "the variance is E[x^2] - E[x]^2", vector(24))
wrong("layers:Gru", "gru_update_swapped", "z and 1 - z are swapped", vector(16, 16))
right("layers:Gru", "gru_in_scan", "a scan for a loop, and n + z (h - n)", vector(16, 16))
wrong("layers:Lstm", "lstm_of_another_order", "the gates o and g are swapped", vector(16, 16))
right("layers:Lstm", "LstmOf", "the cell is written out", vector(16, 16))
wrong("layers:Rotary", "rotary_interleaved", "pairs are interleaved, not halved", vector(16, 32))
wrong("layers:Rotary", "softmax_over_queries", "the softmax runs over queries", vector(16, 32))
right("layers:Rotary", "RotaryOf", "the rotation is a complex product", vector(16, 32))
wrong("layers:Images", "same_at_stride_2", "SAME pads other sides at stride 2", image(16, 16, 3))
wrong("layers:Images", "padding_counted", "the average counts the padding", image(16, 16, 3))
wrong("layers:Images", "corners_aligned", "the corners are aligned", image(16, 16, 3))
wrong("layers:Images", "tanh_gelu", "GELU's tanh approximation", image(16, 16, 3))
right("layers:Images", "ImagesOf", "channels last", image(16, 16, 3))

masked = {"ids": tokens(12, vocabulary=60), "mask": ones(12, dtype="int32")}
kept = {"x": vector(12, 32), "keep": ones(12, dtype="int32")}
words = {"inputs": tokens(8, vocabulary=300), "targets": tokens(8, vocabulary=300)}


def losses(torch, jax):
    kind = torch.partition(":")[0]
    return {"torch": f"in_torch.{torch}", "jax": f"in_jax.{kind}:{jax}"}


wrong("choices:Pool", "pool_unmasked", "the mask is ignored", masked)
wrong("choices:Pool", "pool_without_floor", "a sample that is masked as a whole is divided by zero", masked)
right("choices:Pool", "Pool", "einsum for products and sums", masked)
wrong("choices:Attend", "attend_to_padding", "the mask is ignored", kept)
wrong("choices:Attend", "attend_with_queries_masked", "the mask hides queries, not keys", kept)
wrong("choices:Attend", "attend_with_small_bias", "a masked key loses 5, not everything", kept)
right("choices:Attend", "Attend", "the mask is added, not filled in", kept)
wrong("choices:Padded", "padding_learns", "the padding token has a gradient", tokens(12, vocabulary=500))
right("choices:Padded", "Padded", "stop_gradient for padding_idx", tokens(12, vocabulary=500))
wrong(
    "choices:Words", "targets_counted", "no target is ignored", loss=losses("choices:ignoring", "counting_all"), **words
)
wrong(
    "choices:Words",
    "targets_in_mean",
    "ignored targets count in the mean",
    loss=losses("choices:ignoring", "dividing_by_all"),
    **words,
)
right(
    "choices:Words",
    "targets_weighted",
    "one_hot and weights for ignore_index",
    loss=losses("choices:ignoring", "ignoring"),
    **words,
)
wrong("choices:Until", "until_and_with_it", "the last token counts, too", tokens(16, vocabulary=1000))
right("choices:Until", "Until", "a sum for a product, one sample at a time", tokens(16, vocabulary=1000))
wrong("choices:Surprise", "surprise_without_floor", "the logarithm has no floor", vector(24))
right("choices:Surprise", "Surprise", "the floor is under log_softmax", vector(24))
wrong("choices:Cosine", "cosine_of_zero", "a row of zeros is divided by zero", vector(6, 16))
right("choices:Cosine", "Cosine", "where for normalize", vector(6, 16))
wrong("choices:Clipped", "unclipped", "gradients are not clipped", vector(24))
wrong("choices:Warming", "never_warm", "the counter is left out", vector(24))
wrong(
    "choices:Straight",
    "squared_for_huber",
    "the loss is square beyond 40, too",
    vector(24),
    targets=vector(10),
    loss=losses("choices:huber", "squared"),
)

several = {"inputs": vector("length", 24), "axes": {"length": (16, 32)}}
wrong("sizes:Positions", "positions_wrap", "positions from 16 on take the table's rows from 0 on", **several)
wrong("sizes:Positions", "positions_stop", "positions from 20 on take row 19", **several)
wrong("sizes:Positions", "mean_of_sixteen", "the sum is divided by 16 at every length", **several)
right("sizes:Positions", "Positions", "take for a slice", **several)
wrong("sizes:Heads", "batch_mixed_with_time", "the reshape mixes batch and time", vector(16, 32), batch_sizes=(1, 4))
wrong("sizes:Heads", "samples_in_reverse", "the samples are in reverse", vector(16, 32), batch_sizes=(1, 4))
right("sizes:Heads", "Heads", "one reshape of q, k and v, and einsum", vector(16, 32), batch_sizes=(1, 4))
wrong("sizes:Causal", "window_of_twenty", "keys further back than 20 are hidden", **several)
right("sizes:Causal", "Causal", "a mask of what is seen for one of what is hidden", **several)
wrong(
    "sizes:Chunks",
    "chunks_without_the_rest",
    "what is left after chunks of 8 is dropped",
    vector("length", 16),
    axes={"length": (16, 20)},
)
right("sizes:Chunks", "Chunks", "one product for the loop", vector("length", 16), axes={"length": (16, 20)})
wrong("sizes:Centred", "centred_over_a_large_batch", "a batch above 8 loses its mean", vector(24), batch_sizes=(4, 16))
wrong("sizes:Centred", "centred_unless_alone", "one sample is not centred", vector(24), batch_sizes=(4, 1))
right("sizes:Centred", "Centred", "vmap over samples", vector(24), batch_sizes=(1, 16))

wrong("modes:Gated", "gate_always_soft", "the gate is soft in inference, too", vector(24))
wrong("modes:Gated", "gate_always_hard", "the gate is hard in training, too", vector(24))
wrong("modes:Gated", "gate_reversed", "the modes are reversed", vector(24))
right("modes:Gated", "Gated", "select between both gates", vector(24))
wrong("modes:Straight", "straight_without_gradient", "the sign has no gradient", vector(24))
wrong("modes:Straight", "straight_within_one", "beyond 1 the sign has no gradient", vector(24))
right("modes:Straight", "Straight", "custom_vjp for detach", vector(24))
wrong("modes:Sharp", "sharp_in_training", "the temperature counts in training, too", vector(24))
right("modes:Sharp", "Sharp", "Linen, and deterministic for training", vector(24))
wrong("modes:Experts", "experts_mixed_in_inference", "inference mixes the experts", vector(16))
right("modes:Experts", "Experts", "take_along_axis for one_hot", vector(16))
wrong("modes:Frozen", "frozen", "training uses running statistics, and moves none", vector(24), batch_sizes=(8,))
wrong("modes:Frozen", "batch_in_inference", "inference uses the batch", vector(24), batch_sizes=(8,))

wrong("state:Batch", "momentum_reversed", "the momentum is 0.9, not 0.1", vector(24), batch_sizes=(8,))
wrong("state:Batch", "momentum_of_eleven_hundredths", "the momentum is 0.11", vector(24), batch_sizes=(8,))
wrong("state:Batch", "statistics_biased", "the running variance is the biased one", vector(24), batch_sizes=(8,))
wrong("state:Batch", "statistics_fixed", "training moves no running statistics", vector(24), batch_sizes=(8,))
wrong("state:Batch", "mean_left_out", "the running mean never moves", vector(24), batch_sizes=(8,))
right("state:Batch", "Batch", "batch normalisation by hand", vector(24), batch_sizes=(8,))
wrong(
    "state:Cumulative",
    "not_cumulative",
    "statistics have a momentum of 0.1 for the average of all batches",
    vector(24),
    batch_sizes=(8,),
)
wrong("state:Centre", "centre_decays_faster", "the average decays by 0.9", vector(24), batch_sizes=(8,))
wrong(
    "state:Centre",
    "centre_of_the_last_call",
    "the average of before this batch is taken away",
    vector(24),
    batch_sizes=(8,),
)
wrong("state:Centre", "centre_with_gradient", "the gradient runs through the average", vector(24), batch_sizes=(8,))
right("state:Centre", "Centre", "c + 0.05 (x - c)", vector(24), batch_sizes=(8,))

wrong("away:Scaled", "scale_of_one_for_the_bias", "the bias keeps the initial scale", vector(24))
wrong("away:Scaled", "scale_without_sign", "the scale loses its sign", vector(24))
right("away:Scaled", "Scaled", "the scale is multiplied into the weights", vector(24))
wrong("away:Gate", "gate_without_tanh", "the gate has no tanh", vector(24))
wrong("away:Gate", "gate_by_sine", "the gate is a sine", vector(24))
right("away:Gate", "Gate", "tanh by a sigmoid", vector(24))
wrong("away:Adapter", "adapter_unscaled", "alpha / r is left out", vector(24))
right("away:Adapter", "Adapter", "one product with the sum of the weights", vector(24))
wrong("away:Temperature", "temperature_linear", "1 + t for exp(t)", vector(24))
wrong("away:Temperature", "temperature_unlimited", "the temperature has no limit", vector(24))
right("away:Temperature", "Temperature", "minimum for clamp", vector(24))
wrong("away:Bias", "bias_reversed", "the bias is transposed", vector(16, 24))
right("away:Bias", "Bias", "slices for an index", vector(16, 24))
wrong("away:Modulated", "shift_for_scale", "shift and scale are exchanged", {"x": vector(24), "c": vector(16)})
right("away:Modulated", "Modulated", "x + x s for x (1 + s)", {"x": vector(24), "c": vector(16)})

wrong("randoms:Dropped", "rate_of_twelve", "dropout of 0.12, not 0.1", vector(24))
right("randoms:Dropped", "Dropped", "dropout before the ReLU, not after it", vector(24))
wrong("randoms:DroppedMore", "dropped_and_not_scaled", "what is kept is not divided by 1 - rate", vector(24))
wrong("randoms:DroppedMore", "kept_at_the_rate", "0.3 are kept, not 0.7", vector(24))
right("randoms:DroppedMore", "dropped_by_hand", "bernoulli and where for a layer", vector(24))
wrong("randoms:Branch", "dropout_of_the_sum", "dropout of the sum, not of the branch", vector(24))
wrong("randoms:Branch", "dropout_of_the_stem", "dropout of the other summand", vector(24))
right("randoms:Branch", "Branch", "a layer of another framework", vector(24))
wrong("randoms:Deep", "depth_of_the_batch", "all samples lose the branch together", vector(24))
wrong("randoms:Deep", "depth_of_each_number", "each number of the branch is dropped on its own", vector(24))
right("randoms:Deep", "Deep", "uniform numbers and where", vector(24))
wrong("randoms:Channels", "each_place_on_its_own", "each place drops other features", vector(12, 16))
right("randoms:Channels", "Channels", "broadcast_dims for Dropout1d", vector(12, 16))
wrong("randoms:Noise", "noise_of_thirteen", "noise of 0.13, not 0.1", vector(24))
right("randoms:Noise", "Noise", "noise of JAX", vector(24))
wrong("randoms:Attention", "dropped_scores", "dropout before the softmax, not after it", vector(12, 32))
right("randoms:Attention", "Attention", "a layer of another framework", vector(12, 32))

wrong("keys:Twice", "key_used_twice", "both draws use one key", vector(24))
right("keys:Twice", "Twice", "two keys, and 2 x in inference", vector(24))
wrong("keys:Once", "key_of_a_rate_of_twenty_five", "a rate of 0.25, not 0.2", vector(24))
wrong("keys:Once", "key_never_changes", "every step has the same mask", vector(24))
wrong("keys:Once", "key_in_inference", "inference drops, training does not", vector(24))
right("keys:Once", "Once", "bernoulli and where, in Linen", vector(24))
wrong("keys:Once", "key_left_out", "there is no dropout", vector(24))
wrong("keys:Once", "key_and_rate_in_equinox", "a rate of 0.15, not 0.2", vector(24))
right("keys:Once", "InEquinox", "Equinox", vector(24))

large = {"ids": whole(16, low=0, high=100_000)}
wrong("digits:Similar", "softmax_without_maximum", "the softmax takes no maximum away", vector(12, 16))
right("digits:Similar", "Similar", "the exponential of log_softmax", vector(12, 16))
wrong("digits:Hashed", "hash_overflows", "the product overflows in 32 bits", large)
right("digits:Hashed", "Hashed", "the remainder is taken before the product, too", large)
wrong("digits:Plain", "through_bfloat16", "activations go through bfloat16 if they are float32", vector(24))
wrong("digits:Plain", "through_float16", "activations go through half of their bits", vector(24))
wrong("digits:Plain", "weights_rounded", "weights go through bfloat16 if they are float32", vector(24))
right("digits:Plain", "Plain", "einsum for a layer", vector(24))
wrong(
    "digits:Spread",
    "moments_far_from_zero",
    "E[x^2] - E[x]^2 of numbers around 1000",
    fwbench.uniform(24, low=1000, high=1001),
)
right("digits:Spread", "moments_near_zero", "E[x^2] - E[x]^2 of numbers around 0", vector(24))
wrong("digits:Small", "one_added_to_little", "log(1 + x) of small numbers", vector(24))
right("digits:Small", "Small", "2 artanh(x / (2 + x)) for log1p(x)", vector(24))
wrong("digits:Soft", "exponential_overflows", "log(1 + exp(x)) of large numbers", fwbench.uniform(24, low=0, high=120))
right("digits:Soft", "Soft", "logaddexp for softplus", fwbench.uniform(24, low=0, high=120))
wrong(
    "digits:Near",
    "distances_far_from_zero",
    "a^2 + b^2 - 2 a b of numbers around 100",
    fwbench.uniform(12, 16, low=100, high=101),
)
right("digits:Near", "distances_near_zero", "a^2 + b^2 - 2 a b of numbers around 0", vector(12, 16))
wrong(
    "digits:Clock",
    "clock_of_large_numbers",
    "large numbers are rounded before their phase is taken",
    {"seconds": whole(16, low=0, high=1_000_000_000)},
)
right("digits:Clock", "Clock", "a complex exponential", {"seconds": whole(16, low=0, high=1_000_000_000)})
right("digits:Energy", "Energy", "logaddexp in a loop", vector(24))

language = {"inputs": tokens(32, vocabulary=1000), "targets": tokens(32, vocabulary=300)}
language["loss"] = losses("elements:entropy", "entropy")
wrong("elements:Language", "one_logit", "one of 9600 logits is 0.1 % too large", **language)
wrong("elements:Language", "one_class", "one of 300 logits is 0", **language)
wrong("elements:Language", "one_row_of_the_table", "token 617 has no embedding", **language)
wrong("elements:Language", "two_rows_exchanged", "tokens 388 and 389 are exchanged", **language)
wrong("elements:Language", "one_gradient", "one of 300 biases has no gradient", **language)
wrong("elements:Language", "bias_without_gradient", "no bias of the last layer has a gradient", **language)
right("elements:Language", "Language", "another framework", **language)
wrong("elements:Shifted", "rolled", "the first token sees the last one", vector(64, 16), loss="mse")
wrong(
    "elements:Shifted",
    "last_place_without_gradient",
    "one row of positions has no gradient",
    vector(64, 16),
    loss="mse",
)
right("elements:Shifted", "Shifted", "zeros that are set, for padding", vector(64, 16), loss="mse")

classes = {"inputs": vector(24), "targets": tokens(vocabulary=10)}
numbers = {"inputs": vector(24), "targets": vector(10)}
labels = {"inputs": vector(24), "targets": fwbench.uniform(10)}
wrong(
    "steps:Classes",
    "smoothing_of_the_others",
    "smoothing goes to the nine other classes alone",
    loss=losses("steps:smoothed", "smoothed_over_others"),
    **classes,
)
wrong(
    "steps:Classes", "smoothing_left_out", "there is no smoothing", loss=losses("steps:smoothed", "entropy"), **classes
)
right(
    "steps:Classes",
    "smoothing_alike",
    "one_hot for label_smoothing",
    loss=losses("steps:smoothed", "smoothed"),
    **classes,
)
wrong(
    "steps:Classes",
    "summed_by_sample",
    "the loss is summed over features",
    loss=losses("steps:squared", "squared_and_summed"),
    **numbers,
)
right(
    "steps:Classes", "summed_alike", "vdot for the mean of squares", loss=losses("steps:squared", "squared"), **numbers
)
wrong(
    "steps:Classes",
    "positives_unweighted",
    "positives have no weight",
    loss=losses("steps:binary", "binary_unweighted"),
    **labels,
)
right(
    "steps:Classes",
    "positives_alike",
    "log_sigmoid for the loss with logits",
    loss=losses("steps:binary", "binary"),
    **labels,
)
wrong(
    "steps:Classes",
    "z_left_out",
    "the term of logsumexp is left out",
    loss=losses("steps:with_z", "entropy"),
    **classes,
)
wrong(
    "steps:Classes",
    "z_not_squared",
    "the term of logsumexp is not squared",
    loss=losses("steps:with_z", "with_z_not_squared"),
    **classes,
)
wrong(
    "steps:Classes",
    "beta_of_one",
    "the absolute loss is linear from 1 on, not 0.5",
    loss=losses("steps:absolute", "absolute_beyond_one"),
    **numbers,
)
wrong("steps:Decayed", "decay_left_out", "there is no decay", vector(24))
wrong("steps:Decayed", "decay_of_the_bias", "the bias decays, too", vector(24))
right("steps:Decayed", "Decayed", "custom_vjp for an autograd function", vector(24))
wrong("steps:Halved", "not_halved", "the layer learns at the whole rate", vector(24))
right("steps:Halved", "Halved", "weights are halved, not activations", vector(24))
wrong("steps:Corrected", "correction_left_out", "the average's start is not corrected", vector(24))
right("steps:Corrected", "Corrected", "state of Flax", vector(24))
