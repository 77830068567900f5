"""Checkpoints as files tell them: configuration, tokenizer and tensor headers; never the weights themselves."""
