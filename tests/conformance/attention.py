"""Attention where the fused kernel is called by more than plain tensors: sequences of different lengths, torch.func. And
what training beside it leans on. Plain functions as in tensors.py; test_tensors.py runs them."""
import torch
import torch.nn.functional as F

D = "npu:0"
attend = F.scaled_dot_product_attention


def close(a, b, **kw):
    torch.testing.assert_close(a.cpu(), b, **kw)


# ---- jagged nested tensors ----


def jagged(values, sizes, heads=2):
    offsets = torch.tensor([0, *sizes]).cumsum(0).to(values.device)
    return torch.nested.nested_tensor_from_jagged(values, offsets=offsets).unflatten(-1, [heads, -1]).transpose(1, 2)


def attended(device, queries, keys, size, heads=2, **options):
    """Values of the result and the gradients of query, key and value."""
    torch.manual_seed(1)
    leaves = [torch.randn(sum(n), size).to(device).requires_grad_() for n in (queries, keys, keys)]
    out = attend(*(jagged(t, n, heads) for t, n in zip(leaves, (queries, keys, keys), strict=True)), **options)
    assert out.layout == torch.jagged and out.device.type == torch.device(device).type
    values = out.transpose(1, 2).flatten(-2).values()
    values.square().sum().backward()
    return [values.detach(), *(t.grad for t in leaves)]


def jagged_attention_as_on_the_cpu():
    for queries, keys, size, options in (([2, 5], [2, 5], 8, {}), ([2, 5], [4, 3], 8, {}), ([3, 0, 4], [3, 0, 4], 8, {}),
                                         ([1, 1, 1], [1, 1, 1], 16, {"scale": 0.3}), ([70, 7, 64], [70, 7, 64], 64, {})):
        for a, b in zip(attended(D, queries, keys, size, **options), attended("cpu", queries, keys, size, **options), strict=True):
            close(a, b, atol=1e-5, rtol=1e-4)


def jagged_attention_by_sequence():
    """What the CPU has no way for: causal, and rows between the sequences. By hand, with its dense operator."""
    torch.manual_seed(0)
    values = torch.randn(9, 8)
    causal = attend(*[jagged(values.to(D), [4, 5])] * 3, is_causal=True).transpose(1, 2).values()
    heads = values.unflatten(-1, [2, 4]).transpose(0, 1)
    want = torch.cat([attend(*[heads[:, a:b]] * 3, is_causal=True) for a, b in ((0, 4), (4, 9))], 1).transpose(0, 1)
    close(causal, want, atol=1e-5, rtol=1e-4)

    holes = torch.nested.nested_tensor_from_jagged(values.to(D), offsets=torch.tensor([0, 4, 9]).to(D), lengths=torch.tensor([2, 4]).to(D))
    got = attend(*[holes.unflatten(-1, [2, 4]).transpose(1, 2)] * 3).transpose(1, 2).values()
    want = torch.zeros(9, 2, 4)
    for a, b in ((0, 2), (4, 8)):
        want[a:b] = attend(*[heads[:, a:b]] * 3).transpose(0, 1)
    close(got, want, atol=1e-5, rtol=1e-4)

    with torch.autocast("npu", dtype=torch.bfloat16):
        assert attend(*[jagged(values.to(D), [4, 5])] * 3).dtype == torch.bfloat16
    dropped = attend(*[jagged(values.to(D), [4, 5])] * 3, dropout_p=0.5)
    assert dropped.transpose(1, 2).values().shape == (9, 2, 4)


def jagged_attention_refused():
    flat = torch.nested.nested_tensor_from_jagged(torch.randn(7, 8, device=D), offsets=torch.tensor([0, 2, 7]).to(D))
    heads, deep = jagged(torch.randn(7, 8, device=D), [2, 5]), flat.unflatten(-1, [2, 2, 2]).transpose(1, 2)
    short = jagged(torch.randn(7, 8, device=D), [7])
    for wrong, says, call in ((NotImplementedError, "got 3 dimensions, ragged in dimension 1", lambda: attend(flat, flat, flat)),
                              (NotImplementedError, "got 5 dimensions, ragged in dimension 2", lambda: attend(deep, deep, deep)),
                              (ValueError, "same batch size", lambda: attend(heads, short, short)),
                              (ValueError, "Masks are not yet supported", lambda: attend(heads, heads, heads, attn_mask=torch.ones(1, device=D)))):
        try:
            call()
        except wrong as error:
            assert says in str(error), error
        else:
            raise AssertionError(f"accepted: {says}")


# ---- torch.func ----


def vmap_over_attention():
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, 4, 5, 8) for _ in range(3))
    bias, keep = torch.randn(3, 2, 1, 5, 5), torch.rand(2, 1, 5, 5) < 0.7
    keep[..., 0] = True
    mapped, loss = torch.func.vmap, lambda *t: attend(*t).square().sum()
    per_sample = torch.func.grad(loss, argnums=(0, 1, 2))
    cases = {
        "all": (lambda a, b, c: mapped(attend)(a, b, c), (q, k, v)),
        "queries alone": (lambda a, b, c: mapped(attend, in_dims=(0, None, None))(a, b, c), (q, k[0], v[0])),
        "another dimension": (lambda a, b, c: mapped(attend, in_dims=(1, 0, 0), out_dims=2)(a, b, c), (q.transpose(0, 1), k, v)),
        "causal": (lambda a, b, c: mapped(lambda *t: attend(*t, is_causal=True))(a, b, c), (q, k, v)),
        "a mask each": (lambda a, b, c, m: mapped(attend)(a, b, c, m), (q, k, v, bias)),
        "a mask of two dimensions each": (lambda a, b, c, m: mapped(attend)(a, b, c, m), (q, k, v, bias[:, 0, 0])),
        "one mask": (lambda a, b, c, m: mapped(attend, in_dims=(0, 0, 0, None))(a, b, c, m), (q, k, v, keep)),
        "shared keys": (lambda a, b, c: mapped(lambda *t: attend(*t, enable_gqa=True))(a, b, c), (q, k[:, :, :2], v[:, :, :2])),
        "twice": (lambda a, b, c: mapped(mapped(attend))(a, b, c), (q[:, None], k[:, None], v[:, None])),
        "of gradients": (lambda a, b, c: torch.cat(mapped(per_sample)(a, b, c)), (q, k, v)),
        "of gradients, one key": (lambda a, b, c: torch.cat(mapped(per_sample, in_dims=(0, None, None))(a, b, c)), (q, k[0], v[0])),
        "under gradients": (lambda a, b, c: torch.func.grad(lambda t: mapped(attend)(t, b, c).square().sum())(a), (q, k, v)),
        "jacobian": (lambda a, b, c: torch.func.jacrev(lambda t: attend(t, b, c).sum((0, 1)))(a), (q[0], k[0], v[0])),
    }
    for name, (function, inputs) in cases.items():
        close(function(*(t.to(D) for t in inputs)), function(*inputs), atol=1e-5, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


# ---- beside attention ----


def floor_division_in_place():
    torch.manual_seed(0)
    x = torch.randint(-20, 20, (4, 6))
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8):
        for by in (3, -2, torch.tensor([1, -2, 3, 4, -5, 7]).to(dtype), torch.tensor(3)):
            on = by.to(D) if isinstance(by, torch.Tensor) and by.dim() else by
            close(x.to(dtype).to(D).floor_divide_(on), x.to(dtype).floor_divide_(by))
            there, here = x.to(dtype).to(D), x.to(dtype)
            there.t()[1::2].floor_divide_(2)
            here.t()[1::2].floor_divide_(2)
            close(there, here)
    for call in (lambda d: torch.ones(3, device=d).floor_divide_(torch.ones(2, 3, device=d)),
                 lambda d: torch.ones(3, dtype=torch.int64, device=d).floor_divide_(torch.ones(3, device=d)),
                 lambda d: torch.ones(3, dtype=torch.int64, device=d).floor_divide_(0)):
        for device in ("cpu", D):
            try:
                call(device)
            except RuntimeError:
                continue
            raise AssertionError("accepted on " + device)


def norms_of_many_elements():
    """Against float64: in float32 the CPU's own norm of so many is farther off than this."""
    torch.manual_seed(0)
    x = torch.rand(3_000_000) * 1e-3
    for p in (1, 2, 3):
        close(torch.linalg.vector_norm(x.to(D), p), torch.linalg.vector_norm(x.double(), p).float(), atol=0, rtol=1e-6)


CHECKS = [f for name, f in list(globals().items())
          if callable(f) and getattr(f, "__module__", "") == __name__ and name not in ("close", "jagged", "attended")]


if __name__ == "__main__":
    import sys

    from tensors import main

    sys.exit(main(sys.argv[1:], CHECKS))
