"""Trains Llama and BERT of `transformers`, made from small configurations, on the CPU and on npu:0 (run by test_models.py)."""
import copy
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
import transformers  # noqa: E402

WORDS, LENGTH = 67, 12


def llama():
    config = transformers.LlamaConfig(vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=32, bos_token_id=1, eos_token_id=None, pad_token_id=0)
    return transformers.LlamaForCausalLM(config)


def bert():
    config = transformers.BertConfig(vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                     max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return transformers.BertForMaskedLM(config)


MODELS = {"llama": llama, "bert": bert}
CASES = [("fp32", None, False), ("bf16", torch.bfloat16, False), ("fp16", torch.float16, False), ("aot_eager", None, True)]


def train(start, device, steps, amp=None, compiled=False):
    model = copy.deepcopy(start).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kind = torch.device(device).type
    scaler = torch.amp.GradScaler(kind, init_scale=256.0, enabled=amp == torch.float16)
    run = torch.compile(model, backend="aot_eager") if compiled else model
    generator = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(steps):
        tokens = torch.randint(2, WORDS, (3, LENGTH), generator=generator)
        mask = torch.ones_like(tokens)
        mask[0, -3:] = 0
        labels = tokens.masked_fill(mask == 0, -100)
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=amp, enabled=amp is not None):
            loss = run(input_ids=tokens.to(device), attention_mask=mask.to(device), labels=labels.to(device)).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, model


def generated(model, device):
    prompt = torch.tensor([[5, 9, 14, 3], [7, 2, 30, 11]])
    out = model.eval().generate(prompt.to(device), attention_mask=torch.ones_like(prompt).to(device), max_new_tokens=10, do_sample=False)
    assert out.shape == (2, 14)
    return out.tolist()


def main(kinds):
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    for name in MODELS:
        torch.manual_seed(3)
        start = MODELS[name]()
        cpu, cpu_model = train(start, "cpu", 20)
        for kind, amp, compiled in CASES:
            if kinds and kind not in kinds:
                continue
            steps = 20 if kind == "fp32" else 6
            got, model = train(start, "npu:0", steps, amp, compiled)
            row = {"model": name, "kind": kind, "cpu": cpu[:steps], "npu": got}
            if kind == "fp32" and name == "llama":
                row["tokens"] = [generated(cpu_model, "cpu"), generated(model, "npu:0")]
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
