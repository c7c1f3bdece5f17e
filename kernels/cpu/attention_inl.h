#pragma once

// Attention over paged keys and values. Only kernels_*.cc include this file, after
// elementwise_inl.h.
//
// Keys are read in tiles of kKeyTile, at absolute positions, with an online softmax (Milakov &
// Gimelshein 2018; Dao et al. 2022). Every kKeySpan keys form a span, which has a result of its
// own. The results of the spans are merged in ascending order. A task has one query for each of its
// rows and heads, in order of position. The result of a query does not depend on the other queries.
// If there is an attention window, a query skips all spans and tiles that lie wholly outside its
// window. In the first tile that is not skipped, the query starts at the first key of its window.
namespace baton::cpu {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// Pointers to the intermediate results of a task, all in one block of memory that the caller owns.
// The block has Floats() floats. `q` and `o` have rows of `width` floats.
struct AttendScratch {
  AttendScratch(int query_count, int head_dim, float* memory)
      : queries(query_count), width(RoundUp16(head_dim)) {
    q = memory;
    total_o = q + queries * width;
    o = total_o + queries * width;
    scores = o + queries * width;
    packed = scores + queries * kKeyTile;
    values = packed + kKeyTile * width;
    max = values + kKeyTile * width;
    total_max = max + RoundUp16(queries);
    total_sum = total_max + RoundUp16(queries);
    factor = total_sum + RoundUp16(queries);
    sum = factor + RoundUp16(queries);
  }
  static size_t Floats(int queries, int head_dim) {
    return queries * (3 * RoundUp16(head_dim) + kKeyTile + 16) +
           2 * kKeyTile * RoundUp16(head_dim) + 4 * RoundUp16(queries);
  }

  ptrdiff_t queries, width;
  float* q;       // the queries; zero from head_dim on
  float* o;       // output of this span, not yet divided by its sum
  float* scores;  // [queries][kKeyTile]; becomes the probabilities
  float* packed;  // keys of the tile, widened
  float* values;  // values of the tile, widened
  float* max;     // max score of this span
  float* sum;     // [queries][16]: sixteen partial sums of each query, for this span
  float* factor;  // multiplies the old o and sum
  float *total_o, *total_max, *total_sum;  // o, max and sum of the spans merged so far
};

// Floats in the partial result of one query over one span: o[width], the max score, and the sum of
// the probabilities. Padded to a multiple of sixteen.
inline ptrdiff_t PartialFloats(ptrdiff_t width) { return width + 16; }

// Returns the position of the first key that the query sees.
inline ptrdiff_t FirstKey(const AttentionTask& task, ptrdiff_t query) {
  const ptrdiff_t key = task.first_position + query / task.group + 1 - task.window;
  return task.window > 0 && key > 0 ? key : 0;
}

// In a tile of keys that starts at position `first_key`, a query sees the keys from KeysBefore to
// KeysSeen - 1, counted from the tile's start. The query must see at least one key of the tile.
inline int KeysBefore(const AttentionTask& task, ptrdiff_t query, ptrdiff_t first_key) {
  const ptrdiff_t key = FirstKey(task, query);
  return key > first_key ? static_cast<int>(key - first_key) : 0;
}
inline int KeysSeen(const AttentionTask& task, ptrdiff_t query, ptrdiff_t first_key) {
  const ptrdiff_t keys = task.first_position + query / task.group + 1 - first_key;
  return keys < kKeyTile ? static_cast<int>(keys) : kKeyTile;
}

inline int TileKeys(ptrdiff_t key, ptrdiff_t end) {
  return end - key < kKeyTile ? static_cast<int>(end - key) : kKeyTile;
}

// The queries that see at least one of the keys from `key` to `last_key` are those from
// FirstQuery(task, key) to EndQuery(task, last_key) - 1.
inline int FirstQuery(const AttentionTask& task, ptrdiff_t key) {
  const ptrdiff_t row = key - task.first_position;
  return row > 0 ? static_cast<int>(row * task.group) : 0;
}
inline int EndQuery(const AttentionTask& task, ptrdiff_t last_key) {
  const ptrdiff_t rows = last_key + task.window - task.first_position;
  return static_cast<int>(task.window > 0 && rows < task.rows ? rows : task.rows) * task.group;
}

// The range of keys that belongs to one span (kKeySpan keys). It ends at the last key that the
// task's last query sees.
struct SpanKeys {
  SpanKeys(const AttentionTask& task, int span) : begin(static_cast<ptrdiff_t>(span) * kKeySpan) {
    const ptrdiff_t all = task.first_position + task.rows;
    end = begin + kKeySpan < all ? begin + kKeySpan : all;
    q0 = FirstQuery(task, begin);
    q1 = EndQuery(task, end - 1);
  }
  ptrdiff_t begin, end;
  int q0, q1;  // queries [q0, q1) see at least one of the span's keys
};

// Fills `rows` with the addresses of `keys` tokens of a plane (the K or the V of one layer and
// head), starting at token `first_key`. The last address is repeated up to a multiple of kTileCols.
// Also prefetches the tokens: they are used some thousand cycles later.
template <class T>
inline void TokenRows(const AttentionTask& task, const char* plane, ptrdiff_t first_key, int keys,
                      const T** rows) {
  ptrdiff_t index = first_key / task.block_tokens;
  int slot = static_cast<int>(first_key % task.block_tokens);
  for (int j = 0; j < keys; ++index, slot = 0) {
    const char* token = plane + static_cast<size_t>(task.blocks[index]) * task.block_bytes +
                        slot * task.token_bytes;
    for (; slot < task.block_tokens && j < keys; ++slot, ++j, token += task.token_bytes) {
      rows[j] = reinterpret_cast<const T*>(token);
      for (size_t at = 0; at < task.token_bytes; at += 64) __builtin_prefetch(token + at);
    }
  }
  for (int j = keys; j % kTileCols != 0; ++j) rows[j] = rows[keys - 1];
}

// Computes the scores of queries [q0, q1) for `keys` keys, a tile of queries times a tile of keys
// at a time. `tile_at(j)` returns the tile that starts at key j.
template <class TileAt>
inline void ScoreTiles(const AttendScratch& s, int q0, int q1, int keys, TileAt tile_at) {
  const RowTiles tiles(q1 - q0);
  for (int row_tile = 0; row_tile < tiles.count; ++row_tile) {
    const int query = q0 + tiles.begin(row_tile);
    for (int j = 0; j < keys; j += kTileCols) {
      float sums[kTileSums];
      DotTileOf(tiles.size(row_tile), s.q + query * s.width, s.width, tile_at(j), s.width / 16,
                true, sums);
      for (int r = 0; r < tiles.size(row_tile); ++r) {
        const float* x = sums + r * kTileCols * 16;
        ReduceFour(x, x + 16, x + 32, x + 48, s.scores + (query + r) * kKeyTile + j);
      }
    }
  }
}

// Adds up the products of kRows queries with kLanes keys: sum[r] has one dot product in each lane.
// Element i of the keys is at keys + i * kLanes. Computes lanes kLane, kLane + kStep, ... of the
// sixteen that dot_inl.h describes, and adds them as its tree does.
template <int kRows, int kLane, int kStep>
[[gnu::always_inline]] inline void SumProducts(const float* q, ptrdiff_t width, const float* keys,
                                               Vec* sum) {
  if constexpr (kStep == 16) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) sum[r] = Zero();
    for (ptrdiff_t i = kLane; i < width; i += 16) {
      const Vec key = Load(keys + i * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sum[r] = Fma(Broadcast(q[r * width + i]), key, sum[r]);
    }
  } else {
    Vec other[kRows];
    SumProducts<kRows, kLane, 2 * kStep>(q, width, keys, sum);
    SumProducts<kRows, kLane + kStep, 2 * kStep>(q, width, keys, other);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) sum[r] = Add(sum[r], other[r]);
  }
}

// Computes the scores of `queries` queries from `query` on, at most kRows, for the `keys` keys in
// s.packed.
template <int kRows>
inline void ScoreColumns(const AttendScratch& s, int queries, int query, int keys) {
  if constexpr (kRows > 1) {
    if (queries < kRows) return ScoreColumns<kRows - 1>(s, queries, query, keys);
  }
  for (int j = 0; j < keys; j += kLanes) {
    Vec sum[kRows];
    SumProducts<kRows, 0, 1>(s.q + query * s.width, s.width, s.packed + j * s.width, sum);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) Store(s.scores + (query + r) * kKeyTile + j, sum[r]);
  }
}

// Widens `keys` keys and makes each of them a lane: out[j / kLanes][element][j % kLanes].
template <class T>
inline void PackColumns(const T* const* rows, int keys, int head_dim, ptrdiff_t width, float* out) {
  for (int j = 0; j < keys; j += kLanes, out += width * kLanes) {
    for (ptrdiff_t i = 0; i < width; i += kLanes) {
      float* square = out + i * kLanes;
      for (int lane = 0; lane < kLanes; ++lane) {
        const T* from = rows[j + lane < keys ? j + lane : keys - 1] + i;
        const ptrdiff_t left = head_dim - i;
        Store(square + lane * kLanes, left >= kLanes ? LoadWide(from)
                                      : left > 0     ? LoadWidePartial(from, left)
                                                     : Zero());
      }
      TransposeRows(square);
    }
  }
}

// Computes scores[query][j] = q . k_j for queries [q0, q1) and keys [0, keys). The scores are not
// yet multiplied by task.scale.
template <class T>
inline void Scores(const AttentionTask& task, const AttendScratch& s, int q0, int q1,
                   const T* const* rows, int keys) {
  const int queries = q1 - q0;
  if (queries == 1) {
    const float* q = s.q + q0 * s.width;
    float* scores = s.scores + q0 * kKeyTile;
    for (int j = 0; j < keys; j += kTileCols) {
      float sums[kTileCols * 16];
      DotRows<T, 1, kTileCols>(q, s.width, rows + j, task.head_dim, 0, sums);
      ReduceFour(sums, sums + 16, sums + 32, sums + 48, scores + j);
    }
  } else if (queries <= kRawRows && task.head_dim % 16 == 0) {
    ScoreTiles(s, q0, q1, keys, [&](int j) { return RawTile<T>(rows + j, 0); });
  } else {
    PackColumns(rows, keys, task.head_dim, s.width, s.packed);
    const RowTiles tiles(q1 - q0);
    for (int tile = 0; tile < tiles.count; ++tile) {
      ScoreColumns<kTileRows>(s, tiles.size(tile), q0 + tiles.begin(tile), keys);
    }
  }
}

// Returns cap * tanh(x), where x = products * scale / cap. Computed as cap - 2 * cap / (exp(2 * x)
// + 1), which tends to cap and -cap for large |x|.
inline Vec CapScores(Vec products, float scale, float cap) {
  const Vec x = Mul(products, Broadcast(2 * (scale / cap)));
  return Sub(Broadcast(cap), Div(Broadcast(2 * cap), Add(Exp(x), Broadcast(1.0f))));
}

// Turns the scores of one query for keys [begin, keys) of a tile into probabilities exp(score -
// max), where max is taken over all keys of the span so far, and adds them to the query's partial
// sums. Sets `factor`, by which results relative to the old max must be multiplied.
inline void Softmax(const AttentionTask& task, const AttendScratch& s, ptrdiff_t query, int begin,
                    int keys) {
  float* scores = s.scores + query * kKeyTile;
  for (int j = keys; j < kKeyTile; ++j) scores[j] = 0;
  if (task.soft_cap > 0) {
    for (int j = 0; j < kKeyTile; j += kLanes) {
      Store(scores + j, CapScores(Load(scores + j), task.scale, task.soft_cap));
    }
  } else {
    const Vec scale = Broadcast(task.scale);
    for (int j = 0; j < kKeyTile; j += kLanes) Store(scores + j, Mul(Load(scores + j), scale));
  }
  for (int j = 0; j < begin; ++j) scores[j] = kMinusInfinity;
  for (int j = keys; j < kKeyTile; ++j) scores[j] = kMinusInfinity;
  Vec max[kParts];
  for (int part = 0; part < kParts; ++part) max[part] = Broadcast(s.max[query]);
  for (int j = 0; j < keys; j += 16) {
    for (int part = 0; part < kParts; ++part) {
      max[part] = Max(Load(scores + j + part * kLanes), max[part]);
    }
  }
  for (int part = 1; part < kParts; ++part) max[0] = Max(max[part], max[0]);
  const float new_max = MaxLane(max[0]);
  s.factor[query] = ExpOne(s.max[query] - new_max);
  s.max[query] = new_max;

  const Vec shift = Broadcast(new_max), factor = Broadcast(s.factor[query]);
  float* sum = s.sum + query * 16;
  Vec total[kParts];
  for (int part = 0; part < kParts; ++part) total[part] = Mul(Load(sum + part * kLanes), factor);
  for (int j = 0; j < keys; j += 16) {
    for (int part = 0; part < kParts; ++part) {
      float* at = scores + j + part * kLanes;
      const Vec p = Exp(Sub(Load(at), shift));
      Store(at, p);
      total[part] = Add(total[part], p);
    }
  }
  for (int part = 0; part < kParts; ++part) Store(sum + part * kLanes, total[part]);
}

// Adds probability * value to `acc` for the keys [begin, end), in ascending order.
template <class T, int kVecs>
inline void AttendKeys(const float* p, const T* const* rows, ptrdiff_t column, int begin, int end,
                       Vec* acc) {
  for (int j = begin; j < end; ++j) {
    const Vec weight = Broadcast(p[j]);
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) {
      acc[v] = Fma(weight, LoadWide(rows[j] + column + v * kLanes), acc[v]);
    }
  }
}

// For kRows queries and kGroups * 16 columns of the output: multiplies the old output by `factor`,
// then adds probability * value for each key of the tile, in order.
template <class T, int kRows, int kGroups>
inline void AttendTile(const AttentionTask& task, const AttendScratch& s, ptrdiff_t query,
                       ptrdiff_t first_key, const T* const* rows, ptrdiff_t column) {
  constexpr int kVecs = kGroups * kParts;
  const float* p = s.scores + query * kKeyTile;
  float* o = s.o + query * s.width + column;
  Vec acc[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const Vec factor = Broadcast(s.factor[query + r]);
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) acc[r][v] = Mul(Load(o + r * s.width + v * kLanes), factor);
  }
  // All kRows queries see the keys [shared, shared_end). Keys before and after that range are
  // handled query by query.
  const int shared_end = KeysSeen(task, query, first_key);
  int shared = KeysBefore(task, query + kRows - 1, first_key);
  if (shared > shared_end) shared = shared_end;
  if (shared > 0) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      AttendKeys<T, kVecs>(p + r * kKeyTile, rows, column, KeysBefore(task, query + r, first_key),
                           shared, acc[r]);
    }
  }
  for (int j = shared; j < shared_end; ++j) {
    Vec value[kVecs];
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) value[v] = LoadWide(rows[j] + column + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec weight = Broadcast(p[r * kKeyTile + j]);
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v) acc[r][v] = Fma(weight, value[v], acc[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const int before = KeysBefore(task, query + r, first_key);
    AttendKeys<T, kVecs>(p + r * kKeyTile, rows, column, before > shared_end ? before : shared_end,
                         KeysSeen(task, query + r, first_key), acc[r]);
#pragma GCC unroll 16
    for (int v = 0; v < kVecs; ++v) Store(o + r * s.width + v * kLanes, acc[r][v]);
  }
}

// Returns the number of groups of sixteen columns whose sums fit into the registers if `rows`
// queries are handled together.
constexpr int ColumnGroups(int rows) {
  int groups = 1;
  while (groups < 8 && 2 * groups * rows * kParts <= kAttendVecs) groups *= 2;
  return groups;
}

// Runs AttendTile for queries [query, end), kRows at a time, while at least kRows are left. Returns
// the first query not handled.
template <class T, int kRows>
inline ptrdiff_t AttendRows(const AttentionTask& task, const AttendScratch& s, ptrdiff_t query,
                            ptrdiff_t end, ptrdiff_t first_key, const T* const* value_rows) {
  constexpr int kGroups = ColumnGroups(kRows);
  for (; query + kRows <= end; query += kRows) {
    ptrdiff_t column = 0;
    for (; column + kGroups * 16 <= s.width; column += kGroups * 16) {
      AttendTile<T, kRows, kGroups>(task, s, query, first_key, value_rows, column);
    }
    if constexpr (kGroups > 1) {
      for (; column < s.width; column += 16) {
        AttendTile<T, kRows, 1>(task, s, query, first_key, value_rows, column);
      }
    }
  }
  return query;
}

template <class T>
inline void AttendAllRows(const AttentionTask& task, const AttendScratch& s, ptrdiff_t query,
                          ptrdiff_t end, ptrdiff_t first_key, const T* const* value_rows) {
  query = AttendRows<T, kAttendRows>(task, s, query, end, first_key, value_rows);
  if constexpr (kAttendRows > 4) {
    query = AttendRows<T, 4>(task, s, query, end, first_key, value_rows);
  }
  if constexpr (kAttendRows > 2) {
    query = AttendRows<T, 2>(task, s, query, end, first_key, value_rows);
  }
  AttendRows<T, 1>(task, s, query, end, first_key, value_rows);
}

// Attends to the keys of one span, for all queries that see any of these keys. Sets o, max and the
// sixteen partial sums of each of these queries in AttendScratch.
template <class T>
void AttendSpanOf(const AttentionTask& task, const AttendScratch& s, int span) {
  const SpanKeys span_keys(task, span);
  for (ptrdiff_t query = span_keys.q0; query < span_keys.q1; ++query) {
    s.max[query] = kMinusInfinity;
    for (int i = 0; i < 16; ++i) s.sum[query * 16 + i] = 0;
    for (ptrdiff_t i = 0; i < s.width; ++i) s.o[query * s.width + i] = 0;
  }
  const ptrdiff_t first_tile = FirstKey(task, 0) / kKeyTile * kKeyTile, span_end = span_keys.end;
  const ptrdiff_t begin = first_tile > span_keys.begin ? first_tile : span_keys.begin;
  const T* key_rows[kKeyTile];
  TokenRows(task, task.keys, begin, TileKeys(begin, span_end), key_rows);
  for (ptrdiff_t key = begin; key < span_end; key += kKeyTile) {
    const int keys = TileKeys(key, span_end);
    const int q0 = FirstQuery(task, key), q1 = EndQuery(task, key + keys - 1);
    const T* value_rows[kKeyTile];
    TokenRows(task, task.values, key, keys, value_rows);
    Scores(task, s, q0, q1, key_rows, keys);
    for (ptrdiff_t query = q0; query < q1; ++query) {
      Softmax(task, s, query, KeysBefore(task, query, key), KeysSeen(task, query, key));
    }
    const ptrdiff_t next = key + kKeyTile;
    if (next < span_end) TokenRows(task, task.keys, next, TileKeys(next, span_end), key_rows);
    if (q1 - q0 <= kAttendRows && task.head_dim % 16 == 0) {
      AttendAllRows(task, s, q0, q1, key, value_rows);
    } else {
      const float* wide[kKeyTile];
      for (int j = 0; j < keys; ++j) {
        float* row = s.values + j * s.width;
        WidenRow(value_rows[j], task.head_dim, row);
        for (ptrdiff_t i = task.head_dim; i < s.width; ++i) row[i] = 0;
        wide[j] = row;
      }
      AttendAllRows(task, s, q0, q1, key, wide);
    }
  }
}

void AttendSpan(const AttentionTask& task, const AttendScratch& s, int span) {
  switch (task.type) {
    case Element::kF32:
      return AttendSpanOf<float>(task, s, span);
    case Element::kF16:
      return AttendSpanOf<F16>(task, s, span);
    case Element::kBf16:
      return AttendSpanOf<Bf16>(task, s, span);
  }
}

inline float SumOf(const AttendScratch& s, ptrdiff_t query) {
  const float* lanes = s.sum + query * 16;
  float sum[4];
  ReduceFour(lanes, lanes, lanes, lanes, sum);
  return sum[0];
}

// Merges the result of one more span of a query into the query's total. Spans must come in
// ascending order.
inline void Fold(const AttentionTask& task, const AttendScratch& s, ptrdiff_t query, int span,
                 const float* o, float max, float sum) {
  float* total = s.total_o + query * s.width;
  if (span == FirstKey(task, query) / kKeySpan) {
    for (ptrdiff_t i = 0; i < s.width; i += kLanes) Store(total + i, Load(o + i));
    s.total_max[query] = max;
    s.total_sum[query] = sum;
    return;
  }
  const float new_max = s.total_max[query] > max ? s.total_max[query] : max;
  const float old_factor = ExpOne(s.total_max[query] - new_max), factor = ExpOne(max - new_max);
  const Vec old_factors = Broadcast(old_factor), factors = Broadcast(factor);
  for (ptrdiff_t i = 0; i < s.width; i += kLanes) {
    Store(total + i, Fma(Load(o + i), factors, Mul(Load(total + i), old_factors)));
  }
  s.total_max[query] = new_max;
  s.total_sum[query] = __builtin_fmaf(sum, factor, s.total_sum[query] * old_factor);
}

inline void FinishQueries(const AttentionTask& task, const AttendScratch& s) {
  for (ptrdiff_t query = 0; query < s.queries; ++query) {
    const float* total = s.total_o + query * s.width;
    float* out =
        task.out + query / task.group * task.out_stride + query % task.group * task.head_dim;
    const Vec sum = Broadcast(s.total_sum[query]);
    for (int i = 0; i < task.head_dim; i += kLanes) {
      StorePartial(out + i, Div(Load(total + i), sum), task.head_dim - i);
    }
  }
}

inline void LoadQueries(const AttentionTask& task, const AttendScratch& s) {
  for (ptrdiff_t query = 0; query < s.queries; ++query) {
    const float* in =
        task.q + query / task.group * task.q_stride + query % task.group * task.head_dim;
    float* q = s.q + query * s.width;
    __builtin_memcpy(q, in, task.head_dim * sizeof(float));
    for (ptrdiff_t i = task.head_dim; i < s.width; ++i) q[i] = 0;
  }
}

void Attend(const AttentionTask& task, float* scratch) {
  const AttendScratch s(task.rows * task.group, task.head_dim, scratch);
  LoadQueries(task, s);
  const ptrdiff_t last = task.first_position + task.rows - 1;
  for (int span = task.first_span; span <= last / kKeySpan; ++span) {
    AttendSpan(task, s, span);
    const SpanKeys keys(task, span);
    for (ptrdiff_t query = keys.q0; query < keys.q1; ++query) {
      Fold(task, s, query, span, s.o + query * s.width, s.max[query], SumOf(s, query));
    }
  }
  FinishQueries(task, s);
}

void AttendOneSpan(const AttentionTask& task, int span, float* partial, float* scratch) {
  const AttendScratch s(task.rows * task.group, task.head_dim, scratch);
  LoadQueries(task, s);
  AttendSpan(task, s, span);
  const SpanKeys keys(task, span);
  for (ptrdiff_t query = keys.q0; query < keys.q1; ++query) {
    float* out = partial + query * PartialFloats(s.width);
    __builtin_memcpy(out, s.o + query * s.width, s.width * sizeof(float));
    out[s.width] = s.max[query];
    out[s.width + 1] = SumOf(s, query);
  }
}

void AttendMerge(const AttentionTask& task, const float* partials, float* scratch) {
  const AttendScratch s(task.rows * task.group, task.head_dim, scratch);
  for (ptrdiff_t query = 0; query < s.queries; ++query) {
    const ptrdiff_t position = task.first_position + query / task.group;
    for (ptrdiff_t span = FirstKey(task, query) / kKeySpan; span <= position / kKeySpan; ++span) {
      const ptrdiff_t index = (span - task.first_span) * s.queries + query;
      const float* in = partials + index * PartialFloats(s.width);
      Fold(task, s, query, static_cast<int>(span), in, in[s.width], in[s.width + 1]);
    }
  }
  FinishQueries(task, s);
}

size_t AttendPartialFloats(int queries, int head_dim) {
  return queries * PartialFloats(RoundUp16(head_dim));
}

}  // namespace
}  // namespace baton::cpu
