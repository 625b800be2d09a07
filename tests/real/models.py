"""Small transformers models, built from their configurations with random weights: nothing is downloaded."""

import os
import random
from collections.abc import Callable
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import torch
import transformers as hf
from torch import Tensor, nn

hf.logging.set_verbosity_error()

Inputs = dict[str, Tensor]


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(0, 1000, (batch, length))


def whisper() -> tuple[nn.Module, Inputs]:
    config = hf.WhisperConfig(
        encoder_layers=2, decoder_layers=2, d_model=128, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=256, decoder_ffn_dim=256, vocab_size=1000, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, max_source_positions=500,
    )  # fmt: skip
    return hf.WhisperModel(config), {"input_features": torch.randn(1, 80, 1000), "decoder_input_ids": tokens(1, 32)}


def swin() -> tuple[nn.Module, Inputs]:
    config = hf.SwinConfig(image_size=112, depths=[2, 2], num_heads=[3, 6], embed_dim=48)
    return hf.SwinForImageClassification(config), {"pixel_values": torch.randn(2, 3, 112, 112)}


def segformer() -> tuple[nn.Module, Inputs]:
    return hf.SegformerForSemanticSegmentation(hf.SegformerConfig()), {"pixel_values": torch.randn(1, 3, 128, 128)}


def bert() -> tuple[nn.Module, Inputs]:
    config = hf.BertConfig(num_hidden_layers=3, hidden_size=128, num_attention_heads=4, intermediate_size=512)
    model = hf.BertModel._from_config(config, attn_implementation="eager")
    return model, {"input_ids": tokens(2, 128)}


def vit() -> tuple[nn.Module, Inputs]:
    config = hf.ViTConfig(num_hidden_layers=2, hidden_size=192, num_attention_heads=3, intermediate_size=768)
    model = hf.ViTForImageClassification._from_config(config, attn_implementation="eager")
    return model, {"pixel_values": torch.randn(1, 3, 224, 224)}


def wav2vec2() -> tuple[nn.Module, Inputs]:
    config = hf.Wav2Vec2Config(
        num_hidden_layers=2, hidden_size=128, num_attention_heads=4, intermediate_size=256, conv_dim=(64,) * 7
    )
    return hf.Wav2Vec2Model(config), {"input_values": torch.randn(2, 16000)}


def mamba() -> tuple[nn.Module, Inputs]:
    config = hf.MambaConfig(hidden_size=128, num_hidden_layers=2, vocab_size=1000)
    return hf.MambaForCausalLM(config), {"input_ids": tokens(2, 32)}


def convnext() -> tuple[nn.Module, Inputs]:
    config = hf.ConvNextConfig(depths=[2, 2, 2, 2], hidden_sizes=[24, 48, 96, 192])
    return hf.ConvNextForImageClassification(config), {"pixel_values": torch.randn(2, 3, 128, 128)}


def gpt2() -> tuple[nn.Module, Inputs]:
    config = hf.GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=1000, bos_token_id=0, eos_token_id=0)
    return hf.GPT2LMHeadModel(config), {"input_ids": tokens(2, 128)}


def llama() -> tuple[nn.Module, Inputs]:
    config = hf.LlamaConfig(
        hidden_size=128, intermediate_size=344, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
        vocab_size=1000,
    )  # fmt: skip
    return hf.LlamaForCausalLM(config), {"input_ids": tokens(2, 128)}


def resnet() -> tuple[nn.Module, Inputs]:
    config = hf.ResNetConfig(depths=[1, 1, 1, 1], layer_type="basic", hidden_sizes=[64, 64, 128, 128])
    return hf.ResNetForImageClassification(config), {"pixel_values": torch.randn(2, 3, 64, 64)}


def resnet_channels_last() -> tuple[nn.Module, Inputs]:
    model, inputs = resnet()
    images = inputs["pixel_values"].to(memory_format=torch.channels_last)
    return model.to(memory_format=torch.channels_last), {"pixel_values": images}


MODELS: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    function.__name__: function
    for function in (
        whisper, swin, segformer, bert, vit, wav2vec2, mamba, convnext, gpt2, llama, resnet, resnet_channels_last,
    )
}  # fmt: skip


def build(name: str, train: bool, batch: int = 1) -> Callable[[], dict[str, Any]]:
    """One step of a model: the same random numbers each time; it returns its outputs and gradients.

    `batch` says how often its inputs are repeated.
    """
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    inputs = {key: torch.cat([value] * batch) for key, value in inputs.items()}
    model.train(train)

    def step() -> dict[str, Any]:
        torch.manual_seed(1)
        numpy.random.seed(1)
        random.seed(1)
        model.zero_grad()
        with torch.set_grad_enabled(train):
            output = model(**inputs)
            result = output.logits if hasattr(output, "logits") else output[0]
            if train:
                result.float().pow(2).mean().backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        return {"output": result.detach(), **gradients}

    step()
    return step
