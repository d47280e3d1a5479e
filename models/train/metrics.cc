#include "models/train/metrics.h"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

#include "framework/base/clock.h"
#include "framework/base/error.h"
#include "framework/io/file.h"
#include "framework/io/json.h"

namespace weft::train {
namespace {

constexpr std::string_view kFirst = "{\"step\":";  // the beginning of every line

// Opens and locks a metrics file.
std::FILE* open_locked(const std::string& path) {
  const int fd = io::open_for_update(path);
  std::FILE* const file = ::fdopen(fd, "r+");
  WEFT_CHECK_AS(kResourceExhausted, file, path, ": cannot be written: ", io::errno_text(errno));
  // A file system without locks cannot detect other processes.
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return file;
  std::fclose(file);
  internal::fail(Code::kFailedPrecondition,
                 str_cat(path, ": another run writes this file; use another --metrics file"));
}

// The first of PATH.1, PATH.2, ... that does not exist.
std::string free_name(const std::string& path) {
  for (int n = 1;; ++n)
    if (std::string name = str_cat(path, ".", n); !io::exists(name)) return name;
}

// The step of the line that begins at `begin` and ends before `end`; none if a crash damaged the line.
std::optional<int64_t> step_of_line(int fd, int64_t begin, int64_t end) {
  char text[kFirst.size() + 40], last = 0;
  const ssize_t n = ::pread(fd, text, std::min<size_t>(sizeof text, static_cast<size_t>(end - begin)), begin);
  if (n <= 0 || ::pread(fd, &last, 1, end - 1) != 1 || last != '}') return {};
  if (!std::string_view(text, n).starts_with(kFirst)) return {};
  int64_t step = 0;
  const auto read = std::from_chars(text + kFirst.size(), text + n, step);
  if (read.ec != std::errc()) return {};
  const std::string_view rest(read.ptr, static_cast<size_t>(text + n - read.ptr));
  const bool own = rest.starts_with(",\"loss\":") || rest.starts_with(",\"eval_loss\":");  // else of another program
  return own ? std::optional(step) : std::nullopt;
}

// Whether the file begins with a line of a run, which a crash may have cut. Another program may write {"step":1, too.
bool is_of_a_run(int fd) {
  std::string text(size_t{64} << 10, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(::pread(fd, text.data(), text.size(), 0), 0)));
  const size_t end = text.find('\n');
  if (end != text.npos) return step_of_line(fd, 0, static_cast<int64_t>(end)).has_value();
  return text.size() <= kFirst.size() || (text[kFirst.size()] >= '0' && text[kFirst.size()] <= '9');
}

// The bytes of a metrics file up to the end of its last whole line with a step of at most `step`. Reads blocks from the
// end, since a file has a line for each step. Steps never decrease in a file.
int64_t bytes_until(int fd, int64_t size, int64_t step) {
  std::vector<char> block(size_t{64} << 10);
  int64_t line_end = -1;  // the line feed that ends the line whose beginning is looked for
  const auto ends = [&](int64_t begin) {
    const std::optional<int64_t> found = line_end >= 0 ? step_of_line(fd, begin, line_end) : std::nullopt;
    return found && *found <= step;
  };
  for (int64_t from = size; from > 0;) {
    const int64_t begin = std::max<int64_t>(0, from - static_cast<int64_t>(block.size()));
    if (::pread(fd, block.data(), from - begin, begin) != from - begin) return 0;
    for (int64_t at = from; at-- > begin;) {
      if (block[at - begin] != '\n') continue;
      if (ends(at + 1)) return line_end + 1;
      line_end = at;
    }
    from = begin;
  }
  return ends(0) ? line_end + 1 : 0;
}

bool waits_less(const RankMetrics& a, const RankMetrics& b) { return a.waiting < b.waiting; }

// " (3238 to 3301 a rank, 12% exposed, 8% waiting for rank 3)", with the shares of the average rank.
std::string in_brackets(const std::vector<RankMetrics>& ranks) {
  if (ranks.empty()) return "";
  const auto by_rate = [](const RankMetrics& a, const RankMetrics& b) { return a.tokens_per_s < b.tokens_per_s; };
  const auto [slow, fast] = std::minmax_element(ranks.begin(), ranks.end(), by_rate);
  double exposed = 0, waiting = 0;
  for (const RankMetrics& r : ranks) exposed += r.exposed, waiting += r.waiting;
  const double n = static_cast<double>(ranks.size());
  return formatted(" (%.0f to %.0f a rank, %.0f%% exposed, %.0f%% waiting for rank %ld)", slow->tokens_per_s,
                   fast->tokens_per_s, 100 * exposed / n, 100 * waiting / n,
                   std::min_element(ranks.begin(), ranks.end(), waits_less) - ranks.begin());
}

}  // namespace

std::string ranks_text(const std::vector<RankMetrics>& ranks, int64_t steps, double tokens_per_s) {
  std::vector<size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  constexpr size_t kMost = 8;
  if (order.size() > kMost) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return waits_less(ranks[a], ranks[b]); });
    order.resize(kMost);
  }
  std::string text = formatted("%ld steps: %.0f tokens/s in all\n%6s %10s %9s %9s\n", steps, tokens_per_s, "rank",
                               "tokens/s", "exposed", "waiting");
  for (size_t r : order)
    text += formatted("%6zu %10.0f %8.1f%% %8.1f%%\n", r, ranks[r].tokens_per_s, 100 * ranks[r].exposed,
                      100 * ranks[r].waiting);
  return text;
}

ExpertLoad::ExpertLoad(const std::vector<int64_t>& counts, std::vector<double> dropped_by_layer)
    : dropped(std::move(dropped_by_layer)) {
  const size_t layers = dropped.size(), experts = layers ? counts.size() / layers : 0;
  share.resize(experts);
  const double all = std::max(1.0, std::accumulate(counts.begin(), counts.end(), 0.0));
  for (size_t l = 0; l < layers; ++l) {
    const auto first = counts.begin() + static_cast<std::ptrdiff_t>(l * experts), last = first + experts;
    const double mean = std::accumulate(first, last, 0.0) / std::max<double>(1, experts);
    max_over_mean.push_back(mean > 0 ? *std::max_element(first, last) / mean : 1);
    dead.push_back(std::count(first, last, 0));
    for (size_t e = 0; e < experts; ++e) share[e] += static_cast<double>(first[e]) / all;
  }
}

double now_seconds() { return static_cast<double>(internal::now_ns()) * 1e-9; }

std::string duration_text(double seconds) {
  const int64_t s = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  return s < 60     ? formatted("%ld s", s)
         : s < 3600 ? formatted("%ld min %02ld s", s / 60, s % 60)
                    : formatted("%ld h %02ld min", s / 3600, s / 60 % 60);
}

MetricsFile::MetricsFile(const std::string& path, int64_t resume_at) : path_(path) {
  io::make_folders(io::folder_of(path));
  file_ = open_locked(path);
  try {
    const int64_t size = io::file_size(path);
    char first[kFirst.size()];
    const ssize_t n = std::max<ssize_t>(::pread(::fileno(file_), first, sizeof first, 0), 0);
    // A crash may have cut the first line.
    WEFT_CHECK(kFirst.starts_with(std::string_view(first, n)), path,
               ": exists and is not a metrics file; use another --metrics file");
    const int64_t keep = resume_at > 0 ? bytes_until(::fileno(file_), size, resume_at) : 0;
    if (keep == 0 && size > 0 && (resume_at >= 0 || !is_of_a_run(::fileno(file_)))) {
      kept_ = free_name(path);
      WEFT_CHECK_AS(kResourceExhausted, ::rename(path.c_str(), kept_.c_str()) == 0, path, ": cannot be renamed to ",
                    kept_, ": ", io::errno_text(errno));
      std::fclose(std::exchange(file_, nullptr));
      file_ = open_locked(path);
    }
    WEFT_CHECK(::ftruncate(::fileno(file_), keep) == 0, path, ": cannot be truncated to the checkpoint's step");
    std::fseek(file_, 0, SEEK_END);
  } catch (...) {
    if (file_) std::fclose(file_);
    throw;
  }
}

MetricsFile::~MetricsFile() {
  if (file_) std::fclose(file_);
}

void MetricsFile::line(const std::string& text) {
  if (!file_ || (std::fprintf(file_, "%s\n", text.c_str()) > 0 && std::fflush(file_) == 0)) return;
  internal::warn(
      str_cat("--metrics: ", path_, " cannot be written: ", io::errno_text(errno), "; training goes on without it"));
  std::fclose(std::exchange(file_, nullptr));
}

void MetricsFile::write(const StepMetrics& m) {
  if (!file_) return;
  io::OrderedJson j;
  j["step"] = m.step;
  j["loss"] = m.loss;
  j["grad_norm"] = m.grad_norm;
  j["lr"] = m.lr;
  j["step_ms"] = m.step_ms;
  j["tokens_per_s"] = m.tokens_per_s;
  if (m.mfu > 0) j["mfu"] = m.mfu;
  if (!m.ranks.empty()) {
    io::OrderedJson ranks;
    for (const auto& [name, field] : {std::pair("tokens_per_s", &RankMetrics::tokens_per_s),
                                      {"exposed", &RankMetrics::exposed},
                                      {"waiting", &RankMetrics::waiting}}) {
      std::vector<double> values;
      for (const RankMetrics& r : m.ranks) values.push_back(r.*field);
      ranks[name] = values;
    }
    j["ranks"] = ranks;
  }
  if (m.moe) {
    j["aux_loss"] = m.aux_loss;
    const std::vector<double>& dropped = m.load.dropped;
    j["expert_load"] = m.load.share;
    j["dropped"] = std::accumulate(dropped.begin(), dropped.end(), 0.0) / std::max<double>(1, dropped.size());
    j["max_over_mean_by_layer"] = m.load.max_over_mean;
    j["dead_experts_by_layer"] = m.load.dead;
    j["dropped_by_layer"] = dropped;
  }
  line(io::write_json(j));
}

void MetricsFile::write_eval(int64_t step, double loss) {
  if (!file_) return;
  io::OrderedJson j;
  j["step"] = step;
  j["eval_loss"] = loss;
  line(io::write_json(j));
}

Progress::Progress(int64_t first_step, int64_t steps)
    : first_(first_step), steps_(steps), last_(first_step), terminal_(isatty(STDOUT_FILENO)), started_(now_seconds()) {}

void Progress::clear() {
  if (terminal_ && shown_) std::printf("\r\033[K");
  shown_ = false;
}

bool Progress::due(int64_t step, double seconds) const {
  if (step <= last_) return false;
  if (step >= steps_ || step == first_ + 1) return true;
  return now_seconds() + seconds - last_shown_ >= (terminal_ ? 0.1 : interval_);
}

void Progress::update(const StepMetrics& m) {
  const double now = now_seconds();
  const bool last = m.step >= steps_;
  const bool first = m.step == first_ + 1;
  last_shown_ = now;
  last_ = m.step;
  if (!first) interval_ = std::min(10.0, interval_ * 1.3);  // keeps the log of a long run short
  const double done = static_cast<double>(m.step - first_), share = steps_ ? 100.0 * m.step / steps_ : 100;
  const double left = done > 0 ? (now - started_) / done * (steps_ - m.step) : 0;
  const std::string text =
      formatted("step %ld/%ld %3.0f%%  loss %.4f  grad norm %.2f  lr %.2e  %.0f tokens/s%s  %s", m.step, steps_, share,
                m.loss, m.grad_norm, m.lr, m.tokens_per_s, in_brackets(m.ranks).c_str(),
                last ? ("took " + duration_text(now - started_)).c_str() : (duration_text(left) + " left").c_str());
  if (terminal_) {
    const int width = 20, full = static_cast<int>(share * width / 100);
    std::printf("\r\033[K[%s%s] %s", std::string(full, '#').c_str(), std::string(width - full, '.').c_str(),
                text.c_str());
    shown_ = true;
  } else {
    std::printf("%s\n", text.c_str());
  }
  std::fflush(stdout);
}

void Progress::note(const std::string& text) {
  clear();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Progress::finish() {
  if (terminal_ && shown_) std::printf("\n");
  shown_ = false;
  std::fflush(stdout);
}

}  // namespace weft::train
