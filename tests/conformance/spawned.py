"""A child made by the spawn method computes on the npu (run by test_start.py)."""
import torch
import torch.multiprocessing as mp


def work(queue):
    queue.put(torch.ones(3, device="npu").sum().item())


if __name__ == "__main__":
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    child = context.Process(target=work, args=(results,))
    child.start()
    print(results.get())
    child.join()
