"""Attention of nested tensors with ``layout=torch.jagged``: one call of the dense operator for each sequence.

PyTorch's own way is a fused kernel that only CUDA builds have, or strided nested tensors, which the npu has not.
"""


def install(torch, name):
    from torch.nested._internal.nested_tensor import NestedTensor

    original = NestedTensor.__torch_function__.__func__
    attention = torch._C._nn.scaled_dot_product_attention

    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is attention:
            call = _arguments(*args, **(kwargs or {}))
            tensors = call[:3]
            # Ragged before the heads: PyTorch hands the dense values to the dense operator.
            if all(isinstance(t, NestedTensor) and t.device.type == name for t in tensors) and not all(_ragged_batch(t) for t in tensors):
                return _attention(torch, *call)
        return original(cls, func, types, args, kwargs)

    NestedTensor.__torch_function__ = classmethod(__torch_function__)


def _arguments(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    return query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa


def _ragged_batch(t):
    return t.dim() > 3 and t._ragged_idx == 1


def _attention(torch, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    from torch.nested._internal import nested_tensor, sdpa

    query, key, value, attn_mask = sdpa._autocast(query, key, value, attn_mask)
    sdpa._validate_sdpa_input(query, key, value, attn_mask, dropout_p, is_causal, scale)
    if not all(t.dim() == 4 and t._ragged_idx == 2 for t in (query, key, value)):
        raise NotImplementedError(
            f"scaled_dot_product_attention of jagged tensors on {query.device} takes [batch, heads, sequence, size], ragged in the "
            f"sequence; got {query.dim()} dimensions, ragged in dimension {query._ragged_idx}: unflatten the heads and transpose(1, 2)."
        )
    if query.size(0) != key.size(0) or query.size(0) != value.size(0):
        raise ValueError(f"Expected query, key and value to have the same batch size, but got {query.size(0)}, {key.size(0)} and {value.size(0)}.")
    shape, options = query.transpose(1, 2), {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    done, at = [], 0   # pieces of the result's values, and how many rows they have
    for (start, q), (_, k), (_, v) in zip(_sequences(shape), _sequences(key.transpose(1, 2)), _sequences(value.transpose(1, 2)), strict=True):
        if start > at:   # rows between the sequences that belong to none
            done.append(q.new_zeros((start - at, q.size(1), v.size(-1))))
        if q.size(0) == 0 or k.size(0) == 0:
            done.append(q.new_zeros((q.size(0), q.size(1), v.size(-1))))
        else:
            q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
            done.append(torch.nn.functional.scaled_dot_product_attention(q, k, v, **options).squeeze(0).transpose(0, 1))
        at = start + done[-1].size(0)
    rows = shape.values().size(0)
    if rows > at:
        done.append(done[-1].new_zeros((rows - at, *done[-1].shape[1:])))
    return nested_tensor.nested_view_from_values_offsets_lengths(
        torch.cat(done), query.offsets(), lengths=query.lengths(), min_seqlen=query._maybe_min_seqlen, max_seqlen=query._maybe_max_seqlen
    ).transpose(1, 2)


def _sequences(nested):
    """(first row, rows) of each sequence of a tensor that is ragged in dimension 1. The offsets are waited for."""
    values, offsets, lengths = nested.values(), nested.offsets().tolist(), nested.lengths()
    sizes = [b - a for a, b in zip(offsets, offsets[1:])] if lengths is None else lengths.tolist()
    return [(start, values.narrow(0, start, size)) for start, size in zip(offsets, sizes)]
