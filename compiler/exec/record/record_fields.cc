// A record as JSON, and as bytes that protobuf can read. fields() lists the fields of each part in the order of JSON; a
// new field gets the next number. Fields are only ever added.
#include <charconv>
#include <set>

#include "compiler/cost/machine/machine_fields.h"
#include "compiler/exec/entry.h"
#include "compiler/exec/record/record.h"
#include "framework/io/fields/byte_fields.h"
#include "framework/io/fields/json_fields.h"
#include "framework/ir/graph_reader.h"

namespace weft {

using io::at, io::if_set;

// ---- values ----

static constexpr int count_of(Phase) { return static_cast<int>(Phase::kUpdate) + 1; }
static constexpr int count_of(WorkClass) { return static_cast<int>(WorkClass::kCollective) + 1; }
static constexpr int count_of(MissedRecord::MissedKind) { return MissedRecord::kSeparateKernels + 1; }
static constexpr int count_of(Bound) { return static_cast<int>(Bound::kProducts) + 1; }

static std::string text_of(const SourceLine& v) { return v.to_string(); }
static std::string set_text(std::string_view text, SourceLine& v) {
  const size_t colon = text.rfind(':');
  uint32_t line = 0;
  const char* end = text.data() + text.size();
  if (colon == text.npos || std::from_chars(text.data() + colon + 1, end, line).ptr != end || line == 0)
    return "a file and a line such as model.cc:41";
  v = {intern(text.substr(0, colon)), line};
  return "";
}

namespace {

struct TypeRecord {
  std::string dtype, device;
  std::vector<int64_t> shape;
};

template <class V>
void fields(V& v, TypeRecord& t) {
  v("dtype", t.dtype, at(1)), v("device", t.device, at(2)), v("shape", t.shape, at(3));
}

// Refuses types that no tensor has.
struct TypeReader final : internal::GraphReader {
  explicit TypeReader(const io::BytePlace& p) : at(p) {}
  std::string place() const final { return at.text(); }
  TensorType type(const TypeRecord& t) const {
    if (t.shape.size() > kMaxDims) refuse(str_cat(t.shape.size(), " integers"), str_cat("at most ", kMaxDims));
    TensorType type{dtype_named(t.dtype), device_named(t.device), {}};
    for (int64_t n : t.shape) type.shape.push_back(n);
    check_shape(type);
    return type;
  }
  const io::BytePlace& at;
};

}  // namespace

static std::string text_of(const TensorType& t) { return t.to_string(); }
static TypeRecord to_record(const TensorType& t) {
  return {io::text_of(t.dtype), t.device.to_string(), {t.shape.begin(), t.shape.end()}};
}
static void from_record(const TypeRecord& t, TensorType& to, const io::BytePlace& place) {
  to = TypeReader(place).type(t);
}

// ---- the fields ----

template <class V>
void fields(V& v, PassRecord& p) {
  v("name", p.name, at(1)), v("ms", p.ms, at(2));
  v("nodes_before", p.nodes_before, if_set(3)), v("nodes_after", p.nodes_after, if_set(4));
  v("disabled", p.disabled, if_set(5));
}

template <class V>
void fields(V& v, MissedRecord& m) {
  v("kind", m.kind, at(1)), v("from", m.from, at(2)), v("to", m.to, if_set(3)), v("reason", m.reason, at(4));
  v("bytes", m.bytes, at(5)), v("times", m.times, if_set(6));
}

template <class V>
void fields(V& v, LaunchRecord& l) {
  v("name", l.name, at(1)), v("scope", l.scope, if_set(2)), v("line", l.line, if_set(3));
  v("phase", l.phase, at(4)), v("class", l.kind, at(5));
  v("bytes", l.work.bytes, at(7)), v("flops", l.work.flops, at(8)), v("products", l.work.products, at(9));
  v("product_dtype", l.work.product_dtype, if_set(10)), v("at_most", l.work.at_most, if_set(11));
  v("written", l.work.written, if_set(27)), v("working_set", l.work.working_set, if_set(28));
  v("counted", l.counted, if_set(23));
  v("done_bytes", l.done.bytes, if_set(24)), v("done_flops", l.done.flops, if_set(25));
  v("done_products", l.done.products, if_set(26)), v("done_written", l.done.written, if_set(29));
  v("done_working_set", l.done.working_set, if_set(30));
  v("bound", l.bound, at(6)), v("axes", l.axes, if_set(21)), v("sent", l.sent, if_set(22));
  v("predicted_us", l.predicted_us, at(12)), v("measured_us", l.measured_us, if_set(13));
  v("kernel", l.kernel, if_set(20)), v("ops", l.ops, if_set(14)), v("results", l.results, at(15));
  v("fused", l.fused, if_set(16)), v("copy", l.copy, if_set(17)), v("in_place", l.in_place, if_set(18));
  v("node", l.node, if_set(19));
}

template <class V>
void fields(V& v, BufferRecord& b) {
  v("home", b.home, at(1)), v("index", b.index, at(7)), v("owner", b.owner, at(2)), v("bytes", b.bytes, at(3));
  v("offset", b.offset, at(4)), v("first", b.first, if_set(5)), v("last", b.last, if_set(6));
}

template <class V>
void fields(V& v, StepRecord& r) {
  v("title", r.title, if_set(8)), v("device", r.device, at(1)), v("mesh", r.mesh, if_set(11));
  v("rank", r.rank, if_set(12)), v("machine", r.machine, at(2)), v("passes", r.passes, at(13));
  v("launches", r.launches, at(3)), v("kernels", r.kernels, at(14)), v("missed", r.missed, at(15));
  v("buffers", r.buffers, at(4)), v("step_us", r.step_us, if_set(9)), v("peak_bytes", r.peak_bytes, at(5));
  v("measured_peak_bytes", r.measured_peak_bytes, if_set(10)), v("peak_launch", r.peak_launch, at(6));
  v("at_peak", r.at_peak, at(7));
}

// Checks indices of lists, and members of one part against each other.
static void check(const StepRecord& r, io::BytePlace& place) {
  try {
    check_rates(r.machine);
  } catch (const Error& e) {
    internal::fail(Code::kInvalidArgument, str_cat(place.text(), e.what()));
  }
  const auto index = [&](const char* what, int32_t i, size_t count) {
    if (i >= static_cast<int64_t>(count)) place.refuse(str_cat(what, ' ', i), str_cat("the index of one of ", count));
  };
  index("peak_launch", r.peak_launch, r.launches.size());
  std::set<int32_t> at_peak;
  for (int32_t b : r.at_peak) {
    index("at_peak", b, r.buffers.size());
    if (b < 0) place.refuse("at_peak -1", "0 or more");
    if (!at_peak.insert(b).second) place.refuse(str_cat("at_peak ", b, " twice"), "each buffer once");
  }
  int64_t all = 0;
  for (const BufferRecord& b : r.buffers) {
    constexpr int64_t kMost = int64_t{1} << 62;
    if (b.bytes > kMost - all) place.refuse("buffers of more than 2^62 bytes in all", "fewer");
    all += b.bytes;
  }
  for (size_t i = 0; i < r.launches.size(); ++i)
    place.in(str_cat("launches ", i), [&] { index("kernel", r.launches[i].kernel, r.kernels.size()); });
  const auto check_buffer = [&](const BufferRecord& b) {
    index("last", b.last, r.launches.size());
    if (b.first > b.last || (b.first < 0) != (b.last < 0))
      place.refuse(str_cat("first ", b.first, " and last ", b.last), "launches in order, or -1 and -1");
    bool known = false;
    for (int h = 0; h < internal::kHomes; ++h) known |= b.home == internal::home_name(static_cast<internal::Home>(h));
    if (!known)
      place.refuse(str_cat("home ", internal::quoted(b.home)), "arena, constants, argument, cell, output or captured");
  };
  for (size_t i = 0; i < r.buffers.size(); ++i) place.in(str_cat("buffers ", i), [&] { check_buffer(r.buffers[i]); });
}

std::string StepRecord::to_json() const { return io::write_json(io::json_of(*this)); }

std::string StepRecord::to_proto() const { return io::to_bytes(*this); }

StepRecord StepRecord::from_proto(std::string_view bytes) {
  StepRecord r;
  io::BytePlace place("record", bytes);
  io::read_bytes(r, bytes, place);
  for (LaunchRecord& l : r.launches) l.done.product_dtype = l.work.product_dtype;
  check(r, place);
  return r;
}

}  // namespace weft
