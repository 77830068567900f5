"""vLLM's pool of KV blocks: how many tokens a given space holds, layer groups and padding included.

The rules are those of vLLM 0.32.0 (`v1/core/kv_cache_utils.py`, `v1/kv_cache_interface.py`) for its usual layout, in
which every layer has a region of its own: layers of one kind share one block table; mixes of kinds are cut into groups
of equally many layers with pages of equal size; a request takes whole blocks in every group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from specdyno.preflight.memory.layers import Layer, LayerKind, NotModelledError


@dataclass(frozen=True, slots=True)
class PoolRules:
    """What the engine's settings fix, in vLLM's own terms."""

    max_model_len: int
    block_tokens: int
    in_flight_tokens: int  # scheduled and not yet settled: blocks behind a window are freed only afterwards
    element_bytes: int = 2
    conv_bytes: int = 2  # one element of a convolution's state
    state_bytes: int = 2  # one element of a recurrent state
    draft_tokens: int = 0
    aligned_states: bool = True  # prefix caching keeps one state more per request
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class Capacity:
    kv_tokens: int
    concurrency: float  # requests of max_model_len tokens at once
    blocks: int
    block_bytes: int  # of every layer together
    request_blocks: int  # of a request of max_model_len tokens

    @property
    def request_bytes(self) -> int:
        return self.request_blocks * self.block_bytes


@dataclass(frozen=True, slots=True)
class _Page:
    """One layer's block: its size in bytes and the tokens it holds."""

    layer: Layer
    page_bytes: int
    block_tokens: int


def capacity(layers: Sequence[Layer], budget_bytes: int, rules: PoolRules) -> Capacity:
    """What the pool holds for the layers of target and draft together. NotModelledError where vLLM refuses the mix.

    Llama 3.1 8B, 32 layers of 8 heads of 128: 131,072 bytes per token, so 1 GiB holds 8,192 tokens.

    >>> layer = Layer(LayerKind.FULL, kv_heads=8, key_dim=128, value_dim=128)
    >>> capacity([layer] * 32, 2**30, PoolRules(1024, block_tokens=16, in_flight_tokens=2048)).kv_tokens
    8192
    """
    groups = _groups(_pages(layers, rules))
    block_bytes = max(sum(page.page_bytes for page in group) for group in groups)
    request_blocks = sum(_blocks_of_request(group[0], rules) for group in groups)
    blocks = max(0, budget_bytes) // block_bytes
    concurrency = blocks / request_blocks
    return Capacity(int(concurrency * rules.max_model_len), concurrency, blocks, block_bytes, request_blocks)


def bytes_per_token(layers: Iterable[Layer], rules: PoolRules) -> int:
    """Bytes of one more token on one device in every attention layer, windows and padding aside."""
    return sum(layer.elements_per_token(rules.ranks) for layer in layers) * rules.element_bytes


def state_bytes(layers: Iterable[Layer], rules: PoolRules) -> int:
    """Bytes of one request's recurrent states, with their copies for drafted tokens."""
    return sum(_state_page(layer, rules) * _state_copies(rules) for layer in layers if layer.kind is LayerKind.STATE)


def _state_copies(rules: PoolRules) -> int:
    return (2 if rules.aligned_states else 1) + rules.draft_tokens


def _state_page(layer: Layer, rules: PoolRules) -> int:
    width, heads = layer.conv_width // rules.ranks, layer.state_heads // rules.ranks
    conv = width * (layer.conv_kernel - 1 + rules.draft_tokens) * rules.conv_bytes
    return conv + heads * layer.state_dim * rules.state_bytes


def _pages(layers: Sequence[Layer], rules: PoolRules) -> list[_Page]:
    """Each layer's page; with recurrent layers blocks grow until one holds a state, and states are padded to it."""
    tokens = rules.block_tokens
    states = [_state_page(layer, rules) for layer in layers if layer.kind is LayerKind.STATE]
    attention = [layer for layer in layers if layer.kind is not LayerKind.STATE]
    padded = max(states, default=0)
    if states and attention:
        first = attention[0].elements_per_token(rules.ranks) * rules.element_bytes
        tokens = max(tokens, tokens * _divide_up(padded, tokens * first))
        padded = tokens * first
    return [
        _Page(layer, padded, tokens)
        if layer.kind is LayerKind.STATE
        else _Page(layer, layer.elements_per_token(rules.ranks) * rules.element_bytes * tokens, tokens)
        for layer in layers
    ]


def _groups(pages: list[_Page]) -> list[list[_Page]]:
    """The layers that share a block table. All of one kind: one group, whatever the sizes of their heads."""
    if not pages:
        raise NotModelledError("it keeps nothing per token")
    if len({_sharing(page.layer) for page in pages}) == 1:
        return [pages]
    equal = _of_equal_size(pages)
    if equal is None:
        return [_at_full_length(pages)]
    buckets: dict[Layer, list[_Page]] = {}
    for page in equal:
        buckets.setdefault(page.layer, []).append(page)
    counts = [len(bucket) for bucket in buckets.values()]
    # A draft adds a layer or two to one kind: rather pad the other kind than split into twice as many groups.
    size = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    groups = []
    for bucket in buckets.values():
        number = _divide_up(len(bucket), size)
        groups += [bucket[first::number] for first in range(number)]
    return groups


def _sharing(layer: Layer) -> tuple[object, ...]:
    """Layers with equal answers need the same number of token slots and go into one group."""
    if layer.kind in (LayerKind.FULL, LayerKind.LATENT):
        return ("full",)
    return (layer.kind, layer.window_tokens) if layer.kind is not LayerKind.STATE else (layer,)


def _of_equal_size(pages: list[_Page]) -> list[_Page] | None:
    """Pages of the largest size: a block takes more tokens where that divides evenly, and is padded elsewhere.

    None where a latent vector's page would have to be padded, which vLLM does not do.
    """
    largest = max(page.page_bytes for page in pages)
    if any(page.layer.kind is LayerKind.LATENT and largest % page.page_bytes for page in pages):
        return None
    return [
        replace(page, page_bytes=largest)
        if page.layer.kind is LayerKind.STATE or largest % page.page_bytes
        else _Page(page.layer, largest, page.block_tokens * (largest // page.page_bytes))
        for page in pages
    ]


def _at_full_length(pages: list[_Page]) -> list[_Page]:
    """Windowed layers kept like full ones beside latent vectors: vLLM's way out where pages cannot be made equal."""
    kinds = {page.layer.kind for page in pages}
    if not kinds <= {LayerKind.FULL, LayerKind.LATENT, LayerKind.SLIDING}:
        raise NotModelledError("latent vectors beside layers whose blocks do not divide evenly")
    return [replace(page, layer=replace(page.layer, kind=LayerKind.FULL, window_tokens=None)) for page in pages]


def _blocks_of_request(page: _Page, rules: PoolRules) -> int:
    """Blocks of a request of max_model_len tokens in the group that this layer stands for."""
    longest, window = rules.max_model_len, page.layer.window_tokens or 0
    match page.layer.kind:
        case LayerKind.STATE:
            return _state_copies(rules)
        case LayerKind.SLIDING:  # its first token may lie anywhere in a block: one more
            return _divide_up(min(window - 1 + rules.in_flight_tokens, longest), page.block_tokens) + 1
        case LayerKind.CHUNKED:
            return _divide_up(min(window + rules.in_flight_tokens, longest), page.block_tokens)
    return _divide_up(longest, page.block_tokens)


def _divide_up(value: int, by: int) -> int:
    return -(-value // by)
