"""torch.npu.amp: the names that libraries written for this device name ask for, as torch.cuda.amp has them. PyTorch's own
torch.autocast and torch.amp.GradScaler do the work."""
import torch


def _device_type():
    return torch._C._get_privateuse1_backend_name()


class autocast(torch.amp.autocast_mode.autocast):
    def __init__(self, enabled=True, dtype=torch.float16, cache_enabled=True):
        super().__init__(_device_type(), dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        super().__init__(_device_type(), init_scale=init_scale, growth_factor=growth_factor, backoff_factor=backoff_factor,
                         growth_interval=growth_interval, enabled=enabled)
