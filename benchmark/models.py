# SPDX-License-Identifier: Apache-2.0
"""Models of transformers with random weights, and their steps: for the scoreboard, and for ``gems-overrides ablate``.

gems-overrides ablate benchmark.models:gpt2
gems-overrides ablate benchmark.models:llama
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Step = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Size:
    """Of a model: on a GPU as the scoreboard has it, or as small as the interpreter needs it."""

    layers: int = 6
    width: int = 768
    heads: int = 12
    tokens: int = 512
    vocabulary: int | None = None  # the configuration's own: 50257 for GPT-2, 30522 for BERT
    pixels: int = 224


TINY = Size(layers=1, width=16, heads=2, tokens=8, vocabulary=32, pixels=32)
ABLATED = Size(layers=4, width=512, heads=8)


def _vocabulary(size: Size) -> dict[str, int]:
    return {} if size.vocabulary is None else {"vocab_size": size.vocabulary}


def _gpt2(size: Size) -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=size.layers,
            n_embd=size.width,
            n_head=size.heads,
            n_positions=size.tokens,
            **_vocabulary(size),
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
            attn_implementation="eager",
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def _bert(size: Size) -> Any:
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            num_hidden_layers=size.layers,
            hidden_size=size.width,
            num_attention_heads=size.heads,
            intermediate_size=4 * size.width,
            max_position_embeddings=size.tokens,
            **_vocabulary(size),
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
    )


def _llama(size: Size) -> Any:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            num_hidden_layers=size.layers,
            hidden_size=size.width,
            num_attention_heads=size.heads,
            intermediate_size=3 * size.width,
            max_position_embeddings=size.tokens,
            **_vocabulary(size),
            attn_implementation="eager",
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def _t5(size: Size) -> Any:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            num_layers=size.layers,
            d_model=size.width,
            num_heads=size.heads,
            d_kv=size.width // size.heads,
            d_ff=4 * size.width,
            **_vocabulary(size),
            dropout_rate=0.0,
            decoder_start_token_id=0,
        )
    )


def _vit(size: Size) -> Any:
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            num_hidden_layers=size.layers,
            hidden_size=size.width,
            num_attention_heads=size.heads,
            intermediate_size=4 * size.width,
            image_size=size.pixels,
            num_labels=16,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
    )


def _resnet(size: Size) -> Any:
    if size is TINY:
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=16)
    else:
        config = transformers.ResNetConfig(num_labels=16)
    return transformers.ResNetForImageClassification(config)


MODELS = {"gpt2": _gpt2, "bert": _bert, "vit": _vit, "llama": _llama, "t5": _t5, "resnet": _resnet}
IMAGES = ("vit", "resnet")


def _inputs(name: str, batch: int, size: Size, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    if name in IMAGES:
        pixels = torch.randn(batch, 3, size.pixels, size.pixels, generator=generator)
        return {"pixel_values": pixels.to(DEVICE), "labels": torch.arange(batch, device=DEVICE) % 16}
    tokens = torch.randint(model.config.vocab_size, (batch, size.tokens), generator=generator).to(DEVICE)
    return {"input_ids": tokens, "labels": tokens}


def training(name: str, batch: int, size: Size = Size()) -> Step:
    """A step of AdamW under bfloat16 autocast; returns the loss. The same weights and data each time it is made."""
    torch.manual_seed(0)
    model = MODELS[name](size).to(DEVICE).train()
    inputs = _inputs(name, batch, size, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=DEVICE == "cuda")

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def inference(name: str, batch: int, size: Size = Size()) -> Step:
    """The forward pass; returns the loss."""
    torch.manual_seed(0)
    model = MODELS[name](size).to(DEVICE).eval()
    inputs = _inputs(name, batch, size, model)

    def step() -> torch.Tensor:
        with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            return model(**inputs).loss

    return step


@functools.cache
def step(name: str) -> Step:
    return training(name, 8, ABLATED if DEVICE == "cuda" else TINY)


def gpt2() -> torch.Tensor:
    return step("gpt2")()


def llama() -> torch.Tensor:
    return step("llama")()
