// Fused cells of recurrent layers. types.cl comes first; the head defines S, K0 (storage kind) and CELL_<name>.
// Launch data, longs: [0] rows, [1] width, [2] flags (1: biases; 2: gradient of the output; 4: gradient of the cell), [3]
// rows per work-item, [4..11] element offsets of the buffers in their order. Gates of a row lie side by side, each `width` wide.
typedef struct { long v[12]; } Meta;
#define P global CAT2(PTR_, K0)*
#define R global const CAT2(PTR_, K0)*

// One element, or 16 neighbours at once.
#define LOAD1(p, i) CAT2(LD1_, K0)(p, i)
#define STORE1(v, p, i) CAT2(ST1_, K0)(v, p, i)
#define LOAD16(p, i) CAT2(LDV_, K0)(p, i)
#define STORE16(v, p, i) CAT2(STV_, K0)(v, p, i)
#define SIGMOID(x) ((S)1 / ((S)1 + exp(-(x))))

#define EACH_ROW                                                                        \
  const long width = m.v[1], first = get_global_id(0) * m.v[3];                         \
  for (long row = first; row < first + m.v[3] && row < m.v[0]; ++row) {                 \
    long h = 0;
#define EACH_PLACE(BODY)                                                                \
    for (; h + 16 <= width; h += 16) { BODY(T16, LOAD16, STORE16) }                     \
    for (; h < width; ++h) { BODY(S, LOAD1, STORE1) }                                   \
  }
#define T16 CAT2(S, 16)

#ifdef CELL_lstm
// Gate k of the row: from the input, from the state, and their biases.
#define GATE(T_, LOAD, k) \
  (LOAD(x, (4 * row + k) * width + h) + (biased ? LOAD(bx, k * width + h) : (T_)(0)) + \
   (LOAD(s, (4 * row + k) * width + h) + (biased ? LOAD(bs, k * width + h) : (T_)(0))))
#define BODY(T_, LOAD, STORE)                                                            \
  const T_ i = SIGMOID(GATE(T_, LOAD, 0)), f = SIGMOID(GATE(T_, LOAD, 1));               \
  const T_ c = tanh(GATE(T_, LOAD, 2)), o = SIGMOID(GATE(T_, LOAD, 3));                  \
  const T_ next = f * LOAD(cx, row * width + h) + i * c;                                 \
  STORE(next, cy, row * width + h);                                                      \
  STORE(o * tanh(next), hy, row * width + h);                                            \
  STORE(i, kept, (4 * row + 0) * width + h);                                             \
  STORE(f, kept, (4 * row + 1) * width + h);                                             \
  STORE(c, kept, (4 * row + 2) * width + h);                                             \
  STORE(o, kept, (4 * row + 3) * width + h);
kernel void lstm(R x0, R s0, R bx0, R bs0, R cx0, P hy0, P cy0, P kept0, const Meta m) {
  R x = x0 + m.v[4]; R s = s0 + m.v[5]; R bx = bx0 + m.v[6]; R bs = bs0 + m.v[7]; R cx = cx0 + m.v[8];
  P hy = hy0 + m.v[9]; P cy = cy0 + m.v[10]; P kept = kept0 + m.v[11];
  const bool biased = m.v[2] & 1;
  EACH_ROW EACH_PLACE(BODY)
}
#endif

#ifdef CELL_lstm_backward
#define BODY(T_, LOAD, STORE)                                                            \
  const T_ i = LOAD(kept, (4 * row + 0) * width + h), f = LOAD(kept, (4 * row + 1) * width + h);  \
  const T_ c = LOAD(kept, (4 * row + 2) * width + h), o = LOAD(kept, (4 * row + 3) * width + h);  \
  const T_ t = tanh(LOAD(cy, row * width + h));                                          \
  const T_ gh = m.v[2] & 2 ? LOAD(ghy, row * width + h) : (T_)(0);                       \
  const T_ dc = gh * o * ((S)1 - t * t) + (m.v[2] & 4 ? LOAD(gcy, row * width + h) : (T_)(0));    \
  STORE(dc * c * i * ((S)1 - i), gates, (4 * row + 0) * width + h);                      \
  STORE(dc * LOAD(cx, row * width + h) * f * ((S)1 - f), gates, (4 * row + 1) * width + h);       \
  STORE(dc * i * ((S)1 - c * c), gates, (4 * row + 2) * width + h);                      \
  STORE(gh * t * o * ((S)1 - o), gates, (4 * row + 3) * width + h);                      \
  STORE(dc * f, gcx, row * width + h);
kernel void lstm_backward(R ghy0, R gcy0, R cx0, R cy0, R kept0, P gates0, P gcx0, const Meta m) {
  R ghy = ghy0 + m.v[4]; R gcy = gcy0 + m.v[5]; R cx = cx0 + m.v[6]; R cy = cy0 + m.v[7]; R kept = kept0 + m.v[8];
  P gates = gates0 + m.v[9]; P gcx = gcx0 + m.v[10];
  EACH_ROW EACH_PLACE(BODY)
}
#endif

#ifdef CELL_gru
#define OF_X(T_, LOAD, k) (LOAD(x, (3 * row + k) * width + h) + (biased ? LOAD(bx, k * width + h) : (T_)(0)))
#define OF_S(T_, LOAD, k) (LOAD(s, (3 * row + k) * width + h) + (biased ? LOAD(bs, k * width + h) : (T_)(0)))
#define BODY(T_, LOAD, STORE)                                                            \
  const T_ r = SIGMOID(OF_X(T_, LOAD, 0) + OF_S(T_, LOAD, 0));                           \
  const T_ z = SIGMOID(OF_X(T_, LOAD, 1) + OF_S(T_, LOAD, 1));                           \
  const T_ hn = OF_S(T_, LOAD, 2), before = LOAD(hx, row * width + h);                   \
  const T_ n = tanh(OF_X(T_, LOAD, 2) + r * hn);                                         \
  STORE(n + z * (before - n), hy, row * width + h);                                      \
  STORE(r, kept, (5 * row + 0) * width + h);                                             \
  STORE(z, kept, (5 * row + 1) * width + h);                                             \
  STORE(n, kept, (5 * row + 2) * width + h);                                             \
  STORE(before, kept, (5 * row + 3) * width + h);                                        \
  STORE(hn, kept, (5 * row + 4) * width + h);
kernel void gru(R x0, R s0, R bx0, R bs0, R hx0, P hy0, P kept0, const Meta m) {
  R x = x0 + m.v[4]; R s = s0 + m.v[5]; R bx = bx0 + m.v[6]; R bs = bs0 + m.v[7]; R hx = hx0 + m.v[8];
  P hy = hy0 + m.v[9]; P kept = kept0 + m.v[10];
  const bool biased = m.v[2] & 1;
  EACH_ROW EACH_PLACE(BODY)
}
#endif

#ifdef CELL_gru_backward
#define BODY(T_, LOAD, STORE)                                                            \
  const T_ r = LOAD(kept, (5 * row + 0) * width + h), z = LOAD(kept, (5 * row + 1) * width + h);  \
  const T_ n = LOAD(kept, (5 * row + 2) * width + h), hn = LOAD(kept, (5 * row + 4) * width + h); \
  const T_ g = LOAD(ghy, row * width + h);                                               \
  const T_ dn = g * ((S)1 - z) * ((S)1 - n * n);                                         \
  const T_ dz = g * (LOAD(kept, (5 * row + 3) * width + h) - n) * z * ((S)1 - z);        \
  const T_ dr = dn * hn * r * ((S)1 - r);                                                \
  STORE(dr, input, (3 * row + 0) * width + h);                                           \
  STORE(dz, input, (3 * row + 1) * width + h);                                           \
  STORE(dn, input, (3 * row + 2) * width + h);                                           \
  STORE(dr, hidden, (3 * row + 0) * width + h);                                          \
  STORE(dz, hidden, (3 * row + 1) * width + h);                                          \
  STORE(dn * r, hidden, (3 * row + 2) * width + h);                                      \
  STORE(g * z, ghx, row * width + h);
kernel void gru_backward(R ghy0, R kept0, P input0, P hidden0, P ghx0, const Meta m) {
  R ghy = ghy0 + m.v[4]; R kept = kept0 + m.v[5];
  P input = input0 + m.v[6]; P hidden = hidden0 + m.v[7]; P ghx = ghx0 + m.v[8];
  EACH_ROW EACH_PLACE(BODY)
}
#endif
