#include "ops/kernels/onednn_tile.h"

#include <oneapi/dnnl/dnnl.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "framework/base/cpu.h"
#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "third_party/openmp/openmp.h"

#if DNNL_VERSION_MAJOR != 2
#error "written for oneDNN 2.x, where operations have descriptors"
#endif

namespace weft::kernels {
namespace {

void check(dnnl_status_t status, const char* what) {
  if (status != dnnl_success)
    internal::fail(status == dnnl_out_of_memory ? Code::kResourceExhausted : Code::kInternal,
                   cat("matmul: oneDNN failed to ", what, " (status ", static_cast<int>(status), ")"));
}

dnnl_engine_t engine() {
  static dnnl_engine_t e = [] {
    // WEFT_ISA holds for oneDNN too. Refused if a primitive exists already, which can only be the user's own.
    if (selected_isa() == Isa::baseline) dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
    if (selected_isa() == Isa::avx2) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    dnnl_engine_t made;
    check(dnnl_engine_create(&made, dnnl_cpu, 0), "create its engine");
    return made;
  }();
  return e;
}

struct Hash {
  size_t operator()(const TileShape& s) const {
    uint64_t h = static_cast<uint64_t>(s.type) << 8 | static_cast<uint64_t>(s.out) << 4 | s.accumulate;
    for (int64_t v : {s.m, s.n, s.k, s.a_row, s.a_col, s.b_row, s.b_col, s.ldc})
      h = (h ^ static_cast<uint64_t>(v)) * 0x9e3779b97f4a7c15ull, h ^= h >> 29;
    return h;
  }
};

dnnl_memory_desc_t matrix(DType type, int64_t rows, int64_t cols, int64_t row, int64_t col) {
  dnnl_dims_t dims = {rows, cols}, strides = {row, col};
  dnnl_memory_desc_t d;
  check(dnnl_memory_desc_init_by_strides(&d, 2, dims, type == kBFloat16 ? dnnl_bf16 : dnnl_f32, strides),
        "describe a matrix");
  return d;
}

// A compiled product; shared by threads, which bring their own memory objects.
struct Primitive {
  dnnl_primitive_t primitive = nullptr;
  dnnl_memory_desc_t a, b, c, scratch;
  int64_t scratch_bytes = 0;

  explicit Primitive(const TileShape& s) {
    a = matrix(s.type, s.m, s.k, s.a_row, s.a_col);
    b = matrix(s.type, s.k, s.n, s.b_row, s.b_col);
    c = matrix(s.out, s.m, s.n, s.ldc, 1);
    dnnl_matmul_desc_t desc;
    check(dnnl_matmul_desc_init(&desc, &a, &b, nullptr, &c), "describe a product");
    dnnl_primitive_attr_t attr;
    check(dnnl_primitive_attr_create(&attr), "create attributes");
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (s.accumulate) {
      dnnl_post_ops_t ops;
      check(dnnl_post_ops_create(&ops), "create post-ops");
      check(dnnl_post_ops_append_sum(ops, 1.0f), "append a sum");
      check(dnnl_primitive_attr_set_post_ops(attr, ops), "set post-ops");
      dnnl_post_ops_destroy(ops);
    }
    dnnl_primitive_desc_t pd;
    const dnnl_status_t made = dnnl_primitive_desc_create(&pd, &desc, attr, engine(), nullptr);
    dnnl_primitive_attr_destroy(attr);
    check(made, "plan a product");
    scratch = *dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    scratch_bytes = static_cast<int64_t>(dnnl_memory_desc_get_size(&scratch));
    const dnnl_status_t compiled = dnnl_primitive_create(&primitive, pd);
    dnnl_primitive_desc_destroy(pd);
    check(compiled, "compile a product");
  }
  ~Primitive() { dnnl_primitive_destroy(primitive); }
  Primitive(const Primitive&) = delete;
};

constexpr size_t kSharedLimit = 1024, kThreadLimit = 256;

std::shared_ptr<Primitive> shared_primitive(const TileShape& shape) {
  struct Cache {
    Mutex mutex;
    std::unordered_map<TileShape, std::shared_ptr<Primitive>, Hash> map WEFT_GUARDED_BY(mutex);
  };
  static Cache* cache = new Cache;
  {
    MutexLock lock(cache->mutex);
    auto it = cache->map.find(shape);
    if (it != cache->map.end()) return it->second;
  }
  auto made = std::make_shared<Primitive>(shape);  // compiled outside the lock: two threads may both do it, one wins
  MutexLock lock(cache->mutex);
  if (cache->map.size() >= kSharedLimit) cache->map.clear();
  return cache->map.emplace(shape, std::move(made)).first->second;
}

// A primitive with this thread's memory objects, whose addresses are set before each run.
struct Bound {
  std::shared_ptr<Primitive> shared;
  dnnl_exec_arg_t args[4];
  explicit Bound(const TileShape& shape) : shared(shared_primitive(shape)) {
    const dnnl_memory_desc_t* descs[] = {&shared->a, &shared->b, &shared->c, &shared->scratch};
    const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    for (int i = 0; i < 4; ++i) {
      args[i].arg = names[i];
      check(dnnl_memory_create(&args[i].memory, descs[i], engine(), DNNL_MEMORY_NONE), "create a memory object");
    }
  }
  ~Bound() {
    for (dnnl_exec_arg_t& a : args) dnnl_memory_destroy(a.memory);
  }
  Bound(const Bound&) = delete;
};

struct ThreadState {
  dnnl_stream_t stream = nullptr;
  std::unordered_map<TileShape, std::unique_ptr<Bound>, Hash> bound;
  const TileShape* last_shape = nullptr;
  Bound* last = nullptr;
  std::vector<char> own_scratch;
  ThreadState() { check(dnnl_stream_create(&stream, engine(), dnnl_stream_default_flags), "create a stream"); }
  ~ThreadState() {
    bound.clear();
    dnnl_stream_destroy(stream);
  }
};

}  // namespace

bool tile_native(DType type) {
  return type == kFloat32 || (type == kBFloat16 && selected_isa() == Isa::avx512 && cpu_features().avx512_bf16);
}

bool tile_readable(int64_t rows, int64_t cols, int64_t row, int64_t col) {
  return (col == 1 && row >= cols) || (row == 1 && col >= rows);
}

int64_t tile_scratch(int64_t m, int64_t n, int64_t k) {
  auto up = [](int64_t v) { return (v + 63) / 64 * 64; };
  return (up(m) + up(n)) * up(k) * 4 + (128 << 10);
}

void tile_matmul(const TileShape& shape, const void* a, const void* b, void* c, void* scratch, int64_t scratch_bytes) {
  thread_local ThreadState state;
  Bound* bound = state.last_shape && *state.last_shape == shape ? state.last : nullptr;
  if (!bound) {
    auto it = state.bound.find(shape);
    if (it == state.bound.end()) {
      if (state.bound.size() >= kThreadLimit) state.bound.clear();
      it = state.bound.emplace(shape, std::make_unique<Bound>(shape)).first;
    }
    bound = it->second.get();
    state.last_shape = &it->first;
    state.last = bound;
  }
  const Primitive& p = *bound->shared;
  if (p.scratch_bytes > scratch_bytes) {
    if (state.own_scratch.size() < static_cast<size_t>(p.scratch_bytes) + 64)
      state.own_scratch.resize(p.scratch_bytes + 64);
    scratch = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(state.own_scratch.data()) + 63) / 64 * 64);
  }
  dnnl_memory_set_data_handle(bound->args[0].memory, const_cast<void*>(a));
  dnnl_memory_set_data_handle(bound->args[1].memory, const_cast<void*>(b));
  dnnl_memory_set_data_handle(bound->args[2].memory, c);
  dnnl_memory_set_data_handle(bound->args[3].memory, scratch);
  check(dnnl_primitive_execute(p.primitive, state.stream, 4, bound->args), "run a product");
}

SingleThreadedOpenMp::SingleThreadedOpenMp() : before_(omp_get_max_threads()) {
  if (before_ != 1) omp_set_num_threads(1);
}
SingleThreadedOpenMp::~SingleThreadedOpenMp() {
  if (before_ != 1) omp_set_num_threads(before_);
}

}  // namespace weft::kernels
