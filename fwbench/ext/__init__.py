"""Extensions, a folder each; an extension's `EXTENSION` lists its additions (`fwbench.extensions`)."""
