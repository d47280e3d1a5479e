#include "compiler/cost/machine_file.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "compiler/cost/machine_presets.h"
#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/base/one_line.h"
#include "framework/base/switches.h"
#include "framework/io/file.h"
#include "framework/io/json.h"

namespace weft {
namespace {

using Number = std::variant<double Machine::*, int Machine::*>;
constexpr std::pair<const char*, Number> kMembers[] = {
    {"bytes", &Machine::bytes},
    {"flops", &Machine::flops},
    {"products", &Machine::products},
    {"products_tf32", &Machine::products_tf32},
    {"products16", &Machine::products16},
    {"products64", &Machine::products64},
    {"products8", &Machine::products8},
    {"products4", &Machine::products4},
    {"launch", &Machine::launch},
    {"reached", &Machine::reached},
    {"memory", &Machine::memory},
    {"multiprocessors", &Machine::multiprocessors},
    {"l2", &Machine::l2},
    {"hbm_stacks", &Machine::hbm_stacks},
    {"watts", &Machine::watts},
};
constexpr std::pair<const char*, double MemoryRate::*> kRateMembers[] = {{"bytes", &MemoryRate::bytes},
                                                                         {"read", &MemoryRate::read},
                                                                         {"write", &MemoryRate::write},
                                                                         {"copy", &MemoryRate::copy}};
constexpr std::pair<const char*, double ProductShare::*> kShareMembers[] = {
    {"side", &ProductShare::side}, {"f32", &ProductShare::f32}, {"bits16", &ProductShare::bits16}};
constexpr std::pair<const char*, double Links::*> kLinkMembers[] = {
    {"inner_hop", &Links::inner_hop},
    {"inner_bus", &Links::inner_bus},
    {"outer_hop", &Links::outer_hop},
    {"outer_bus", &Links::outer_bus},
    {"inner_all_to_all", &Links::inner_all_to_all},
    {"inner_all_to_all_latency", &Links::inner_all_to_all_latency},
    {"ramp", &Links::ramp},
    {"host_bus", &Links::host_bus},
};
constexpr std::pair<const char*, std::vector<LinkPoint> Links::*> kPointMembers[] = {
    {"inner_gather", &Links::inner_gather},         {"inner_reduce", &Links::inner_reduce},
    {"outer_gather", &Links::outer_gather},         {"outer_reduce", &Links::outer_reduce},
    {"outer_all_to_all", &Links::outer_all_to_all},
};
constexpr std::pair<const char*, double Theoretical::*> kTheoreticalMembers[] = {
    {"bytes", &Theoretical::bytes}, {"inner_bus", &Theoretical::inner_bus}, {"outer_bus", &Theoretical::outer_bus}};

template <class Table>
void add_names(const Table& table, std::vector<std::string_view>& names) {
  for (const auto& row : table) names.push_back(row.first);
}

// Throws if an object has a member outside `names`.
void check_members(const io::Json& json, const std::string_view what, const std::vector<std::string_view>& names) {
  WEFT_CHECK(json.is_object(), what, " is ", json.type_name(), "; need an object");
  for (const auto& [name, value] : json.items()) {
    std::string all;
    for (std::string_view n : names) all += str_cat(all.empty() ? "" : ", ", n);
    WEFT_CHECK(std::find(names.begin(), names.end(), name) != names.end(), what, ": got \"", one_line(name, 40),
               "\"; need members of ", all, ", in ", kMachineUnits);
  }
}

void read_into(double& to, const io::Json& json, const char* name, std::string_view what) {
  to = io::json_get<double>(json, name, what);
}
void read_into(bool& to, const io::Json& json, const char* name, std::string_view what) {
  to = io::json_get<bool>(json, name, what);
}
void read_into(int& to, const io::Json& json, const char* name, std::string_view what) {
  const int64_t n = io::json_get<int64_t>(json, name, what);
  WEFT_CHECK(n >= 0 && n <= INT32_MAX, what, ": \"", name, "\" is ", n, "; need a number from 0 to ", INT32_MAX);
  to = static_cast<int>(n);
}

const io::Json& array_in(const io::Json& json, const char* name, std::string_view what) {
  const io::Json& array = json[name];
  WEFT_CHECK(array.is_array(), what, ": \"", name, "\" is ", array.type_name(), "; need an array");
  return array;
}

Links links_from(const io::Json& json, Links links, const std::string& what) {
  std::vector<std::string_view> names{"node"};
  add_names(kLinkMembers, names);
  add_names(kPointMembers, names);
  check_members(json, what, names);
  if (json.contains("node")) read_into(links.node, json, "node", what);
  for (const auto& [name, member] : kLinkMembers)
    if (json.contains(name)) read_into(links.*member, json, name, what);
  // Measured points of the preset describe its own links only.
  if (json.contains("inner_bus") || json.contains("inner_hop")) links.inner_gather = links.inner_reduce = {};
  if (json.contains("outer_bus") || json.contains("outer_hop"))
    links.outer_gather = links.outer_reduce = links.outer_all_to_all = {};
  for (const auto& [name, member] : kPointMembers) {
    if (!json.contains(name)) continue;
    std::vector<LinkPoint>& points = links.*member;
    points.clear();
    for (const io::Json& one : array_in(json, name, what)) {
      const std::string at = str_cat(what, ": ", name, " ", points.size());
      check_members(one, at, {"size", "latency", "bandwidth"});
      LinkPoint p;
      read_into(p.size, one, "size", at);
      read_into(p.latency, one, "latency", at);
      if (one.contains("bandwidth")) read_into(p.bandwidth, one, "bandwidth", at);
      points.push_back(p);
    }
  }
  return links;
}

// Rows of an array. Each row has all members of a table.
template <class Row, class Table>
void read_rows(std::vector<Row>& rows, const io::Json& json, const char* name, const Table& table,
               std::string_view what) {
  if (!json.contains(name)) return;
  rows.clear();
  for (const io::Json& one : array_in(json, name, what)) {
    const std::string at = str_cat(what, ": ", name, " ", rows.size());
    Row& row = rows.emplace_back();
    for (const auto& [member_name, member] : table) read_into(row.*member, one, member_name, at);
  }
}

template <class Row, class Table>
void write_rows(const std::vector<Row>& rows, io::OrderedJson& json, const char* name, const Table& table) {
  for (const Row& row : rows) {
    io::OrderedJson one;
    for (const auto& [member_name, member] : table) one[member_name] = row.*member;
    json[name].push_back(std::move(one));
  }
}

// The machine of a JSON text. Members that the text lacks come from another machine: with "like" from `preset(name)`,
// else with "links" from a machine of zeros, else from `cpu`.
template <class Preset>
Machine read_json(std::string_view text, std::string_view what, const Machine* cpu, const Preset& preset) {
  const io::Json whole = io::parse_json(text, what);
  const bool inside = whole.is_object() && whole.contains("machine");
  const io::Json& json = inside ? whole["machine"] : whole;
  WEFT_CHECK(json.is_object(), what, ": got ", json.type_name(), "; need an object with the rates of a machine");
  std::vector<std::string_view> names{"name",         "like",           "about",
                                      "memory_rates", "product_shares", "attention_shares",
                                      "links",        "theoretical",    "shares_cores"};
  add_names(kMembers, names);
  check_members(json, what, names);
  const bool like = json.contains("like"), links = json.contains("links"), measured = json.contains("memory_rates");
  Machine m = like ? preset(io::json_get<std::string>(json, "like", what)) : links || !cpu ? Machine() : *cpu;
  m.name = json.contains("name") ? one_line(io::json_get<std::string>(json, "name", what), 60) : std::string(what);
  for (const auto& [name, member] : kMembers)
    if (json.contains(name)) std::visit([&, &name = name](auto of) { read_into(m.*of, json, name, what); }, member);
  if (json.contains("shares_cores")) read_into(m.shares_cores, json, "shares_cores", what);
  if (json.contains("links")) m.links = links_from(json["links"], m.links, str_cat(what, ": links"));
  if (json.contains("bytes")) m.theoretical.bytes = 0;  // the preset's values describe another memory or link
  if (json.contains("links")) m.theoretical.inner_bus = m.theoretical.outer_bus = 0;
  if (json.contains("theoretical")) {
    const std::string at = str_cat(what, ": theoretical");
    std::vector<std::string_view> known;
    add_names(kTheoreticalMembers, known);
    check_members(json["theoretical"], at, known);
    for (const auto& [name, member] : kTheoreticalMembers)
      if (json["theoretical"].contains(name)) read_into(m.theoretical.*member, json["theoretical"], name, at);
  }
  read_rows(m.memory_rates, json, "memory_rates", kRateMembers, what);
  read_rows(m.product_shares, json, "product_shares", kShareMembers, what);
  read_rows(m.attention_shares, json, "attention_shares", kShareMembers, what);
  WEFT_CHECK(
      like || links || measured, what,
      ": has no \"like\" and no \"links\"; need \"like\" with a preset, such as \"h100-sxm\" or \"cpu\", or links");
  constexpr double kLeast = 1 << 20;  // less is memory in GB or MB
  WEFT_CHECK(!json.contains("memory") || m.memory == 0 || m.memory >= kLeast, what, ": \"memory\" is ", m.memory,
             "; need bytes, such as 80e9");
  try {
    check_machine(m);
  } catch (const Error& e) {
    internal::fail(Code::kInvalidArgument, str_cat(what, ": ", e.what()));
  }
  return m;
}

const Machine* find(const std::vector<Machine>& presets, std::string_view name) {
  const auto at = std::ranges::find(presets, name, &Machine::name);
  return at == presets.end() ? nullptr : &*at;
}

// The order of the files matters: a preset may be like an earlier preset.
const std::vector<Machine>& presets() {
  static const auto* all = [] {
    auto* read = new std::vector<Machine>;
    for (const char* file : {"cpu_json", "h100_sxm_json", "h100_pcie_json", "h200_json", "b200_json", "gb200_json",
                             "a100_json", "mi300x_json", "rtx_pro_6000_json"})
      read->push_back(read_json(machine_presets(file), file, nullptr, [&](const std::string& like) {
        const Machine* m = find(*read, like);
        WEFT_BUG_IF(!m, file, ": like ", like, " needs a file before it");
        return *m;
      }));
    return read;
  }();
  return *all;
}

}  // namespace

const Machine& machine_preset(std::string_view name) {
  if (const Machine* m = find(presets(), name)) return *m;
  std::string words;
  for (const Machine& m : presets()) words += str_cat(words.empty() ? "" : ", ", m.name);
  internal::fail(Code::kInvalidArgument, str_cat("machine: got '", name.substr(0, 40), "'; need one of ", words,
                                                 ", or a file that ends in .json"));
}

std::vector<std::string> machine_names() {
  std::vector<std::string> out;
  for (const Machine& m : presets()) out.push_back(m.name);
  return out;
}

std::string machine_to_json(const Machine& m) {
  io::OrderedJson json{{"name", m.name}};
  for (const auto& [name, member] : kMembers)
    std::visit(
        [&, &name = name](auto of) {
          if (m.*of != 0) json[name] = m.*of;
        },
        member);
  write_rows(m.memory_rates, json, "memory_rates", kRateMembers);
  write_rows(m.product_shares, json, "product_shares", kShareMembers);
  write_rows(m.attention_shares, json, "attention_shares", kShareMembers);
  return io::write_json(json);
}

Machine machine_from_json(std::string_view text, std::string_view what) {
  return read_json(text, what, &machine_preset("cpu"), [&](const std::string& like) {
    const Machine* m = find(presets(), like);
    WEFT_CHECK(m, what, ": \"like\" is '", one_line(like, 40), "'; need one of ", machine_names());
    return *m;
  });
}

const Machine& read_machine(const std::string& path) {
  constexpr int64_t kMost = 1 << 20;
  static Mutex mutex;
  static auto* const read = new std::map<std::string, Machine>;  // by path; addresses stay
  MutexLock lock(mutex);
  const auto at = read->find(path);
  return at != read->end() ? at->second
                           : read->emplace(path, machine_from_json(io::read_file(path, kMost), path)).first->second;
}

const Machine& machine_named(const std::string& name) {
  return name.ends_with(".json") ? read_machine(internal::in_working_folder(name)) : machine_preset(name);
}

}  // namespace weft
