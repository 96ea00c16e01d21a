"""How much of PyTorch's dense operators the npu computes, and how: ``python -m flagos.coverage`` (``flagos certify --coverage``)."""
