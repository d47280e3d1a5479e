#include "compiler/cost/machine_file.h"

#include <algorithm>
#include <map>

#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/base/switches.h"
#include "framework/io/file.h"
#include "framework/io/json.h"

namespace weft {
namespace {

struct Member {
  const char* name;
  double Machine::*value;
};
constexpr Member kMembers[] = {
    {"bytes", &Machine::bytes},           {"flops", &Machine::flops},           {"products", &Machine::products},
    {"products16", &Machine::products16}, {"products64", &Machine::products64}, {"products8", &Machine::products8},
    {"launch", &Machine::launch},         {"reached", &Machine::reached},       {"memory", &Machine::memory},
};
struct RateMember {
  const char* name;
  double MemoryRate::*value;
};
constexpr RateMember kRateMembers[] = {{"bytes", &MemoryRate::bytes},
                                       {"read", &MemoryRate::read},
                                       {"write", &MemoryRate::write},
                                       {"copy", &MemoryRate::copy}};
constexpr const char* kOthers[] = {"name", "like", "memory_rates"};

MemoryRate rate_from(const io::Json& json, std::string_view what) {
  MemoryRate r;
  for (const RateMember& m : kRateMembers) r.*m.value = io::json_get<double>(json, m.name, what);
  return r;
}

}  // namespace

std::string machine_to_json(const Machine& m) {
  io::OrderedJson json{{"name", m.name}};
  for (const Member& member : kMembers)
    if (m.*member.value != 0) json[member.name] = m.*member.value;
  for (const MemoryRate& r : m.memory_rates) {
    io::OrderedJson rate;
    for (const RateMember& member : kRateMembers) rate[member.name] = r.*member.value;
    json["memory_rates"].push_back(std::move(rate));
  }
  return io::write_json(json);
}

Machine machine_from_json(std::string_view text, std::string_view what) {
  const io::Json whole = io::parse_json(text, what);
  const bool inside = whole.is_object() && whole.contains("machine");
  const io::Json& json = inside ? whole["machine"] : whole;
  WEFT_CHECK(json.is_object(), what, ": got ", json.type_name(), "; need an object with the rates of a machine");
  for (const auto& [name, value] : json.items()) {
    const bool known = std::any_of(std::begin(kMembers), std::end(kMembers),
                                   [&, &name = name](const Member& m) { return name == m.name; }) ||
                       std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers);
    std::string names = "name, like, memory_rates";
    for (const Member& m : kMembers) names += str_cat(", ", m.name);
    WEFT_CHECK(known, what, ": got \"", name.substr(0, 40), "\"; need members of ", names);
  }
  const std::string like = json.contains("like") ? io::json_get<std::string>(json, "like", what) : "cpu";
  const std::vector<std::string> presets = machine_names();
  WEFT_CHECK(std::find(presets.begin(), presets.end(), like) != presets.end(), what, ": \"like\" is '",
             like.substr(0, 40), "'; need one of ", presets);
  Machine m = machine_preset(like);
  m.name = json.contains("name") ? io::json_get<std::string>(json, "name", what) : std::string(what);
  for (const Member& member : kMembers)
    if (json.contains(member.name)) m.*member.value = io::json_get<double>(json, member.name, what);
  if (json.contains("memory_rates")) {
    const io::Json& rates = json["memory_rates"];
    WEFT_CHECK(rates.is_array(), what, ": \"memory_rates\" is ", rates.type_name(), "; need an array");
    for (const io::Json& rate : rates)
      m.memory_rates.push_back(rate_from(rate, str_cat(what, ": memory_rates ", m.memory_rates.size())));
  }
  try {
    check_machine(m);
  } catch (const Error& e) {
    internal::fail(Code::kInvalidArgument, str_cat(what, ": ", e.what()));
  }
  return m;
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
