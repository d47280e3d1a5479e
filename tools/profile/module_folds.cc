#include "tools/profile/module_folds.h"

#include <cctype>
#include <set>
#include <vector>

#include "framework/base/str_cat.h"

namespace weft::profiler {
namespace {

// The places [begin, end) of the numbers that are whole parts of a name.
std::vector<std::pair<size_t, size_t>> numbers_in(const std::string& name) {
  constexpr std::string_view kSeparators = "./:";
  std::vector<std::pair<size_t, size_t>> all;
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find_first_of(kSeparators, begin), name.size());
    bool digits = end > begin;
    for (size_t i = begin; i < end; ++i) digits &= std::isdigit(static_cast<unsigned char>(name[i])) != 0;
    if (digits) all.emplace_back(begin, end);
    begin = end + 1;
  }
  return all;
}

// The cells below a module, with their sizes.
using Contents = std::set<std::string>;

struct Siblings {
  std::map<std::pair<size_t, std::string>, Contents> by_number;  // in the order of the numbers: by length, then text
};

}  // namespace

ModuleFolds::ModuleFolds(const StepRecord& record) {
  std::map<std::string, Siblings> all;  // key: the name before the number
  const auto add = [&](const std::string& name, const std::string& content) {
    for (const auto& [begin, end] : numbers_in(name)) {
      Contents& c = all[name.substr(0, begin)].by_number[{end - begin, name.substr(begin, end - begin)}];
      if (!content.empty()) c.insert(name.substr(end) + content);
    }
  };
  for (const LaunchRecord& l : record.launches) add(l.scope, "");
  for (const BufferRecord& b : record.buffers)
    if (b.home == "cell") add(b.owner, str_cat(" ", b.bytes));
  for (const auto& [before, siblings] : all) {
    const auto& list = siblings.by_number;
    for (auto first = list.begin(); first != list.end();) {
      auto last = first, end = std::next(first);
      for (; end != list.end() && end->second == first->second; ++end) last = end;
      const std::string label = list.size() > 1 && first == list.begin() && end == list.end() ? "*"
                                : first == last                                               ? first->first.second
                                                : str_cat(first->first.second, "-", last->first.second);
      for (; first != end; ++first) labels_[before + first->first.second] = label;
    }
  }
}

std::string ModuleFolds::operator()(const std::string& module) const {
  if (module.empty()) return "(no module)";
  std::string out;
  size_t done = 0;
  for (const auto& [begin, end] : numbers_in(module)) {
    const auto label = labels_.find(module.substr(0, end));
    out += module.substr(done, begin - done);
    out += label == labels_.end() ? module.substr(begin, end - begin) : label->second;
    done = end;
  }
  return out + module.substr(done);
}

}  // namespace weft::profiler
