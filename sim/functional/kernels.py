"""The instructions of the draft program over many rows at once, compiled by numba.

A *row* is one token in flight. State arrays have one row each, in C order:

    vec_rw    int32 [row, word]     vector memory
    act_rk    int16 [row, column]   activation register (int8 values; 16 bits for the multiplier)
    scale_rc  int64 [row, 2]        its scale: mantissa, exponent
    query_rd  int8  [row, head * head_dim], query_scale_rhc int64 [row, head, 2]

``rows`` lists the rows that an instruction is for. KV accesses go through ``kv_place``: position j
lies on memory port j mod P, whose share of the cache is at ``base_p[j mod P]``.
"""

from typing import Any

import numpy as np

from sim.functional.integers import (
    Int,
    clip32,
    compiled,
    exp2n,
    length,
    norm16,
    recip,
    rounded,
    rsqrt,
    shifted,
    sigmoid,
)


@compiled
def quantise(values: Any, count: Int, frac: Int, out: Any) -> tuple[Int, Int]:
    """QUANT of int64 ``values`` [count] into ``out``; returns the scale."""
    largest = np.int64(1)
    for i in range(count):
        largest = max(largest, abs(values[i]))
    bits = length(largest)
    mantissa = shifted(largest, bits - 16)
    factor = recip(mantissa) * 127
    for i in range(count):
        normal = rounded(values[i], bits - 16) if bits > 16 else values[i] << (16 - bits)
        quant = rounded(normal * factor, 31)
        out[i] = max(min(quant, 127), -127)
    scale, up = norm16(mantissa * 33026)
    return scale, 38 - bits - up + frac


@compiled
def embed(
    rows: Any, ids_r: Any, weight_oi: Any, mantissa_o: Any, shift: Int, vec_rw: Any, at: Int
) -> None:
    """EMBED. ``shift``: row_shift minus the output's fraction bits."""
    for r in rows:
        row = ids_r[r]
        for i in range(weight_oi.shape[1]):
            product = np.int64(weight_oi[row, i]) * mantissa_o[row]
            vec_rw[r, at + i] = clip32(rounded(product, shift))


@compiled
def norm_quant(
    rows: Any, vec_rw: Any, at: Int, gamma_d: Any, constants: Any, act_rk: Any, scale_rc: Any
) -> None:
    """NORM_QUANT. ``constants``: (gamma_shift, eps_q)."""
    width = gamma_d.size
    block = np.empty(width, dtype=np.int64)
    for r in rows:
        largest = np.int64(0)
        for i in range(width):
            largest = max(largest, abs(np.int64(vec_rw[r, at + i])))
        e = max(length(largest) - 17, 0)
        total = np.int64(0)
        for i in range(width):
            b = max(min(rounded(np.int64(vec_rw[r, at + i]), e), 131071), -131071)
            total += b * b
            block[i] = b * gamma_d[i]
        root, root_exponent = rsqrt(max(total + (constants[1] >> (2 * e)), 1))
        mantissa, exponent = quantise(block, width, 0, act_rk[r])
        scale, up = norm16(mantissa * root)
        scale_rc[r, 0] = scale
        scale_rc[r, 1] = exponent + root_exponent - up + constants[0]


@compiled
def quant(
    rows: Any, vec_rw: Any, at: Int, width: Int, frac: Int, act_rk: Any, scale_rc: Any
) -> None:
    """QUANT."""
    values = np.empty(width, dtype=np.int64)
    for r in rows:
        for i in range(width):
            values[i] = vec_rw[r, at + i]
        scale_rc[r, 0], scale_rc[r, 1] = quantise(values, width, frac, act_rk[r])


@compiled
def products(rows: Any, weight_oi: Any, act_rk: Any) -> Any:
    """Accumulators int32 [listed row, weight row]: a row of weights is read once for all of them.

    Exact: the draft's compiler proved that no accumulator leaves 32 bits. Kept apart from the
    drain because only so does LLVM turn the inner loop into multiply-add-pairs.
    """
    acc_no = np.empty((rows.size, weight_oi.shape[0]), dtype=np.int32)
    for o in range(weight_oi.shape[0]):
        for n in range(rows.size):
            r = rows[n]
            acc = np.int32(0)
            for i in range(weight_oi.shape[1]):
                acc += np.int32(weight_oi[o, i]) * np.int32(act_rk[r, i])
            acc_no[n, o] = acc
    return acc_no


@compiled
def drain(acc: Int, mantissa: Int, scale: Int, shift: Int) -> Int:
    """From accumulator to output value."""
    scaled = rounded(np.int64(acc) * mantissa, 8)
    return clip32(rounded(scaled * scale, shift))


@compiled
def matmul(
    rows: Any,
    weight_oi: Any,
    mantissa_o: Any,
    shift: Int,
    act_rk: Any,
    scale_rc: Any,
    vec_rw: Any,
    at: Int,
    accumulate: Int,
) -> None:
    """MATMUL. ``weight_oi``: int16 with group scales folded in, or int8."""
    acc_no = products(rows, weight_oi, act_rk)
    for n in range(rows.size):
        r = rows[n]
        token_shift = shift + scale_rc[r, 1] - 8
        for o in range(acc_no.shape[1]):
            y = drain(acc_no[n, o], mantissa_o[o], scale_rc[r, 0], token_shift)
            if accumulate:
                y = clip32(np.int64(vec_rw[r, at + o]) + y)
            vec_rw[r, at + o] = y


@compiled
def head(
    rows: Any,
    weight_oi: Any,
    mantissa_o: Any,
    shift: Int,
    act_rk: Any,
    scale_rc: Any,
    logit_rc: Any,
    row_rc: Any,
) -> None:
    """HEAD: int64 logits and head rows [row, candidate], best first, ties to the lower row."""
    acc_no = products(rows, weight_oi, act_rk)
    kept = logit_rc.shape[1]
    for n in range(rows.size):
        r = rows[n]
        token_shift = shift + scale_rc[r, 1] - 8
        logit_rc[r] = np.iinfo(np.int64).min
        for o in range(acc_no.shape[1]):
            y = drain(acc_no[n, o], mantissa_o[o], scale_rc[r, 0], token_shift)
            if y > logit_rc[r, kept - 1]:
                insert(y, o, logit_rc[r], row_rc[r])


@compiled
def insert(logit: Int, row: Int, logit_c: Any, row_c: Any) -> None:
    """Put a logit where it belongs, behind its equals; the last one falls out."""
    c = logit_c.size - 1
    while c > 0 and logit > logit_c[c - 1]:
        logit_c[c] = logit_c[c - 1]
        row_c[c] = row_c[c - 1]
        c -= 1
    logit_c[c] = logit
    row_c[c] = row


@compiled
def silu_gate(rows: Any, vec_rw: Any, places: Any, width: Int, out_frac: Int) -> None:
    """SILU_GATE. ``places``: offsets of gate, up and out."""
    gate, up, out = places
    for r in rows:
        for i in range(width):
            g = np.int64(vec_rw[r, gate + i])
            h = clip32(rounded(g * sigmoid(g), 16))
            y = rounded(h * np.int64(vec_rw[r, up + i]), 32 - out_frac)
            vec_rw[r, out + i] = clip32(y)


@compiled
def kv_place(base_p: Any, kv_bytes: Any, slot: Int, position: Int) -> tuple[Int, Int]:
    """Where a position lies: address of the slot's layer on its port, index there."""
    ports = base_p.size
    return base_p[position % ports] + slot * kv_bytes[0] + kv_bytes[1], position // ports


@compiled
def store_head(memory: Any, places: Any, quant_d: Any, scale: Int, exponent: Int) -> None:
    """``places``: addresses of the quantised head and of its scale word."""
    for i in range(quant_d.size):
        memory[places[0] + i] = np.uint8(quant_d[i])
    word = scale | ((exponent & 0xFFFF) << 16)
    for i in range(4):
        memory[places[1] + i] = np.uint8((word >> (8 * i)) & 255)


@compiled
def rotate(values_d: Any, table_d: Any) -> None:
    """RoPE of one head in place; ``table_d``: cosine, sine, cosine, sine, ..."""
    for i in range(0, values_d.size, 2):
        cos = np.int64(table_d[i])
        sin = np.int64(table_d[i + 1])
        low = values_d[i]
        high = values_d[i + 1]
        values_d[i] = clip32(rounded(low * cos - high * sin, 14))
        values_d[i + 1] = clip32(rounded(high * cos + low * sin, 14))


@compiled
def rope_kv(
    rows: Any,
    pos_rc: Any,
    vec_rw: Any,
    in_place: Any,
    heads: Any,
    table_pd: Any,
    kv_bytes: Any,
    query_rd: Any,
    query_scale_rhc: Any,
    memory: Any,
    base_p: Any,
) -> None:
    """ROPE_KV. ``pos_rc``: as in Rows. ``in_place``: in_vec, in_frac. ``heads``: (query, kv).

    ``kv_bytes``: stride of a slot, offsets of the layer, of its keys and of its values.
    """
    num_heads, num_kv = heads
    dim = table_pd.shape[1]
    values = np.empty(dim, dtype=np.int64)
    quant_d = np.empty(dim, dtype=np.int8)
    for r in rows:
        position = pos_rc[r, 1]
        layer_at, index = kv_place(base_p, kv_bytes, pos_rc[r, 0], position)
        for h in range(num_heads + 2 * num_kv):
            for i in range(dim):
                values[i] = vec_rw[r, in_place[0] + h * dim + i]
            if h < num_heads + num_kv:
                rotate(values, table_pd[position])
            scale, exponent = quantise(values, dim, in_place[1], quant_d)
            if h < num_heads:
                query_rd[r, h * dim : (h + 1) * dim] = quant_d
                query_scale_rhc[r, h, 0] = scale
                query_scale_rhc[r, h, 1] = exponent
            else:
                kind = (h - num_heads) // num_kv
                record = index * num_kv + (h - num_heads) % num_kv
                data_at = layer_at + kv_bytes[2 + kind] + record * dim
                scale_at = layer_at + 8 * record + 4 * kind
                store_head(memory, (data_at, scale_at), quant_d, scale, exponent)


@compiled
def read_head(memory: Any, place_jc: Any, what: Any, quant_jd: Any, scale_jc: Any) -> None:
    """Keys (kind 0) or values (1) of one head. ``what``: kind, offset, KV heads, head.

    ``place_jc``: what ``kv_place`` gives for each position.
    """
    kind, offset, num_kv, head = what
    for j in range(place_jc.shape[0]):
        record = place_jc[j, 1] * num_kv + head
        at = place_jc[j, 0] + offset + record * quant_jd.shape[1]
        for i in range(quant_jd.shape[1]):
            quant_jd[j, i] = np.int8(memory[at + i])
        at = place_jc[j, 0] + 8 * record + 4 * kind
        scale_jc[j, 0] = np.int64(memory[at]) | np.int64(memory[at + 1]) << 8
        exponent = np.int64(memory[at + 2]) | np.int64(memory[at + 3]) << 8
        scale_jc[j, 1] = (exponent ^ 0x8000) - 0x8000


@compiled
def seen_places(pos_c: Any, fresh_mc: Any, base_p: Any, kv_bytes: Any) -> Any:
    """Places of all positions that a row sees, int64 [position, (address, index)].

    ``pos_c``: write slot, position, slot, prefix_len, first and end in memory, number of rows in
    ``fresh_mc``, which has (slot, position) of those that a tree's row sees beside memory.
    """
    first, end, num_fresh = pos_c[4], pos_c[5], pos_c[6]
    place_jc = np.empty((end - first + num_fresh, 2), dtype=np.int64)
    for j in range(end - first):
        position = first + j
        slot = pos_c[2] if position < pos_c[3] else pos_c[0]
        place_jc[j, 0], place_jc[j, 1] = kv_place(base_p, kv_bytes, slot, position)
    for m in range(num_fresh):
        at = end - first + m
        place_jc[at, 0], place_jc[at, 1] = kv_place(
            base_p, kv_bytes, fresh_mc[m, 0], fresh_mc[m, 1]
        )
    return place_jc


@compiled
def weigh(query_d: Any, query_scale: Any, key_jd: Any, key_scale_jc: Any, weight_j: Any) -> Int:
    """Softmax numerators of one query into ``weight_j``; returns their sum."""
    best = np.iinfo(np.int64).min
    for j in range(weight_j.size):
        total = np.int32(0)
        for i in range(query_d.size):
            total += np.int32(query_d[i]) * np.int32(key_jd[j, i])
        scaled = rounded(np.int64(total) * key_scale_jc[j, 0], 12) * query_scale[0]
        score = clip32(rounded(scaled, query_scale[1] + key_scale_jc[j, 1] - 28))
        weight_j[j] = score
        best = max(best, score)
    summed = np.int64(0)
    for j in range(weight_j.size):
        weight_j[j] = exp2n(best - weight_j[j])
        summed += weight_j[j]
    return summed


@compiled
def mix(
    weight_j: Any, summed: Int, value_jd: Any, value_scale_jc: Any, out_frac: Int, out_d: Any
) -> None:
    """Weighted mean of the values of one head into ``out_d``, int32."""
    unit = value_scale_jc[0, 1]
    for j in range(1, weight_j.size):
        unit = min(unit, value_scale_jc[j, 1])
    acc_d = np.zeros(value_jd.shape[1], dtype=np.int64)
    for j in range(weight_j.size):
        u = rounded(weight_j[j] * value_scale_jc[j, 0], 16 + value_scale_jc[j, 1] - unit)
        for i in range(acc_d.size):
            acc_d[i] += np.int64(np.int32(u)) * np.int64(value_jd[j, i])
    mantissa, up = norm16(summed)
    inverse = recip(mantissa)
    for i in range(acc_d.size):
        product = rounded(acc_d[i], 12) * inverse
        out_d[i] = clip32(rounded(product, 3 + up + unit - out_frac))


@compiled
def attention(
    rows: Any,
    pos_rc: Any,
    fresh_rmc: Any,
    heads: Any,
    kv_bytes: Any,
    query_rd: Any,
    query_scale_rhc: Any,
    memory: Any,
    base_p: Any,
    vec_rw: Any,
    out_place: Any,
) -> None:
    """ATTENTION. ``heads``: (query, kv, dim). ``out_place``: out_vec, out_frac."""
    num_heads, num_kv, dim = heads
    group = num_heads // num_kv
    for r in rows:
        place_jc = seen_places(pos_rc[r], fresh_rmc[r], base_p, kv_bytes)
        seen = place_jc.shape[0]
        key_jd = np.empty((seen, dim), dtype=np.int8)
        value_jd = np.empty((seen, dim), dtype=np.int8)
        key_scale_jc = np.empty((seen, 2), dtype=np.int64)
        value_scale_jc = np.empty((seen, 2), dtype=np.int64)
        weight_j = np.empty(seen, dtype=np.int64)
        for k in range(num_kv):
            read_head(memory, place_jc, (0, kv_bytes[2], num_kv, k), key_jd, key_scale_jc)
            read_head(memory, place_jc, (1, kv_bytes[3], num_kv, k), value_jd, value_scale_jc)
            for h in range(k * group, (k + 1) * group):
                query_d = query_rd[r, h * dim : (h + 1) * dim]
                summed = weigh(query_d, query_scale_rhc[r, h], key_jd, key_scale_jc, weight_j)
                at = out_place[0] + h * dim
                mix(
                    weight_j,
                    summed,
                    value_jd,
                    value_scale_jc,
                    out_place[1],
                    vec_rw[r, at : at + dim],
                )


@compiled
def scale_logits(logit_c: Any, inv_t: Int, shift: Int, scaled_c: Any, weight_c: Any) -> Int:
    """DRAW's part without noise: perturbable logits and softmax numerators; returns their sum."""
    best = np.iinfo(np.int64).min
    for c in range(logit_c.size):
        scaled_c[c] = rounded(logit_c[c] * inv_t, shift)
        best = max(best, scaled_c[c])
    summed = np.int64(0)
    for c in range(logit_c.size):
        weight_c[c] = exp2n(((best - scaled_c[c]) * 94548) >> 20)
        summed += weight_c[c]
    return summed
