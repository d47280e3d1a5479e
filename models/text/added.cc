#include "models/text/added.h"

namespace weft::text {

size_t AddedTokens::slot_of(uint64_t key) const {
  size_t at = (key * 0x9E3779B97F4A7C15u) >> 32 & (slots_.size() - 1);
  while (slots_[at].key != 0 && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void AddedTokens::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& s : old)
    if (s.key != 0) slots_[slot_of(s.key)] = s;
}

void AddedTokens::add(const AddedToken& token, std::string_view content) {
  if (content.empty()) return;
  uint32_t node = 0;
  for (char c : content) {
    if (ends_.size() * 2 > slots_.size()) grow();
    const uint64_t key = (uint64_t{node} << 8 | static_cast<unsigned char>(c)) + 1;
    Slot& slot = slots_[slot_of(key)];
    if (slot.key == 0) {
      slot = {key, static_cast<uint32_t>(ends_.size())};
      ends_.push_back(-1);
    }
    node = slot.node;
  }
  ends_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  const auto first = static_cast<unsigned char>(content[0]);
  first_[1][first] = true;
  first_[0][first] = first_[0][first] || !token.special;
  any_plain_ = any_plain_ || !token.special;
}

}  // namespace weft::text
