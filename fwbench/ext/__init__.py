"""Extensions: a folder each, with what it adds in its `EXTENSION` (`fwbench.extensions`)."""
