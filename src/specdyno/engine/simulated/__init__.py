"""A stand-in engine with a known truth: a real process on the OpenAI-compatible wire, without a model.

Owns the command `python -m specdyno.engine.simulated`. Promises vLLM's streaming shapes, counters and start-up manners,
lossless answers, and acceptance and step times that follow a stated `Truth`. Loads no model and no numeric library,
so that a boot costs a fraction of a second. Its figures say nothing about any real engine.
"""
