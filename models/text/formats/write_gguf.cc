// Writes a tokenizer as the metadata of a GGUF file. A part that llama.cpp does not read is an error, or a note if it
// concerns few texts.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "models/text/bpe.h"
#include "models/text/bytes_as_text.h"
#include "models/text/formats/gguf_parts.h"
#include "models/text/patterns/patterns.h"

namespace weft::text {
namespace {

class Writer {
 public:
  Writer(const Description& d, std::vector<std::string>* notes)
      : d_(d), notes_(*notes), names_(named_ids(d.tokens, d.added)), added_(names_.size()) {
    for (const AddedToken& t : d.added) added_[static_cast<size_t>(t.id)] = &t;
  }

  io::GgufMetadata write(const Settings& settings, int64_t vocab, std::span<const int32_t> ends) {
    need(std::ssize(names_) <= vocab, "has ", names_.size(), " tokens; the model has ", vocab);
    check_added();
    io::GgufMetadata m;
    const auto put = [&](const char* key, io::GgufValue value) {
      m.emplace_back(str_cat("tokenizer.", key), std::move(value));
    };
    if (d_.byte_level) {
      put("ggml.model", "gpt2");
      put("ggml.pre", pre_name());
      put("ggml.merges", merges());
    } else {
      put("ggml.model", "llama");
      put("ggml.add_space_prefix", space_prefix());
      put("ggml.scores", scores(vocab));
    }
    put("ggml.tokens", tokens(vocab));
    put("ggml.token_type", types(vocab));
    const auto put_id = [&](const char* role, int32_t id) {
      if (id >= 0) put(str_cat("ggml.", role, "_token_id").c_str(), static_cast<uint32_t>(id));
    };
    const auto named = [&](const char* token) {
      const auto text = settings.tokens.find(token);
      const auto id = text == settings.tokens.end() ? ids_.end() : ids_.find(text->second);
      return id == ids_.end() ? -1 : id->second;
    };
    need(d_.before.size() <= 1 && d_.after.size() <= 1, "post_processor puts ", d_.before.size(), " tokens before and ",
         d_.after.size(), " after a text; GGUF files have one each");
    put_id("bos", d_.before.empty() ? named("bos_token") : d_.before[0]);
    std::vector<int32_t> all;  // end tokens; the tokenizer's are first
    const auto add_end = [&](int32_t id) {
      if (id >= 0 && std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
    };
    for (const int32_t id : d_.after) add_end(id);
    add_end(d_.end_of_text);
    for (const int32_t id : ends) add_end(id);
    for (size_t i = 0; i < std::min(all.size(), std::size(kEndRoles)); ++i) put_id(kEndRoles[i], all[i]);
    if (all.size() > std::size(kEndRoles)) note("has ", all.size(), " end tokens; GGUF files have 3");
    put_id("unknown", d_.unk >= 0 ? d_.unk : named("unk_token"));
    put_id("padding", named("pad_token"));
    put("ggml.add_bos_token", !d_.before.empty());
    put("ggml.add_eos_token", !d_.after.empty());
    if (!settings.chat_template.empty()) put("chat_template", settings.chat_template);
    return m;
  }

 private:
  template <class... Parts>
  void need(bool holds, const Parts&... parts) const {
    WEFT_CHECK_AS(kUnimplemented, holds, d_.where, ": ", parts...);
  }
  template <class... Parts>
  void note(const Parts&... parts) {
    notes_.push_back(str_cat(d_.where, ": ", parts...));
  }
  std::string shown(int32_t id) const { return one_line(names_[static_cast<size_t>(id)], 60); }

  void check_added() {
    std::string flags;
    for (const AddedToken& t : d_.added)
      for (const auto& [set, flag] :
           {std::pair(t.lstrip, "lstrip"), std::pair(t.rstrip, "rstrip"), std::pair(t.single_word, "single_word"),
            std::pair(t.normalized && !t.special && !d_.byte_level && !d_.normal.empty(), "normalized")})
        if (set && flags.empty()) flags = str_cat("'", one_line(t.content, 60), "' has ", flag);
    if (!flags.empty())
      note("the added token ", flags, "; GGUF files do not have it, so text beside it gets other ids");
    for (const Merge& m : d_.merges)
      for (const int32_t id : {m.left, m.right, m.made}) {
        const AddedToken* t = added_[static_cast<size_t>(id)];
        need(!t || !t->special, "the special token '", shown(id), "' is in model.merges; GGUF files do not have this");
      }
  }

  /// The first token that merges do not make of its text; -1 if there is none. `some`: of these tokens.
  int32_t unmade(const std::vector<bool>* some = nullptr) const {
    Description plain = d_;
    plain.ignore_merges = false;
    const Bpe bpe(plain);
    BpeMemory memory;
    for (size_t i = 0; i < d_.tokens.size(); ++i) {
      if (some ? !(*some)[i] : added_[i] || is_unknown_or_byte(i)) continue;
      const std::string text = d_.byte_level ? bytes_of_text(d_.tokens[i]).value_or("") : d_.tokens[i];
      if (text.empty()) continue;
      std::vector<int32_t> ids;
      bpe.encode(text, text.size(), memory, ids);
      if (ids != std::vector<int32_t>{static_cast<int32_t>(i)}) return static_cast<int32_t>(i);
    }
    return -1;
  }

  /// Whether a token of SentencePiece stands for text without tokens of its own.
  bool is_unknown_or_byte(size_t i) const {
    return !d_.byte_level && (static_cast<int32_t>(i) == d_.unk || fallback_byte(names_[i]) >= 0);
  }

  /// The value of tokenizer.ggml.pre.
  std::string pre_name() {
    using Kind = SplitStep::Kind;
    const bool nfc = d_.normal == std::vector{NormalStep{NormalStep::Kind::kNfc, {}, {}}};
    need(nfc || d_.normal.empty(), "normalizer changes texts in a way that GGUF files do not have");
    if (nfc) note("normalizer is NFC; GGUF files have none, so text in other forms gets other ids");
    std::vector<SplitStep> split;
    for (SplitStep s : d_.split) {
      if (s.kind == Kind::kByteLevel && s.use_regex && !s.prefix_space) {
        split.push_back({.kind = Kind::kPattern, .pattern = gpt2_pattern().expression});
        s.use_regex = false;
      } else if (const Pattern* p = s.kind == Kind::kPattern ? find_pattern(s.pattern) : nullptr) {
        if (p->name == std::string_view(gpt2_pattern().name)) s.pattern = gpt2_pattern().expression;
      }
      split.push_back(s);
    }
    // Without merges and whole pieces all pieces are bytes, however a text is cut.
    if (d_.merges.empty() && !d_.ignore_merges && !split.empty() && !split.back().prefix_space) return "gpt-2";
    std::string other;
    for (const std::string& name : pre_names()) {
      Description like;
      bool llama3 = false;
      set_pre(name, &like, &llama3);
      need(like.decode == d_.decode, "decoder is not ByteLevel alone; GGUF files have no other for bytes");
      if (like.split != split) continue;
      if (llama3 == d_.ignore_merges) return name;
      if (other.empty()) other = name;
    }
    need(!other.empty(), "pre_tokenizer is none that GGUF files have a name for: ", known_pres());
    const int32_t id = unmade();
    need(id < 0, "model.ignore_merges is ", d_.ignore_merges ? "true" : "false", ", which decides about token '",
         id < 0 ? "" : shown(id), "'; GGUF files have the other value for this pre_tokenizer");
    return other;
  }

  std::vector<std::string> merges() const {
    std::vector<std::string> all;
    for (const Merge& m : d_.merges) {
      const std::string &left = d_.tokens[static_cast<size_t>(m.left)],
                        &right = d_.tokens[static_cast<size_t>(m.right)];
      need((left + right).find(' ') == std::string::npos, "model.merges has a token with a space: '", shown(m.made),
           "'; GGUF files separate tokens by spaces");
      all.push_back(left + " " + right);
    }
    return all;
  }

  /// Whether the tokenizer of SentencePiece writes a space before a text. Throws for other steps than its own.
  bool space_prefix() {
    Description same = d_;
    const bool metaspace = same.split.size() == 1 && same.normal.empty() &&
                           same.split[0].kind == SplitStep::Kind::kMetaspace && same.split[0].pattern == "▁" &&
                           !same.split[0].split;
    if (metaspace) {
      const Prepend prepend = same.split[0].prepend;
      Description steps;
      set_spm(prepend != Prepend::kNever, &steps);
      same.normal = steps.normal;
      same.split.clear();
      if (prepend != Prepend::kNever)
        note("pre_tokenizer is Metaspace; GGUF files always put a space before a text, so text that begins with one",
             prepend == Prepend::kFirst ? " or follows a special token" : "", " gets other ids");
    }
    for (const bool prefix : {true, false}) {
      Description like;
      set_spm(prefix, &like);
      if (like.normal != same.normal || !same.split.empty()) continue;
      need(like.decode == d_.decode, "decoder has other steps than GGUF files have for SentencePiece");
      return prefix;
    }
    need(false, "normalizer and pre_tokenizer belong neither to bytes nor to SentencePiece; GGUF files have no others");
    return false;
  }

  /// The tokens of which llama.cpp joins other halves than `merges`: all that are tokens.
  std::vector<bool> more_halves(const std::vector<Merge>& merges) const {
    std::unordered_map<std::string_view, uint64_t> ids;
    std::unordered_set<uint64_t> pairs;
    std::vector<bool> more(d_.tokens.size());
    for (const Merge& m : merges) pairs.insert(static_cast<uint64_t>(m.left) << 32 | static_cast<uint64_t>(m.right));
    for (size_t i = 0; i < d_.tokens.size(); ++i)
      if (!added_[i] && static_cast<int32_t>(i) != d_.unk) ids.emplace(d_.tokens[i], i);
    for (const auto& [token, id] : ids)
      for (size_t cut = 1; cut < token.size(); ++cut) {
        const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
        if (left != ids.end() && right != ids.end() && !pairs.contains(left->second << 32 | right->second))
          more[id] = true;
      }
    return more;
  }

  /// A token has the score of the merges that make it. llama.cpp also joins other halves of a token. The ids are equal
  /// if merges make the token of its text: they have joined its parts before these could be such halves.
  std::vector<float> scores(int64_t vocab) {
    const int missing = d_.byte_fallback ? Bpe(d_).missing_bytes() : 256;
    need(missing == 0, "has no tokens for ", missing, " of 256 bytes; GGUF files of SentencePiece need all");
    std::vector<float> scores(static_cast<size_t>(vocab));
    std::vector<bool> done(names_.size());
    std::vector<Merge> merges = d_.merges;
    std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    int32_t last = -1;
    for (const Merge& m : merges) {
      const auto i = static_cast<size_t>(m.made);
      need(m.made == last || !done[i], "model.merges makes token '", shown(m.made),
           "' at several ranks; GGUF files have one score for each token");
      if (m.made != last) scores[i] = -static_cast<float>(m.rank);
      done[i] = true;
      last = m.made;
    }
    const std::vector<bool> more = more_halves(merges);
    const int32_t id = unmade(d_.ignore_merges ? nullptr : &more);
    need(id < 0, "token '", id < 0 ? "" : shown(id),
         "' differs from the result of model.merges on its text; GGUF files of SentencePiece need equal tokens");
    return scores;
  }

  std::vector<std::string> tokens(int64_t vocab) {
    std::vector<std::string> all = names_;
    all.resize(static_cast<size_t>(vocab));
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].empty()) all[i] = str_cat("[unused", i, "]");
      need(ids_.emplace(all[i], static_cast<int32_t>(i)).second, "two tokens are '", one_line(all[i], 60),
           "', one of them with id ", i, "; GGUF files need different tokens");
    }
    return all;
  }

  std::vector<int32_t> types(int64_t vocab) const {
    std::vector<int32_t> all(static_cast<size_t>(vocab), kUnused);
    for (size_t i = 0; i < names_.size(); ++i) {
      const bool spm = !d_.byte_level;
      if (names_[i].empty()) continue;
      all[i] = spm && static_cast<int32_t>(i) == d_.unk ? kUnknown
               : added_[i]                              ? (added_[i]->special ? kControl : kUserDefined)
               : spm && fallback_byte(names_[i]) >= 0   ? kByte
                                                        : kNormal;
    }
    return all;
  }

  const Description& d_;
  std::vector<std::string>& notes_;
  std::vector<std::string> names_;                // index: id
  std::vector<const AddedToken*> added_;          // index: id; null for others
  std::unordered_map<std::string, int32_t> ids_;  // key: name; filled by tokens()
};

}  // namespace

io::GgufMetadata write_gguf_tokenizer(const Description& d, const Settings& settings, int64_t vocab,
                                      std::span<const int32_t> ends, std::vector<std::string>* notes) {
  return Writer(d, notes).write(settings, vocab, ends);
}

}  // namespace weft::text
