// Routing to experts: a stable counting sort, of which each block sorts and counts a part, and moving rows to experts
// and back.
#include "ops/core/indexing/moe.h"

#include <bit>

#include "compiler/targets/cuda/ops/families.h"
#include "compiler/targets/cuda/ops/layout.h"
#include "compiler/targets/cuda/ops/order.h"
#include "framework/base/error.h"

namespace weft::cuda {
namespace {

// ---- expert_order ----

// A block sorts kTile slots by expert and place and finds where each expert starts. The differences are its counts.
constexpr std::string_view kSortShare = R"(
W_KERNEL {
  const Shared<uint64_t> tile = shared_at<uint64_t>(0);
  const int64 first = (int64)blockIdx.x * kTile, left = p.slots - first;
  const int count = left < kTile ? (int)left : kTile;
  for (int i = threadIdx.x; i < kTile; i += kThreads) {
    uint64_t e = ~(uint64_t)0;
    if (i < count) {
      const int64 slot = first + i;
      const int64 expert = (int64)p.experts[slot / p.k * p.token_step + slot % p.k * p.choice_step];
      e = (uint64_t)checked(expert, p.num, slot, p.bad, p.k) << 32 | (uint64_t)i;
    }
    tile[i] = e;
  }
  sort_tile<kTile>(tile);
  for (int i = threadIdx.x; i < count; i += kThreads) p.sorted[first + i] = tile[i];
  for (int64 e = threadIdx.x; e <= p.num; e += kThreads) {
    int lo = 0, hi = count;
    while (lo < hi) {
      const int mid = (lo + hi) / 2;
      const uint64_t at = tile[mid];
      if ((int64)(at >> 32) < e) lo = mid + 1;
      else hi = mid;
    }
    p.begins[blockIdx.x * (p.num + 1) + e] = lo;
  }
}
)";

// One block: the slots of each expert (a warp sums its parts), the start of each expert's rows, and the start of each
// part's rows.
constexpr std::string_view kPlaces = R"(
static inline int64 share_of(const P& p, int64 b, int64 e) {
  if (b >= p.blocks) return 0;
  const int* begins = p.begins + b * (p.num + 1) + e;
  return begins[1] - begins[0];
}
static inline int64 sum_up_to(int64 v) {  // over the lanes up to this one
  for (int m = 1; m < 32; m *= 2) {
    const int64 other = shfl_up(v, m);
    if (threadIdx.x % 32 >= m) v += other;
  }
  return v;
}
W_KERNEL {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int64 e = warp; e < p.num; e += kThreads / 32) {
    int64 sum = 0;
    for (int64 b = lane; b < p.blocks; b += 32) sum += share_of(p, b, e);
    sum = warp_sum(sum);
    if (lane == 0) p.counts[e] = sum;
  }
  __syncthreads();
  if (warp == 0) {
    int64 before = 0;
    if (lane == 0) p.offsets[0] = 0;
    for (int64 e = 0; e < p.num; e += 32) {
      const int64 v = sum_up_to(e + lane < p.num ? p.counts[e + lane] : 0) + before;
      if (e + lane < p.num) p.offsets[e + lane + 1] = v;
      before = shfl(v, 31);
    }
  }
  __syncthreads();
  for (int64 e = warp; e < p.num; e += kThreads / 32) {
    int64 before = p.offsets[e];
    for (int64 b = 0; b < p.blocks; b += 32) {
      const int64 mine = share_of(p, b + lane, e), v = sum_up_to(mine) + before;
      if (b + lane < p.blocks) p.next[(b + lane) * p.num + e] = v - mine;
      before = shfl(v, 31);
    }
  }
}
)";

constexpr std::string_view kWriteOrder = R"(
W_KERNEL {
  W_EACH(int64, i, p.slots);
  const int64 b = i / kTile, first = b * kTile;
  const uint64_t entry = p.sorted[i];
  const int64 e = (int64)(entry >> 32), slot = first + (int64)(uint32_t)entry;
  const int64 to = p.next[b * p.num + e] + (i - first) - p.begins[b * (p.num + 1) + e];
  p.slot[to] = slot;
  p.token[to] = slot / p.k;
  p.row[slot] = to;
}
)";

bool make_expert_order(const OperationRequest& r, Launches& to) {
  const StridedView& experts = r.in[0];
  const int64_t slots = experts.numel(), num = r.attrs.i("num_experts"), k = experts.shape[1];
  for (const StridedView& y : r.out)
    if (!y.contiguous()) return false;
  if (slots == 0) {
    add_fill(to, r.out[3], result_address(3), int64_t{0});
    add_fill(to, r.out[4], result_address(4), int64_t{0});
    return true;
  }
  to.set_checks_indices();
  const int64_t tile = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(slots, 64, 1024))));
  const int64_t blocks = blocks_for(slots, tile);
  const MemoryAddress sorted = scratch_address(to.scratch(slots * 8)),
                      begins = scratch_address(to.scratch(blocks * (num + 1) * 4)),
                      next = scratch_address(to.scratch(blocks * num * 8));
  {
    Text t("expert_sort", true);
    t.type("X", experts.dtype).constant("kTile", tile).functions(kCheckFunctions);
    t.types(kEntryTypes).functions(kEntryFunctions).functions(kSortTileFunctions);
    t.address("const X* experts", operand_address(0))
        .address("uint64_t* sorted", sorted)
        .address("int* begins", begins)
        .bad();
    t.whole("slots", slots).whole("k", k).whole("num", num).whole("token_step", experts.strides[0]);
    t.whole("choice_step", experts.strides[1]);
    to.add(t.step(kSortShare, blocks, static_cast<int>(std::max<int64_t>(32, tile / 4)), static_cast<int>(tile * 8)));
  }
  {
    Text t("expert_places", true);
    t.address("const int* begins", begins).address("int64* next", next).address("int64* counts", result_address(3));
    t.address("int64* offsets", result_address(4)).whole("num", num).whole("blocks", blocks);
    to.add(t.step(kPlaces, 1, num > 16 ? 1024 : 256));
  }
  Text t("expert_order", true);
  t.constant("kTile", tile).address("const uint64_t* sorted", sorted).address("const int* begins", begins);
  t.address("const int64* next", next)
      .address("int64* slot", result_address(0))
      .address("int64* token", result_address(1));
  t.address("int64* row", result_address(2)).whole("slots", slots).whole("k", k).whole("num", num);
  to.add(t.step(kWriteOrder, blocks_for(slots)));
  return true;
}

// ---- rows to experts and back ----

// kEach neighbouring elements of a row; contiguous if more than one.
constexpr std::string_view kVectors = R"(
struct alignas(kEach * sizeof(T)) Some { T v[kEach]; };
static inline Some some_at(const T* row, int64 c, int64 step) {
  if (kEach > 1) return *(const Some*)(row + c);
  Some s;
  s.v[0] = row[c * step];
  return s;
}
)";

constexpr std::string_view kDispatch = R"(
W_KERNEL {
  W_EACH(int64, task, p.tasks);
  const int64 r = task / p.width, c = task % p.width * kEach;
  const int64 token = checked((int64)p.tokens[r * p.token_step], p.limit, r, p.bad);
  Some s = some_at(p.x + token * p.x_row, c, p.x_step);
  if (kWeights) {
    const int64 slot = checked((int64)p.slots[r * p.slot_step], p.slots_limit, r, p.bad);
    const A w = (A)get(p.weights[slot / p.k * p.w_row + slot % p.k * p.w_step]);
#pragma unroll
    for (int k = 0; k < kEach; ++k) write(s.v[k], (A)get(s.v[k]) * w);
  }
  *(Some*)(p.y + r * p.y_row + c) = s;
}
)";

// Sums the rows of a token in the order of reduce_order.h: 16 lanes, then their tree.
constexpr std::string_view kCombine = R"(
W_KERNEL {
  W_EACH(int64, task, p.tasks);
  const int64 t = task / p.width, c = task % p.width * kEach;
  A sum[16][kEach];
#pragma unroll
  for (int l = 0; l < 16; ++l)
#pragma unroll
    for (int k = 0; k < kEach; ++k) sum[l][k] = (A)0;
  int64 wrong = -1, wrong_row = 0;  // reports the first row out of range at the end, in one place
#pragma unroll 1
  for (int first = 0; first < kChoices; first += 16)
#pragma unroll
    for (int l = 0; l < 16; ++l) {
      if (first + l >= kChoices) continue;
      int64 row = (int64)p.rows[(t * kChoices + first + l) * p.row_step];
      if (row < 0 || row >= p.limit) {
        if (wrong < 0) {
          wrong = t * kChoices + first + l;
          wrong_row = row;
        }
        row = 0;
      }
      const A w = kWeights ? (A)get(p.weights[t * p.w_row + (first + l) * p.w_step]) : (A)1;
      const Some some = some_at(p.x + row * p.x_row, c, p.x_step);
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const A v = (A)get(some.v[k]);
        sum[l][k] = sum[l][k] + (kWeights ? v * w : v);
      }
    }
  if (wrong >= 0) tell_bad_index(p.bad, wrong_row, wrong, p.limit, 0);
  Some s;
#pragma unroll
  for (int m = 8; m > 0; m /= 2)
#pragma unroll
    for (int l = 0; l < m; ++l)
#pragma unroll
      for (int k = 0; k < kEach; ++k) sum[l][k] = sum[l][k] + sum[l + m][k];
#pragma unroll
  for (int k = 0; k < kEach; ++k) write(s.v[k], sum[0][k]);
  *(Some*)(p.y + t * p.y_row + c) = s;
}
)";

// 16 threads per product of two rows. Blocks of 1024 elements form a tree of neighbours on a stack.
constexpr std::string_view kDots = R"(
W_KERNEL {
  const int lane = threadIdx.x % 16;
  const int64 task = (int64)blockIdx.x * (kThreads / 16) + threadIdx.x / 16;
  const bool live = task < p.tasks;
  const int64 slot = live ? task : 0;
  const int64 row = checked((int64)p.rows[slot * p.row_step], p.limit, slot, p.bad);
  const T* a = p.a + row * p.a_row;
  const T* b = p.b + slot / p.k * p.b_row;
  A stack[kDepth];
  int depth = 0;
  for (int block = 0; block < p.blocks; ++block) {
    const int64 first = (int64)block * 1024, left = p.width - first;
    const int count = left < 1024 ? (int)left : 1024;
    A sum = (A)0;
    for (int i = lane; i < count; i += 16)
      sum = sum + (A)get(a[(first + i) * p.a_step]) * (A)get(b[(first + i) * p.b_step]);
    for (int m = 8; m > 0; m /= 2) sum = sum + shfl_down(sum, m);
    for (int d = block; d & 1; d >>= 1) sum = stack[--depth] + sum;
    stack[depth++] = sum;
  }
  A sum = stack[--depth];
  while (depth > 0) sum = stack[--depth] + sum;
  if (lane == 0 && live) write(p.y[slot / p.k * p.y_row + slot % p.k * p.y_step], sum);
}
)";

DType wide_of(DType a, DType b) { return a == kFloat64 || b == kFloat64 ? kFloat64 : kFloat32; }

/// The number of elements moved together: 16 bytes if the rows of both views allow it.
int64_t each_of(const OperationRequest& r, const StridedView& x, const StridedView& y, int64_t most) {
  const int64_t element = itemsize(x.dtype);
  int64_t each = std::min<int64_t>({16, r.alignment}) / element;
  while (each > 1 &&
         (each > most || x.shape[1] % each || x.strides[1] != 1 || x.strides[0] % each || y.strides[0] % each))
    each /= 2;
  return std::max<int64_t>(1, each);
}

void declare_weights(Text& t, const OperationRequest& r, bool weights) {
  const StridedView& w = r.in[weights ? 4 : 0];
  t.type("W", w.dtype).constant("kWeights", weights);
  t.address("const W* weights", operand_address(weights ? 4 : 0)).whole("w_row", weights ? w.strides[0] : 0);
  t.whole("w_step", weights ? w.strides[1] : 0);
}

bool make_dispatch_rows(const OperationRequest& r, Launches& to) {
  const StridedView &x = r.in[0], &slots = r.in[1], &tokens = r.in[2], &y = r.out[0];
  const bool weights = r.in.size() > 4;
  if (y.numel() == 0) return true;
  if (y.strides[1] != 1) return false;
  to.set_checks_indices();
  const int64_t each = each_of(r, x, y, 16);
  Text t("dispatch_rows", true);
  t.type("T", x.dtype).type("X", tokens.dtype).type("S", slots.dtype);
  t.type("A", wide_of(x.dtype, weights ? r.in[4].dtype : x.dtype)).constant("kEach", each);
  t.functions(kCheckFunctions).functions(kWriteFunctions).functions(kVectors);
  t.address("const T* x", operand_address(0))
      .address("const S* slots", operand_address(1))
      .address("const X* tokens", operand_address(2));
  t.address("T* y", result_address(0)).bad();
  declare_weights(t, r, weights);
  t.whole("tasks", y.shape[0] * (y.shape[1] / each)).whole("width", y.shape[1] / each).whole("k", r.attrs.i("k"));
  t.whole("limit", x.shape[0]).whole("slots_limit", slots.shape[0]).whole("token_step", tokens.strides[0]);
  t.whole("slot_step", slots.strides[0]).whole("x_row", x.strides[0]).whole("x_step", x.strides[1]);
  t.whole("y_row", y.strides[0]);
  to.add(t.step(kDispatch, blocks_for(y.numel() / each)));
  return true;
}

bool make_combine_rows(const OperationRequest& r, Launches& to) {
  const StridedView &x = r.in[0], &rows = r.in[3], &y = r.out[0];
  const int64_t k = r.attrs.i("k");
  const bool weights = r.in.size() > 4;
  if (y.numel() == 0) return true;
  WEFT_CHECK_AS(kUnimplemented, k <= 1024, "combine_rows: k is ", k, "; at most 1024 on CUDA");
  if (y.strides[1] != 1) return false;
  to.set_checks_indices();
  const int64_t each = each_of(r, x, y, k <= 2 ? 8 : k <= 8 ? 4 : 1);
  Text t("combine_rows", true);
  t.type("T", x.dtype).type("X", rows.dtype).type("A", wide_of(x.dtype, weights ? r.in[4].dtype : x.dtype));
  t.constant("kEach", each)
      .constant("kChoices", k)
      .functions(kCheckFunctions)
      .functions(kWriteFunctions)
      .functions(kVectors);
  t.address("const T* x", operand_address(0))
      .address("const X* rows", operand_address(3))
      .address("T* y", result_address(0))
      .bad();
  declare_weights(t, r, weights);
  t.whole("tasks", y.shape[0] * (y.shape[1] / each)).whole("width", y.shape[1] / each).whole("limit", x.shape[0]);
  t.whole("row_step", rows.strides[0]).whole("x_row", x.strides[0]).whole("x_step", x.strides[1]);
  t.whole("y_row", y.strides[0]);
  to.add(t.step(kCombine, blocks_for(y.numel() / each)));
  return true;
}

bool make_row_dots(const OperationRequest& r, Launches& to) {
  const StridedView &a = r.in[0], &b = r.in[1], &rows = r.in[4], &y = r.out[0];
  if (y.numel() == 0) return true;
  if (b.shape[1] == 0) {
    add_fill(to, y, result_address(0), int64_t{0});
    return true;
  }
  to.set_checks_indices();
  const int64_t blocks = blocks_for(b.shape[1], 1024);
  Text t("row_dots", true);
  t.type("T", a.dtype).type("X", rows.dtype).type("A", sums_of(a.dtype)).type("Y", y.dtype);
  t.constant("kDepth", std::bit_width(static_cast<uint64_t>(blocks)) + 1)
      .functions(kCheckFunctions)
      .functions(kWriteFunctions);
  t.address("const T* a", operand_address(0))
      .address("const T* b", operand_address(1))
      .address("const X* rows", operand_address(4));
  t.address("Y* y", result_address(0)).bad();
  t.whole("tasks", y.numel()).whole("k", y.shape[1]).whole("width", b.shape[1]).whole("blocks", blocks);
  t.whole("limit", a.shape[0]).whole("row_step", rows.strides[0]).whole("a_row", a.strides[0]);
  t.whole("a_step", a.strides[1]).whole("b_row", b.strides[0]).whole("b_step", b.strides[1]);
  t.whole("y_row", y.strides[0]).whole("y_step", y.strides[1]);
  to.add(t.step(kDots, blocks_for(y.numel(), 8), 128));
  return true;
}

}  // namespace

std::span<const MakerRow> moe_makers() {
  static const MakerRow rows[] = {{&expert_order_op, make_expert_order},
                                  {&dispatch_rows_op, make_dispatch_rows},
                                  {&combine_rows_op, make_combine_rows},
                                  {&row_dots_op, make_row_dots}};
  return rows;
}

}  // namespace weft::cuda
