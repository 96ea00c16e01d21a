"""Is the npu there, does it compute, and is its memory counted?"""
import torch

for i in range(torch.npu.device_count()):
    print(torch.npu.device(i), torch.npu.get_device_name(i))

a = torch.randn(1024, 1024, device="npu:0")
b = torch.randn(1024, 1024, device="npu:0")
c = torch.mm(a, b)
print(c.shape)
print(c.sum().item())
print(torch.npu.memory_allocated(0))
