"""Epochs of training on data, mode `fit`: the loaders, the loop with the shares of its time, and the accuracy."""

from fwbench.extensions import Extension

EXTENSION = Extension(fit="fwbench.ext.epochs.measuring:opened")
