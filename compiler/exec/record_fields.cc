// A record as JSON and as protobuf (record.proto). fields() has a row for each field; a new field is a member in
// record.h, a field in record.proto and a row here.
#include <charconv>
#include <cmath>
#include <set>

#include "compiler/cost/machine_file.h"
#include "compiler/exec/entry.h"
#include "compiler/exec/record.h"
#include "compiler/exec/record.pb.h"
#include "framework/io/json.h"
#include "framework/ir/message_reader.h"
#include "framework/ir/text.h"

namespace weft {
namespace {

using Json = io::OrderedJson;

// ---- the fields ----

// A row gives a visitor the field's name in JSON, the member, its value in a new record, whether JSON contains it at
// that value, and functions that set and get it in a message.
#define ROW(json, field, member, always)                                                                 \
  visit.value(                                                                                           \
      json, r.member, none.member, always, [](auto& message, const auto& v) { message.set_##field(v); }, \
      [](const auto& message, const auto& read) {                                                        \
        if (message.has_##field()) read(message.field());                                                \
      })
#define FIELD(field) ROW(#field, field, field, true)
#define FIELD_IF_SET(field) ROW(#field, field, field, false)
// A list, or a record within a record.
#define PART(field)                                                             \
  visit.part(                                                                   \
      #field, r.field, [](auto& message) { return message.mutable_##field(); }, \
      [](const auto& message) -> const auto& { return message.field(); })

/// Calls `visit` with each field of `record`, in the order of JSON.
template <class Record, class Visit>
void fields(Record& r, Visit& visit) {
  using R = std::remove_const_t<Record>;
  static const R none;
  if constexpr (std::is_same_v<R, StepRecord>) {
    FIELD_IF_SET(title);
    FIELD(device);
    FIELD_IF_SET(mesh);
    FIELD_IF_SET(rank);
    PART(machine);
    PART(passes);
    PART(launches);
    PART(kernels);
    PART(missed);
    PART(buffers);
    FIELD_IF_SET(step_us);
    FIELD(peak_bytes);
    FIELD_IF_SET(measured_peak_bytes);
    FIELD(peak_launch);
    PART(at_peak);
  } else if constexpr (std::is_same_v<R, Machine>) {
    FIELD(name);
    FIELD(bytes);
    FIELD(flops);
    FIELD(products);
    FIELD(products16);
    FIELD_IF_SET(products64);
    FIELD_IF_SET(products8);
    FIELD(launch);
    FIELD_IF_SET(reached);
    FIELD_IF_SET(memory);
    PART(memory_rates);
  } else if constexpr (std::is_same_v<R, PassRecord>) {
    FIELD(name);
    FIELD(ms);
    FIELD_IF_SET(nodes_before);
    FIELD_IF_SET(nodes_after);
    FIELD_IF_SET(disabled);
  } else if constexpr (std::is_same_v<R, MissedRecord>) {
    FIELD(kind);
    FIELD(from);
    FIELD_IF_SET(to);
    FIELD(reason);
    FIELD(bytes);
    FIELD_IF_SET(times);
  } else if constexpr (std::is_same_v<R, MemoryRate>) {
    FIELD(bytes);
    FIELD(read);
    FIELD(write);
    FIELD(copy);
  } else if constexpr (std::is_same_v<R, LaunchRecord>) {
    FIELD(name);
    FIELD_IF_SET(scope);
    FIELD_IF_SET(line);
    FIELD(phase);
    ROW("class", kind, kind, true);
    ROW("bytes", bytes, work.bytes, true);
    ROW("flops", flops, work.flops, true);
    ROW("products", products, work.products, true);
    ROW("product_dtype", product_dtype, work.product_dtype, false);
    ROW("at_most", at_most, work.at_most, false);
    ROW("written", written, work.written, false);
    ROW("working_set", working_set, work.working_set, false);
    FIELD_IF_SET(counted);
    ROW("done_bytes", done_bytes, done.bytes, false);
    ROW("done_flops", done_flops, done.flops, false);
    ROW("done_products", done_products, done.products, false);
    ROW("done_written", done_written, done.written, false);
    ROW("done_working_set", done_working_set, done.working_set, false);
    FIELD(bound);
    FIELD_IF_SET(axes);
    FIELD_IF_SET(sent);
    FIELD(predicted_us);
    FIELD_IF_SET(measured_us);
    FIELD_IF_SET(kernel);
    FIELD_IF_SET(ops);
    PART(results);
    FIELD_IF_SET(fused);
    FIELD_IF_SET(copy);
    FIELD_IF_SET(in_place);
    FIELD_IF_SET(node);
  } else {
    static_assert(std::is_same_v<R, BufferRecord>);
    FIELD(home);
    FIELD(index);
    FIELD(owner);
    FIELD(bytes);
    FIELD(offset);
    FIELD_IF_SET(first);
    FIELD_IF_SET(last);
  }
}

#undef ROW
#undef FIELD
#undef FIELD_IF_SET
#undef PART

// ---- values in JSON and messages ----

constexpr int count_of(Phase) { return static_cast<int>(Phase::kUpdate) + 1; }
constexpr int count_of(WorkClass) { return static_cast<int>(WorkClass::kCollective) + 1; }
constexpr int count_of(MissedRecord::Kind) { return MissedRecord::kSeparateKernels + 1; }
constexpr int count_of(Bound) { return static_cast<int>(Bound::kProducts) + 1; }

template <class T>
auto plain(const T& v) {
  if constexpr (std::is_same_v<T, SourceLine>)
    return v.to_string();
  else if constexpr (std::is_same_v<T, DType>)
    return std::string(to_string_view(v));
  else if constexpr (std::is_enum_v<T>)
    return std::string(to_string(v));
  else
    return v;
}

// ---- visitors ----

template <class Record>
Json json_of(const Record& r);
Json json_of(int32_t v) { return v; }
Json json_of(const std::string& v) { return v; }
Json json_of(const TensorType& t) { return t.to_string(); }
Json json_of(const Machine& m) { return Json::parse(machine_to_json(m)); }

struct JsonWriter {
  Json json = Json::object();

  template <class T, class Set, class Get>
  void value(const char* name, const T& v, const T& none, bool always, Set, Get) {
    if (always || plain(v) != plain(none)) json[name] = plain(v);
  }
  template <class T, class Mutable, class Get>
  void part(const char* name, const T& v, Mutable, Get) {
    json[name] = json_of(v);
  }
  template <class T, class Mutable, class Get>
  void part(const char* name, const std::vector<T>& all, Mutable, Get) {
    Json list = Json::array();
    for (const T& v : all) list.push_back(json_of(v));
    json[name] = std::move(list);
  }
};

template <class Record>
Json json_of(const Record& r) {
  JsonWriter writer;
  fields(r, writer);
  return std::move(writer.json);
}

template <class Message>
struct MessageWriter {
  Message& message;

  template <class T, class Set, class Get>
  void value(const char*, const T& v, const T& none, bool, Set set, Get) {
    if (plain(v) != plain(none)) set(message, plain(v));
  }
  template <class T, class Mutable, class Get>
  void part(const char*, const T& v, Mutable of, Get) {
    write(v, *of(message));
  }
  template <class T, class Mutable, class Get>
  void part(const char*, const std::vector<T>& all, Mutable of, Get) {
    for (const T& v : all)
      if constexpr (std::is_same_v<T, int32_t>)
        of(message)->Add(v);
      else if constexpr (std::is_same_v<T, std::string>)
        *of(message)->Add() = v;
      else
        write(v, *of(message)->Add());
  }
  template <class Record, class M>
  static void write(const Record& r, M& m) {
    MessageWriter<M> writer{m};
    fields(r, writer);
  }
  static void write(const TensorType& t, TypeProto& p) { internal::write_type(t, p); }
};

class RecordReader final : internal::MessageReader {
 public:
  RecordReader() : MessageReader("record") {}

  StepRecord run(std::string_view bytes) {
    StepRecord r;
    read(message<RecordProto>(bytes, "RecordProto"), r);
    for (LaunchRecord& l : r.launches) l.done.product_dtype = l.work.product_dtype;
    check(r);
    return r;
  }

 private:
  template <class Message>
  struct Visitor {
    RecordReader& reader;
    const Message& message;

    template <class T, class Set, class Get>
    void value(const char* name, T& v, const T&, bool, Set, Get get) {
      get(message, [&](const auto& p) {
        const Part part(reader, name);
        reader.read(p, v);
      });
    }
    template <class T, class Mutable, class Get>
    void part(const char* name, T& v, Mutable, Get get) {
      const Part part(reader, name);
      reader.read(get(message), v);
    }
    template <class T, class Mutable, class Get>
    void part(const char* name, std::vector<T>& all, Mutable, Get get) {
      for (const auto& p : get(message)) {
        const Part part(reader, name, ' ', all.size());
        reader.read(p, all.emplace_back());
      }
    }
  };

  template <class Message, class Record>
  void read(const Message& message, Record& r) {
    Visitor<Message> visitor{*this, message};
    fields(r, visitor);
  }
  void read(const std::string& p, std::string& v) { v = p; }
  void read(bool p, bool& v) { v = p; }
  void read(double p, double& v) {
    constexpr double kMost = 1e30;  // sums and ratios of such numbers are finite
    if (!(std::isfinite(p) && p >= 0 && p <= kMost)) refuse(internal::exact(p), "a finite number, 0 or more");
    v = std::abs(p);  // of -0
  }
  void read(int64_t p, int64_t& v) {
    if (p < 0) refuse(std::to_string(p), "0 or more");
    v = p;
  }
  void read(int32_t p, int32_t& v) {
    if (p < -1) refuse(std::to_string(p), "-1 or more");
    v = p;
  }
  void read(const TypeProto& p, TensorType& v) { v = type(p); }
  void read(const std::string& p, DType& v) { v = dtype_named(p); }
  template <class E>
  requires std::is_enum_v<E>
  void read(const std::string& p, E& v) {
    std::string words;
    for (int i = 0; i < count_of(E()); ++i) {
      v = static_cast<E>(i);
      if (p == to_string(v)) return;
      words += str_cat(i ? ", " : "", to_string(v));
    }
    refuse(internal::quoted(p), str_cat("one of ", words));
  }
  void read(const std::string& p, SourceLine& v) {
    const size_t colon = p.rfind(':');
    uint32_t line = 0;
    const char* end = p.data() + p.size();
    if (colon == p.npos || std::from_chars(p.data() + colon + 1, end, line).ptr != end || line == 0)
      refuse(internal::quoted(p), "a file and a line such as model.cc:41");
    v = {intern(std::string_view(p).substr(0, colon)), line};
  }

  // Checks indices of lists, and members of one part against each other.
  void check(const StepRecord& r) {
    try {
      check_rates(r.machine);
    } catch (const Error& e) {
      internal::fail(Code::kInvalidArgument, str_cat(place(), e.what()));
    }
    const auto index = [&](const char* what, int32_t i, size_t count) {
      if (i >= static_cast<int64_t>(count)) refuse(str_cat(what, ' ', i), str_cat("the index of one of ", count));
    };
    index("peak_launch", r.peak_launch, r.launches.size());
    std::set<int32_t> at_peak;
    for (int32_t b : r.at_peak) {
      index("at_peak", b, r.buffers.size());
      if (b < 0) refuse("at_peak -1", "0 or more");
      if (!at_peak.insert(b).second) refuse(str_cat("at_peak ", b, " twice"), "each buffer once");
    }
    int64_t all = 0;
    for (const BufferRecord& b : r.buffers) {
      constexpr int64_t kMost = int64_t{1} << 62;
      if (b.bytes > kMost - all) refuse("buffers of more than 2^62 bytes in all", "fewer");
      all += b.bytes;
    }
    for (size_t i = 0; i < r.launches.size(); ++i) {
      const Part part(*this, "launches ", i);
      index("kernel", r.launches[i].kernel, r.kernels.size());
    }
    for (size_t i = 0; i < r.buffers.size(); ++i) {
      const Part part(*this, "buffers ", i);
      const BufferRecord& b = r.buffers[i];
      index("last", b.last, r.launches.size());
      if (b.first > b.last || (b.first < 0) != (b.last < 0))
        refuse(str_cat("first ", b.first, " and last ", b.last), "launches in order, or -1 and -1");
      bool known = false;
      for (int h = 0; h < internal::kHomes; ++h) known |= b.home == internal::home_name(static_cast<internal::Home>(h));
      if (!known)
        refuse(str_cat("home ", internal::quoted(b.home)), "arena, constants, argument, cell, output or captured");
    }
  }
};

}  // namespace

std::string StepRecord::to_json() const { return io::write_json(json_of(*this)); }

std::string StepRecord::to_proto() const {
  RecordProto p;
  MessageWriter<RecordProto>::write(*this, p);
  return internal::bytes_of(p, "to_proto: the record");
}

StepRecord StepRecord::from_proto(std::string_view bytes) { return RecordReader().run(bytes); }

}  // namespace weft
