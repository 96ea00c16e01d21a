"""Trains the zoo on the CPU and on npu:0 and prints one line of JSON for each case (run by test_models.py)."""
import json
import sys

import torch
import zoo

CASES = [("fp32", None, None), ("bf16", torch.bfloat16, None), ("fp16", torch.float16, None), ("aot_eager", None, "aot_eager")]


def main(kinds):
    torch.set_num_threads(2)
    for name in zoo.MODELS:
        cpu, cpu_model = zoo.train(name, "cpu")
        for kind, amp, compiled in CASES:
            if kinds and kind not in kinds:
                continue
            steps = 20 if kind == "fp32" else 6
            got, model = zoo.train(name, "npu:0", steps, amp, compiled)
            row = {"model": name, "kind": kind, "cpu": cpu[:steps], "npu": got}
            if kind == "fp32":
                row["weights"] = max((a - b.cpu()).abs().max().item() / (a.abs().max().item() + 1e-6)
                                     for a, b in zip(cpu_model.state_dict().values(), model.state_dict().values()))
                if name == "gpt":
                    start = torch.tensor([[3, 1, 4]])
                    row["tokens"] = [m.generate(start.to(d), 10).tolist() for m, d in ((cpu_model, "cpu"), (model, "npu:0"))]
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
