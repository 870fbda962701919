"""A random little language model in llama.cpp's file format: no knowledge, but a real engine serves it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

LAYERS, WIDTH, HEADS, INNER, CONTEXT = 2, 64, 4, 128, 4096
#: control tokens, the printable ASCII characters, and whole words; no bytes, of which a random model would make broken
#: text
CONTROL = ["<unk>", "<s>", "</s>"]
WORDS = 1_000
#: the first dimension is the same for every token, so that the end token's weight there is a bias: answers of about a
#: dozen tokens
CONSTANT, END_BIAS = 3.0, 0.55
#: ChatML with tool calls in tags, as many open models have it: the engine derives its tool grammar from it
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{%- if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{%- endif %}
# Tools
<tools>{%- for tool in tools %}
{{ tool | tojson }}{%- endfor %}
</tools>
For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message['role'] == 'assistant' and message.tool_calls %}<|im_start|>assistant
{%- if message.content %}{{ '\\n' + message.content }}{%- endif %}
{%- for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{%- endfor %}<|im_end|>
{% elif message['role'] == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def write_tiny_model(path: Path, seed: int = 0) -> Path:
    """A llama with two layers and random weights, about 1 MB; needs the package gguf."""
    import gguf

    draw = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("kvv-tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    size = _add_vocabulary(writer, gguf.TokenType)
    writer.add_chat_template(TEMPLATE)
    for name, shape in _tensors(size).items():
        writer.add_tensor(name, _values(name, shape, draw).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _values(name: str, shape: tuple[int, ...], draw: np.random.Generator) -> np.ndarray:
    if name.endswith("norm.weight"):
        return np.ones(shape)
    values = draw.standard_normal(shape) * (
        0.4 if name == "output.weight" else 0.2 if name == "token_embd.weight" else 0.02
    )
    if name == "token_embd.weight":
        values[:, 0] = CONSTANT
    if name == "output.weight":
        values[:, 0] = 0.0
        values[CONTROL.index("</s>"), 0] = END_BIAS
    return values


def _add_vocabulary(writer, kinds) -> int:  # type: ignore[no-untyped-def]  # gguf has no types
    """A sentencepiece-like vocabulary: every ASCII text can be read and said, so every grammar over ASCII can be
    obeyed.
    """
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [f"▁{letters[at % 26]}{letters[at // 26 % 26]}{letters[at * 7 % 26]}" for at in range(WORDS)]
    printable = [chr(code) for code in range(33, 127)] + ["▁", "\n"]
    tokens = [*CONTROL, *printable, *dict.fromkeys(words)]
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL]
    types += [kinds.NORMAL] * (len(tokens) - len(types))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token.encode() for token in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    return len(tokens)


def _tensors(vocabulary: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocabulary, WIDTH),
        "output.weight": (vocabulary, WIDTH),
        "output_norm.weight": (WIDTH,),
    }
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.{name}.weight": (WIDTH, WIDTH) for name in ("attn_q", "attn_k", "attn_v", "attn_output")
        }
        shapes |= {f"blk.{layer}.{name}.weight": (INNER, WIDTH) for name in ("ffn_gate", "ffn_up")}
        shapes[f"blk.{layer}.ffn_down.weight"] = (WIDTH, INNER)
        shapes |= {f"blk.{layer}.{name}.weight": (WIDTH,) for name in ("attn_norm", "ffn_norm")}
    return shapes
