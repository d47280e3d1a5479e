// Fuzzing: gives a reader many damaged inputs. Each must be read, or refused with a weft::Error whose message is one
// line that names where. A crash, a hang, another exception and too much time for the input's size are failures.
// An input follows from the seed and its number alone. Flags of a fuzz_test (tools/build_rules/cc.bzl):
//   --inputs=N  how many inputs each target gets     --seed=S  other inputs     --only=I  input I alone
#pragma once
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace weft::testing {

using FuzzRandom = std::mt19937_64;

/// One reader with its inputs.
struct FuzzTarget {
  /// Valid inputs, which are damaged.
  std::vector<std::string> seeds;
  /// Changes an input: damage_text() or damage_bytes(), then corrections of lengths and checksums.
  std::function<void(std::string& input, FuzzRandom& random)> damage;
  /// Reads an input and checks the result with gtest. Throws weft::Error to refuse it.
  std::function<void(const std::string& input)> read;
  /// Every message contains this: the name of the file or flag.
  std::string names;
  /// Number of inputs without --inputs.
  int64_t inputs = 20000;
  /// The time limit for reading an input, beside a microsecond for each byte.
  double seconds = 0.05;
};

/// Reads the seeds, which must be valid, and then the damaged inputs. Stops at the first failure and names its input.
void fuzz(const FuzzTarget& target);

/// Makes a few changes: words, numbers and lines are removed, moved, repeated, nested and replaced. `words` are also
/// inserted.
void damage_text(std::string& text, FuzzRandom& random, const std::vector<std::string_view>& words);

/// Makes a few changes to binary data: bits, bytes, ranges, the length, and numbers of 1 to 8 bytes.
void damage_bytes(std::string& bytes, FuzzRandom& random);

/// A file in memory, by a link of this name, whose content can be replaced many times a second.
class FuzzFile {
 public:
  explicit FuzzFile(const std::string& path);
  ~FuzzFile();
  FuzzFile(const FuzzFile&) = delete;
  const std::string& path() const { return path_; }
  void set(std::string_view content);

 private:
  std::string path_;
  int fd_;
};

}  // namespace weft::testing
