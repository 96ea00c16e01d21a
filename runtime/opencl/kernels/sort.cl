// Orders rows: radix sort, the k-th of a row, the most frequent of a row. Comes after index.cl (Meta, offsetOf) and defines
// its own head: BITS of an element, INFINITE (the bits of infinity) for floats or SIGNED for whole numbers below 0.
// Elements are bits, so no kernel needs the device to compute in their type.
//
// A value becomes an unsigned key of the same order (NaN the largest, all equal; -0 equal to 0; complemented to sort down),
// a row a list of entries of key and place. The sort takes the keys' bytes from the last to the first, each time stable, so
// that equal keys keep their order and nothing depends on how a row is cut. Bytes that are equal in a whole row are passed
// over. Short rows are merged instead.
//
// Launch data beside index.cl's: [12] pieces a row is cut into, [13] how many of an ordered row are kept, [14] 1 = down,
// [15] which byte, [8] first entry in `spare`; element offsets in it as uints: [112] counts, [113] totals, [114] flags; as
// ulongs: [115] what selection knows. [116] the k-th, [117] what is wanted: 0 k-th, 1 median, 2 median without NaN, or for
// sort_rows 1 = the most frequent.
#if BITS == 64
typedef ulong KEY;
typedef ulong2 ENTRY;
#define ENTRY_OF(key, place) ((ulong2)((key), (ulong)(place)))
#define KEY_OF(e) ((e).x)
#define PLACE_OF(e) ((e).y)
#define BEHIND(a, b) ((a).x > (b).x)
#else
typedef uint KEY;
typedef ulong ENTRY;
#define ENTRY_OF(key, place) ((ulong)(key) << 32 | (ulong)(place))
#define KEY_OF(e) ((uint)((e) >> 32))
#define PLACE_OF(e) ((e) & 0xffffffffUL)
#define BEHIND(a, b) ((a) > (b))
#endif
#define PASSES (BITS / 8)
#define DIGIT(key, pass) ((uint)((key) >> (8 * (pass))) & 255u)
#define HIGH ((KEY)1 << (BITS - 1))
#define ALL (HIGH | (HIGH - 1))
#define SHORT_ROW 128

static KEY keyOf(D x, int down) {
  KEY k = x;
#if defined(INFINITE)
  const KEY size = k & (HIGH - 1);
  k = size > INFINITE ? ALL : size == 0 ? HIGH : (k & HIGH) ? ALL & ~k : k | HIGH;
#elif defined(SIGNED)
  k ^= HIGH;
#endif
  return down ? ALL ^ k : k;
}
#ifdef INFINITE
#define IS_NAN(key) ((key) == ALL)
#define SAME(a, b) (((a) == (b)) & ((a) != ALL))
#else
#define IS_NAN(key) 0
#define SAME(a, b) ((a) == (b))
#endif

#define ITEMS                                                                             \
  const Meta* m = &meta;                                                                  \
  const int down = (int)m->v[14];                                                         \
  const long n = m->v[3], pieces = m->v[12];                                              \
  const long first = (long)get_global_id(0) * m->v[1], last = min(first + m->v[1], m->v[0]); \
  for (long e = first; e < last; ++e)
#define PIECE                                                                             \
  const long row = e / pieces, piece = e % pieces;                                        \
  const long start = piece * n / pieces, end = (piece + 1) * n / pieces;
#define FROM(row) (m->v[6] + offsetOf(m, row, 40))
#define AT(from, k) in[(from) + (k) * m->v[10]]
#define COUNTS ((global uint*)spare + m->v[112])
#define TOTALS ((global uint*)spare + m->v[113])
#define FLAGS ((global uint*)spare + m->v[114])
#define KNOWN ((global ulong*)spare + m->v[115])

// Places [first, last) of a row in order, into the results.
static void put(global D* values, global const D* in, global long* indices, global const ENTRY* ordered, long row, long first, long last,
                const Meta* m) {
  const long from = FROM(row), to = m->v[5] + offsetOf(m, row, 28), place = m->v[7] + offsetOf(m, row, 52);
  for (long k = first; k < last; ++k) {
    const long p = (long)PLACE_OF(ordered[k]);
    values[to + k * m->v[9]] = AT(from, p);
    indices[place + k * m->v[11]] = p;
  }
}
// The value of the longest run of equal ones, the first of such, and where it stands last. No NaN equals another.
static void putMode(global D* values, global const D* in, global long* indices, global const ENTRY* ordered, long row, const Meta* m) {
  long best = 0, where = 0, run = 1;
  for (long k = 1; k <= m->v[3]; ++k) {
    if (k < m->v[3] && SAME(KEY_OF(ordered[k]), KEY_OF(ordered[k - 1]))) {
      ++run;
      continue;
    }
    if (run > best) {
      best = run;
      where = k - 1;
    }
    run = 1;
  }
  const long p = (long)PLACE_OF(ordered[where]);
  values[m->v[5] + offsetOf(m, row, 28)] = AT(FROM(row), p);
  indices[m->v[7] + offsetOf(m, row, 52)] = p;
}

// ---- rows by one work-item each; `spare` holds two rows of entries for each work-item ----
static global ENTRY* merged(global ENTRY* a, global ENTRY* b, long n) {
  for (long lo = 0; lo < n; lo += 8) {   // runs of eight by insertion
    const long hi = min(lo + 8, n);
    for (long k = lo + 1; k < hi; ++k) {
      const ENTRY x = a[k];
      long j = k;
      for (; j > lo && BEHIND(a[j - 1], x); --j) a[j] = a[j - 1];
      a[j] = x;
    }
  }
  for (long width = 8; width < n; width *= 2) {
    for (long lo = 0; lo < n; lo += 2 * width) {
      const long mid = min(lo + width, n), hi = min(lo + 2 * width, n);
      long i = lo, j = mid;
      for (long k = lo; k < hi; ++k) b[k] = i >= mid || (j < hi && BEHIND(a[i], a[j])) ? a[j++] : a[i++];
    }
    global ENTRY* t = a;
    a = b;
    b = t;
  }
  return a;
}

kernel void sort_rows(global D* values, global const D* in, global long* indices, global ENTRY* spare, const Meta meta) {
  uint counts[PASSES * 256];
  ITEMS {
    const long from = FROM(e);
    global ENTRY* a = spare + m->v[8] + (long)get_global_id(0) * 2 * n;
    global ENTRY* b = a + n;
    if (n <= SHORT_ROW) {
      for (long k = 0; k < n; ++k) a[k] = ENTRY_OF(keyOf(AT(from, k), down), k);
      a = merged(a, b, n);
    } else {
      for (int i = 0; i < PASSES * 256; ++i) counts[i] = 0;
      for (long k = 0; k < n; ++k) {
        const KEY key = keyOf(AT(from, k), down);
        a[k] = ENTRY_OF(key, k);
        for (int p = 0; p < PASSES; ++p) ++counts[p * 256 + DIGIT(key, p)];
      }
      for (int p = 0; p < PASSES; ++p) {
        uint* count = counts + p * 256;
        if (count[DIGIT(KEY_OF(a[0]), p)] == (uint)n) continue;
        uint sum = 0;
        for (int i = 0; i < 256; ++i) {
          const uint own = count[i];
          count[i] = sum;
          sum += own;
        }
        for (long k = 0; k < n; ++k) {
          const ENTRY x = a[k];
          b[count[DIGIT(KEY_OF(x), p)]++] = x;
        }
        global ENTRY* t = a;
        a = b;
        b = t;
      }
    }
    if (m->v[117]) putMode(values, in, indices, a, e, m);
    else put(values, in, indices, a, e, 0, m->v[13], m);
  }
}

// ---- few long rows, cut into pieces: count, radix_scan, scatter for each byte, then finish. `spare` holds two rows of
// entries for each row ----
// Where the entries of a row are before this pass: passes that moved nothing are not counted.
static global ENTRY* entriesOf(global ENTRY* spare, long row, int pass, int other, const Meta* m) {
  int moved = other;
  for (int p = 0; p < pass; ++p) moved ^= FLAGS[row * 8 + p] == 0;
  return spare + m->v[8] + (2 * row + (moved & 1)) * m->v[3];
}

kernel void radix_count(global const D* in, global ENTRY* spare, const Meta meta) {
  uint counts[256];
  ITEMS {
    PIECE
    const int pass = (int)m->v[15];
    for (int i = 0; i < 256; ++i) counts[i] = 0;
    global ENTRY* a = entriesOf(spare, row, pass, 0, m);
    if (pass == 0) {
      const long from = FROM(row);
      for (long k = start; k < end; ++k) {
        const KEY key = keyOf(AT(from, k), down);
        a[k] = ENTRY_OF(key, k);
        ++counts[DIGIT(key, 0)];
      }
    } else {
      for (long k = start; k < end; ++k) ++counts[DIGIT(KEY_OF(a[k]), pass)];
    }
    global uint* mine = COUNTS + e * 256;
    for (int i = 0; i < 256; ++i) mine[i] = counts[i];
  }
}

// One work-item a row and digit: counts become those before each piece, totals those of the row.
kernel void radix_scan(global ENTRY* spare, const Meta meta) {
  ITEMS {
    global uint* count = COUNTS + e / 256 * pieces * 256 + e % 256;
    uint sum = 0;
    for (long piece = 0; piece < pieces; ++piece) {
      const uint own = count[piece * 256];
      count[piece * 256] = sum;
      sum += own;
    }
    TOTALS[e] = sum;
  }
}

kernel void radix_scatter(global ENTRY* spare, const Meta meta) {
  uint place[256];
  ITEMS {
    PIECE
    const int pass = (int)m->v[15];
    global const uint* totals = TOTALS + row * 256;
    global const uint* before_ = COUNTS + e * 256;
    uint sum = 0;
    int still = 0;
    for (int i = 0; i < 256; ++i) {
      place[i] = sum + before_[i];
      sum += totals[i];
      still |= totals[i] == (uint)n;
    }
    if (piece == 0) FLAGS[row * 8 + pass] = (uint)still;   // read by later kernels alone
    if (still) continue;
    global const ENTRY* a = entriesOf(spare, row, pass, 0, m);
    global ENTRY* b = entriesOf(spare, row, pass, 1, m);
    for (long k = start; k < end; ++k) {
      const ENTRY x = a[k];
      b[place[DIGIT(KEY_OF(x), pass)]++] = x;
    }
  }
}

kernel void radix_finish(global D* values, global const D* in, global long* indices, global ENTRY* spare, const Meta meta) {
  ITEMS {
    PIECE
    put(values, in, indices, entriesOf(spare, row, PASSES, 0, m), row, start, min(end, m->v[13]), m);
  }
}

kernel void radix_mode(global D* values, global const D* in, global long* indices, global ENTRY* spare, const Meta meta) {
  ITEMS putMode(values, in, indices, entriesOf(spare, e, PASSES, 0, m), e, m);
}

// ---- the k-th of a row: its key byte by byte, from the first, by counting alone; then its place ----
static long wantedPlace(long n, long nans, const Meta* m) {
  if (m->v[117] == 0) return m->v[116];
  if (m->v[117] == 1) return nans > 0 ? n - nans : (n - 1) / 2;   // NaN stands last: the first of them
  return max((n - 1 - nans) / 2, 0L);
}
// Whether one of the next BLOCK packed values has a key that begins with `prefix`: most have not, and this is vector code.
#define BLOCK 32
static int anyWith(global const D* x, int shift, KEY prefix) {
  int any = 0;
  for (int j = 0; j < BLOCK; ++j) any |= keyOf(x[j], 0) >> shift == prefix;
  return any;
}
// Counts the byte `pass` of the keys that begin with `prefix`; returns the number of NaN (first pass only). Four counts of
// each digit, so that neighbours with one digit need not wait for each other.
static long countDigits(uint* counts, global const D* in, long from, long start, long end, int pass, KEY prefix, const Meta* m) {
  long nans = 0, k = start;
  for (int i = 0; i < 1024; ++i) counts[i] = 0;
  if (pass == PASSES - 1) {
    for (; k < end; ++k) {
      const KEY key = keyOf(AT(from, k), 0);
      ++counts[(k & 3) * 256 + DIGIT(key, pass)];
      nans += IS_NAN(key);
    }
  } else {
    const int shift = 8 * (pass + 1), packed = m->v[10] == 1;
    while (k < end) {
      if (packed && k + BLOCK <= end && !anyWith(in + from + k, shift, prefix)) {
        k += BLOCK;
        continue;
      }
      for (const long stop = min(k + BLOCK, end); k < stop; ++k) {
        const KEY key = keyOf(AT(from, k), 0);
        if (key >> shift == prefix) ++counts[(k & 3) * 256 + DIGIT(key, pass)];
      }
    }
  }
  for (int i = 0; i < 256; ++i) counts[i] += counts[256 + i] + counts[512 + i] + counts[768 + i];
  return nans;
}
// Writes the value that is the k-th (from 0) with this key in [start, end), and its place.
static void putFound(global D* values, global const D* in, global long* indices, long row, KEY key, long k, long start, long end, const Meta* m) {
  const long from = FROM(row);
  for (long p = start; p < end;) {
    if (m->v[10] == 1 && p + BLOCK <= end && !anyWith(in + from + p, 0, key)) {
      p += BLOCK;
      continue;
    }
    for (const long stop = min(p + BLOCK, end); p < stop; ++p) {
      if (keyOf(AT(from, p), 0) != key || k-- > 0) continue;
      values[m->v[5] + offsetOf(m, row, 28)] = AT(from, p);
      indices[m->v[7] + offsetOf(m, row, 52)] = p;
      return;
    }
  }
}

kernel void select_rows(global D* values, global const D* in, global long* indices, const Meta meta) {
  uint counts[1024];
  ITEMS {
    const long from = FROM(e);
    KEY prefix = 0;
    long k = 0;
    for (int pass = PASSES - 1; pass >= 0; --pass) {
      const long nans = countDigits(counts, in, from, 0, n, pass, prefix, m);
      if (pass == PASSES - 1) k = wantedPlace(n, nans, m);
      int digit = 0;
      for (; digit < 255 && k >= (long)counts[digit]; ++digit) k -= counts[digit];
      prefix = prefix << 8 | (KEY)digit;
    }
    putFound(values, in, indices, e, prefix, k, 0, n, m);
  }
}

// In pieces: select_count, radix_scan and select_pick for each byte, then select_find. KNOWN of a row: prefix, k; of a piece: NaN.
kernel void select_count(global const D* in, global ENTRY* spare, const Meta meta) {
  uint counts[1024];
  ITEMS {
    PIECE
    const int pass = (int)m->v[15];
    const KEY prefix = pass == PASSES - 1 ? 0 : (KEY)KNOWN[row * 2];
    const long nans = countDigits(counts, in, FROM(row), start, end, pass, prefix, m);
    if (pass == PASSES - 1) FLAGS[e] = (uint)nans;
    global uint* mine = COUNTS + e * 256;
    for (int i = 0; i < 256; ++i) mine[i] = counts[i];
  }
}

kernel void select_pick(global ENTRY* spare, const Meta meta) {
  ITEMS {
    const int first_byte = m->v[15] == PASSES - 1;
    long k = (long)KNOWN[e * 2 + 1];
    if (first_byte) {
      long nans = 0;
      for (long piece = 0; piece < pieces; ++piece) nans += FLAGS[e * pieces + piece];
      k = wantedPlace(n, nans, m);
    }
    global const uint* totals = TOTALS + e * 256;
    int digit = 0;
    for (; digit < 255 && k >= (long)totals[digit]; ++digit) k -= totals[digit];
    KNOWN[e * 2] = (first_byte ? 0 : KNOWN[e * 2] << 8) | (ulong)digit;
    KNOWN[e * 2 + 1] = (ulong)k;
  }
}

kernel void select_find(global D* values, global const D* in, global long* indices, global ENTRY* spare, const Meta meta) {
  ITEMS {
    PIECE
    const KEY key = (KEY)KNOWN[row * 2];
    const uint digit = DIGIT(key, 0);
    const long before_ = COUNTS[e * 256 + digit], k = (long)KNOWN[row * 2 + 1] - before_;
    const long own = (piece + 1 < pieces ? COUNTS[(e + 1) * 256 + digit] : TOTALS[row * 256 + digit]) - before_;
    if (k >= 0 && k < own) putFound(values, in, indices, row, key, k, start, end, m);
  }
}

// ---- runs of equal neighbours in a packed vector of n elements ----
#ifdef INFINITE   // by the bits themselves: not equal, unless both are zeros, or NaN
#define DIFFER(a, b) ((((a) != (b)) & ((((a) | (b)) & (HIGH - 1)) != 0)) | (((a) & (HIGH - 1)) > INFINITE))
#else
#define DIFFER(a, b) ((a) != (b))
#endif
// One work-item a piece: how many runs begin in it.
kernel void runs_count(global const D* in, global long* before_, const Meta meta) {
  ITEMS {
    PIECE
    global const D* x = in + m->v[6];
    uint runs = start == 0;
    for (long k = max(start, 1L); k < end; ++k) runs += DIFFER(x[k], x[k - 1]);
    before_[m->v[5] + piece] = runs;
  }
}
// Those that begin before each piece, and, behind the last, all.
kernel void runs_scan(global long* before_, const Meta meta) {
  ITEMS {
    long sum = 0;
    for (long piece = 0; piece < pieces; ++piece) {
      const long own = before_[m->v[5] + piece];
      before_[m->v[5] + piece] = sum;
      sum += own;
    }
    before_[m->v[5] + pieces] = sum;
  }
}
// The value of each run; where wanted, its first place ([n] closes the places) and the number of each element's run, at
// order[k] for element k where there is an order. 0 = before, 1 = in, 2 = values; offsets of the others: [112] starts, [113]
// numbers, [114] order; [116] bits: 1 = starts, 2 = numbers, 4 = by order.
kernel void runs_write(global const D* in, global const long* before_, global D* values, global long* starts, global long* numbers,
                       global const long* order, const Meta meta) {
  ITEMS {
    PIECE
    global const D* x = in + m->v[6];
    const int wanted = (int)m->v[116];
    long run = before_[m->v[5] + piece] - 1;
    if (wanted == 0) {
      global D* to = values + m->v[7];
      for (long k = start; k < end; ++k)
        if (k == 0 || DIFFER(x[k], x[k - 1])) to[++run] = x[k];
      continue;
    }
    for (long k = start; k < end; ++k) {
      if (k == 0 || DIFFER(x[k], x[k - 1])) {
        ++run;
        values[m->v[7] + run] = x[k];
        if (wanted & 1) starts[m->v[112] + run] = k;
      }
      if (wanted & 2) numbers[m->v[113] + (wanted & 4 ? order[m->v[114] + k] : k)] = run;
    }
    if ((wanted & 1) && piece == pieces - 1) starts[m->v[112] + run + 1] = n;
  }
}
