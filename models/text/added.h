// Added tokens in a text: at each place the longest one counts.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "models/text/formats/description.h"

namespace weft::text {

class AddedTokens {
 public:
  struct Found {
    size_t begin, end;
    const AddedToken* token;
  };

  bool empty() const { return tokens_.empty(); }
  /// Whether any token is not special.
  bool any_plain() const { return any_plain_; }
  /// `content` is how the text contains the token, after normalisation.
  void add(const AddedToken& token, std::string_view content);

  /// The first token from `from` on for which allowed(token, begin, end) holds; false if there is none. Without
  /// `specials` special tokens are not looked for.
  template <class Allowed>
  bool find(std::string_view text, size_t from, bool specials, Allowed&& allowed, Found* found) const {
    const bool* first = first_[specials ? 1 : 0];
    for (size_t begin = from; begin < text.size(); ++begin) {
      if (!first[static_cast<unsigned char>(text[begin])]) continue;
      bool any = false;
      uint32_t node = 0;
      for (size_t i = begin; i < text.size() && (node = child(node, text[i])) != 0; ++i) {
        const int32_t t = ends_[node];
        if (t < 0 || !allowed(tokens_[static_cast<size_t>(t)], begin, i + 1)) continue;
        *found = {begin, i + 1, &tokens_[static_cast<size_t>(t)]};
        any = true;
      }
      if (any) return true;
    }
    return false;
  }

 private:
  struct Slot {
    uint64_t key = 0;  // node << 8 | byte, plus one
    uint32_t node = 0;
  };
  size_t slot_of(uint64_t key) const;
  uint32_t child(uint32_t node, char byte) const {
    return slots_[slot_of((uint64_t{node} << 8 | static_cast<unsigned char>(byte)) + 1)].node;
  }
  void grow();

  std::vector<AddedToken> tokens_;
  std::vector<int32_t> ends_ = {-1};  // token that ends at a node; node 0 is the root
  std::vector<Slot> slots_ = std::vector<Slot>(64);
  bool first_[2][256] = {};
  bool any_plain_ = false;
};

}  // namespace weft::text
