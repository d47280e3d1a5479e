#include "compiler/cost/machine/machine_file.h"

#include <algorithm>
#include <map>

#include "compiler/cost/machine/machine_fields.h"
#include "compiler/cost/machine_presets.h"
#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/base/one_line.h"
#include "framework/base/switches.h"
#include "framework/io/fields/json_fields.h"
#include "framework/io/file.h"

namespace weft {
namespace {

// The machine of a JSON text. Members that the text lacks come from another machine: with "like" from `preset(name)`,
// else with "links" from a machine of zeros, else from `cpu`.
template <class Preset>
Machine read_json(std::string_view text, std::string_view what, const Machine* cpu, const Preset& preset) {
  const io::Json whole = io::parse_json(text, what);
  const bool inside = whole.is_object() && whole.contains("machine");
  const io::Json& json = inside ? whole["machine"] : whole;
  WEFT_CHECK(json.is_object(), what, ": got ", json.type_name(), "; need an object with the rates of a machine");
  const bool like = json.contains("like"), links = json.contains("links"), measured = json.contains("memory_rates");
  Machine m = like ? preset(io::json_get<std::string>(json, "like", what)) : links || !cpu ? Machine() : *cpu;
  // The preset's values describe another memory or link, and its measured points its own links.
  if (json.contains("bytes")) m.theoretical.bytes = 0;
  if (links) {
    const io::Json& own = json["links"];
    m.theoretical.inner_bus = m.theoretical.outer_bus = 0;
    if (own.contains("inner_bus") || own.contains("inner_hop")) m.links.inner_gather = m.links.inner_reduce = {};
    if (own.contains("outer_bus") || own.contains("outer_hop"))
      m.links.outer_gather = m.links.outer_reduce = m.links.outer_all_to_all = {};
  }
  io::read_fields(m, json, std::string(what), {"like", "about"}, str_cat(", in ", kMachineUnits));
  m.name = json.contains("name") ? one_line(m.name, 60) : std::string(what);
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

std::string machine_to_json(const Machine& m) { return io::write_json(io::json_of(m)); }

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
  static auto* const read = new std::map<std::string, Machine>;  // key: path; addresses stay
  MutexLock lock(mutex);
  const auto at = read->find(path);
  return at != read->end() ? at->second
                           : read->emplace(path, machine_from_json(io::read_file(path, kMost), path)).first->second;
}

const Machine& machine_named(const std::string& name) {
  return name.ends_with(".json") ? read_machine(internal::in_working_folder(name)) : machine_preset(name);
}

}  // namespace weft
