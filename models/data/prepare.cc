// Makes tokens from a path: finds the files, refuses binary files, and stores shards.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "framework/base/error.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"
#include "models/data/corpus.h"
#include "models/data/dataset.h"
#include "models/data/shard.h"

namespace weft::data {
namespace {

constexpr size_t kPiece = size_t{4} << 20;

std::string_view text_of(const io::MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// All files below `folder` that end in `suffix`, in path order, without hidden files.
void find_files(const std::string& folder, std::string_view suffix, int depth, std::vector<std::string>* out) {
  if (depth > 32) return;  // a link to a parent folder
  for (const std::string& name : io::list_folder(folder)) {
    if (name[0] == '.') continue;
    std::string path = folder + "/" + name;
    if (io::is_folder(path)) {
      find_files(path, suffix, depth + 1, out);
    } else if (name.ends_with(suffix)) {
      out->push_back(path);
    }
  }
}

/// Refuses binary data: a zero byte, or more than one control character in 20 bytes.
void check_text(std::string_view text, std::string_view what) {
  size_t zero = text.find('\0');
  WEFT_CHECK(zero == text.npos, what, ": not a text file: byte ", zero, " is zero; need plain text");
  int64_t odd = std::count_if(text.begin(), text.end(), [](char c) {
    unsigned char u = static_cast<unsigned char>(c);
    return (u < 32 && !(u >= '\t' && u <= '\r')) || u == 127;
  });
  WEFT_CHECK(odd * 20 <= static_cast<int64_t>(text.size()), what, ": not a text file: ", odd, " of ", text.size(),
             " bytes are control characters; need plain text");
}

/// Passes the ids of a text to `sink`, and then the end-of-text id, if any.
void encode_document(std::string_view text, const Tokenizer& tokenizer, bool last, const IdSink& sink) {
  tokenizer.encode_parts(text, kPiece, sink);
  if (tokenizer.end_of_text() >= 0) {
    sink(std::vector<int32_t>{tokenizer.end_of_text()});
  } else if (!last) {
    sink(tokenizer.encode(text.empty() || text.back() == '\n' ? "\n" : "\n\n"));
  }
}

/// The shards of one prepared text. False if any is missing or damaged.
bool open_kept(const std::string& folder, TokenDataset* out) {
  if (!io::is_folder(folder)) return false;
  std::vector<std::string> paths;
  find_files(folder, ".tok", 0, &paths);
  if (paths.empty()) return false;
  try {
    *out = TokenDataset::from_shards(paths);
    return true;
  } catch (const Error&) {
    return false;  // the shards are written again from the text
  }
}

TokenDataset keep_as_shards(const std::vector<io::MappedFile>& files, const Tokenizer& tokenizer,
                            const TokenizeOptions& options) {
  WEFT_CHECK(options.shard_tokens > 0, "prepare: got shard_tokens ", options.shard_tokens, "; need at least 1");
  int64_t total = 0, done = 0;
  for (const io::MappedFile& f : files) total += f.size();
  io::Checksum key;
  key.update(str_cat(tokenizer.name(), "\n", tokenizer.vocab_size(), "\n", options.shard_tokens, "\n"));
  for (const io::MappedFile& f : files) {
    f.advise(io::MappedFile::Advice::kSequential);
    key.update(str_cat(f.size(), "\n"));
    key.update(f.bytes());
  }
  std::string cache = options.cache_folder.empty() ? default_cache_folder() : options.cache_folder;
  std::string folder = str_cat(cache, "/", io::hex64(key.value()));
  TokenDataset out;
  if (open_kept(folder, &out)) return out;

  io::make_folders(cache);
  io::remove_leftovers(cache);
  io::AtomicFolder made(folder);
  int64_t shards = 0;
  std::unique_ptr<ShardWriter> writer;
  auto sink = [&](std::span<const int32_t> ids) {
    while (!ids.empty()) {
      if (!writer) {
        std::string number = std::to_string(shards++);
        number.insert(0, 5 - std::min<size_t>(number.size(), 5), '0');
        writer = std::make_unique<ShardWriter>(made.path(number + ".tok"), tokenizer.name(), tokenizer.vocab_size());
      }
      size_t n = std::min<int64_t>(ids.size(), options.shard_tokens - writer->count());
      writer->append(ids.first(n));
      ids = ids.subspan(n);
      if (writer->count() == options.shard_tokens) {
        writer->commit();
        writer.reset();
      }
    }
  };
  for (const io::MappedFile& f : files) {
    check_text(text_of(f), f.path());
    encode_document(text_of(f), tokenizer, &f == &files.back(), sink);
    done += f.size();
    if (options.progress) options.progress(static_cast<double>(done) / static_cast<double>(total));
  }
  if (writer) writer->commit();
  made.commit();
  WEFT_CHECK_AS(kDataLoss, open_kept(folder, &out), "prepare: the shards just written to ", folder,
                " cannot be read back");
  return out;
}

void check_tokenizer(const TokenDataset& data, const std::string& path, const Tokenizer& tokenizer) {
  std::string name = Shard(path, 0).tokenizer();
  WEFT_CHECK(name == tokenizer.name() && data.vocab_size() == tokenizer.vocab_size(), path, ": holds tokens of '", name,
             "' with a vocabulary of ", data.vocab_size(), "; need '", tokenizer.name(), "' with ",
             tokenizer.vocab_size());
}

struct DataFiles {
  enum class Kind : uint8_t { kText, kShards, kBins } kind = Kind::kText;
  std::vector<std::string> paths;
};

/// The files that prepare() reads for a path: of the first kind that the folder contains.
DataFiles data_files(const std::string& path) {
  using Kind = DataFiles::Kind;
  if (!io::is_folder(path))
    return {Shard::looks_like(path) ? Kind::kShards : path.ends_with(".bin") ? Kind::kBins : Kind::kText, {path}};
  constexpr std::pair<Kind, const char*> kKinds[] = {
      {Kind::kShards, ".tok"}, {Kind::kText, ".txt"}, {Kind::kBins, ".bin"}};
  DataFiles out;
  for (const auto& [kind, suffix] : kKinds) {
    out.kind = kind;
    find_files(path, suffix, 0, &out.paths);
    if (!out.paths.empty()) return out;
  }
  WEFT_CHECK_AS(kNotFound, false, path, ": the folder holds no .txt file");
  return out;
}

std::vector<io::MappedFile> mapped(const std::vector<std::string>& paths, int64_t* total) {
  std::vector<io::MappedFile> files;
  for (const std::string& p : paths) {
    files.emplace_back(p);
    *total += files.back().size();
  }
  return files;
}

}  // namespace

std::string data_identity(const std::string& data) {
  if (data.empty() || data == "shakespeare" || data == "synthetic") return data;
  constexpr int64_t kWhole = int64_t{64} << 20;  // bytes that are read in full
  constexpr int64_t kBlock = 4096, kBlocks = 1024;
  int64_t total = 0;
  const std::vector<io::MappedFile> files = mapped(data_files(data).paths, &total);
  io::Checksum sum;
  for (const io::MappedFile& f : files) {
    sum.update(str_cat(f.path().substr(std::min(data.size(), f.path().size())), "\n", f.size(), "\n"));
    // A large corpus: blocks at equal distances, with the first and the last block of each file.
    const int64_t blocks = (f.size() + kBlock - 1) / kBlock;
    const int64_t step = total <= kWhole ? 1 : std::max<int64_t>(1, total / kBlock / kBlocks);
    if (step > 1) f.advise(io::MappedFile::Advice::kRandom);
    for (int64_t b = 0; b < blocks; b = b + 1 < blocks ? std::min(b + step, blocks - 1) : blocks)
      sum.update(f.bytes().subspan(b * kBlock, std::min(kBlock, f.size() - b * kBlock)));
  }
  return str_cat(files.size(), files.size() == 1 ? " file, " : " files, ", total, " bytes, checksum ",
                 io::hex64(sum.value()));
}

std::string default_cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache == '/') return str_cat(cache, "/weft/data");
  if (const char* home = std::getenv("HOME"); home && *home == '/') return str_cat(home, "/.cache/weft/data");
  return str_cat(std::filesystem::temp_directory_path().string(), "/weft/data");
}

TokenDataset tokenize(std::string_view text, const Tokenizer& tokenizer, std::string_view what) {
  WEFT_CHECK(!text.empty(), what, ": is empty; need text");
  check_text(text, what);
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  encode_document(text, tokenizer, true,
                  [&](std::span<const int32_t> v) { ids.insert(ids.end(), v.begin(), v.end()); });
  return TokenDataset::from_tokens(ids, tokenizer.vocab_size());
}

TokenDataset prepare(const std::string& path, const Tokenizer& tokenizer, const TokenizeOptions& options) {
  const auto [kind, paths] = data_files(path);
  if (kind == DataFiles::Kind::kBins) {
    WEFT_CHECK(tokenizer.name() != "bytes", paths[0],
               ": it does not name the tokenizer of its ids; need --tokenizer FILE");
    return TokenDataset::from_bins(paths, tokenizer);
  }
  if (kind == DataFiles::Kind::kShards) {
    TokenDataset out = TokenDataset::from_shards(paths);
    check_tokenizer(out, paths[0], tokenizer);
    return out;
  }
  int64_t total = 0;
  const std::vector<io::MappedFile> files = mapped(paths, &total);
  WEFT_CHECK(total > 0, path, paths.size() == 1 ? ": is empty; need text" : ": its .txt files are empty; need text");
  if (total > options.memory_bytes) return keep_as_shards(files, tokenizer, options);
  std::vector<int32_t> ids;
  ids.reserve(total);
  for (const io::MappedFile& f : files) {
    check_text(text_of(f), f.path());
    encode_document(text_of(f), tokenizer, &f == &files.back(),
                    [&](std::span<const int32_t> v) { ids.insert(ids.end(), v.begin(), v.end()); });
  }
  return TokenDataset::from_tokens(ids, tokenizer.vocab_size());
}

TokenDataset open_data(const std::string& data, const Tokenizer& tokenizer, int64_t synthetic_vocab, uint64_t seed,
                       const TokenizeOptions& options) {
  if (data.empty() || data == "shakespeare") return tokenize(embedded_corpus(), tokenizer, "the embedded text");
  if (data == "synthetic") return TokenDataset::synthetic(synthetic_vocab, int64_t{1} << 24, seed);
  return prepare(data, tokenizer, options);
}

}  // namespace weft::data
