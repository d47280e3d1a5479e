#include "models/data/data_loader.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "framework/dispatch/state/state.h"
#include "models/data/loader.h"
#include "models/data/mix.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"

namespace weft::data::internal {

using weft::internal::LineScope;

int64_t common_size(std::initializer_list<const Arg*> args) {
  const Arg& first = **args.begin();
  LineScope line(first.line());
  for (const Arg* a : args) {
    WEFT_CHECK(a->is_tensor(), "TensorDataset: got the number ", a->number(), "; need tensors");
    const Tensor& t = a->tensor();
    WEFT_CHECK(t.defined(), "TensorDataset: got an undefined tensor; need tensors with one common first extent");
    WEFT_CHECK_AS(kFailedPrecondition, !t.get().trace, "TensorDataset: the value of this ", t.type(),
                  " does not exist yet: it belongs to a function that is being captured; need the dataset outside, and "
                  "its batches as arguments");
    require_concrete(t, "TensorDataset", std::source_location::current());
    WEFT_CHECK(t.dim() > 0 && t.size(0) == first.tensor().size(0), "TensorDataset: got ", t.type(), " beside ",
               first.tensor().type(), "; need tensors with one common first extent");
  }
  return first.tensor().size(0);
}

Tensor rows_of(const Tensor& x, std::span<const int64_t> indices) {
  const Tensor index =
      Tensor::from_vector<int64_t>({indices.begin(), indices.end()}, {static_cast<int64_t>(indices.size())});
  return index_select(x, 0, index.to(x.device()));
}

int64_t index_at(int64_t k, int64_t n, bool shuffle, uint64_t seed, int64_t epoch) {
  return shuffle ? permute(k, n, mix64(mix64(seed) ^ static_cast<uint64_t>(epoch))) : k;
}
uint64_t seed_of(uint64_t seed, int64_t epoch, int64_t index) {
  return mix64(mix64(mix64(seed) ^ static_cast<uint64_t>(epoch)) ^ static_cast<uint64_t>(index));
}

// The messages follow "DataLoader: item 7 of epoch 0: ".
void BatchStack::add(std::vector<Tensor> tensors, std::vector<size_t> lengths) {
  if (items_.empty()) lengths_ = lengths;
  WEFT_CHECK(lengths == lengths_, "its vectors of tensors have the lengths ", lengths, ", and the first item ",
             lengths_, "; need equal lengths in all items of a batch, or .batch_size = 1");
  for (size_t t = 0; t < tensors.size(); ++t) {
    WEFT_CHECK(tensors[t].defined(), "tensor ", t, " is undefined; need a value");
    WEFT_CHECK(items_.empty() || tensors[t].type() == items_[0][t].type(), "tensor ", t, " is ", tensors[t].type(),
               " in one item and ", items_[0][t].type(), " in another; need one type in all items of a batch");
  }
  items_.push_back(std::move(tensors));
}

std::vector<Tensor> BatchStack::stacked() const {
  std::vector<Tensor> out;
  for (size_t t = 0; t < items_[0].size(); ++t) {
    std::vector<Tensor> parts;
    for (const std::vector<Tensor>& item : items_) parts.push_back(item[t]);
    out.push_back(stack(parts));
  }
  return out;
}

void check_batch(std::span<const Tensor> tensors, size_t n) {
  for (size_t t = 0; t < tensors.size(); ++t)
    WEFT_CHECK(tensors[t].defined() && tensors[t].dim() > 0 && tensors[t].size(0) == static_cast<int64_t>(n),
               "get_batch of ", n, n == 1 ? " index" : " indices", " gave ",
               tensors[t].defined() ? tensors[t].type().to_string() : "no value", " as tensor ", t,
               "; need one row for each index");
}

// Batches between their makers and the consumer. The mutex guards all members below it.
struct BatchSource::Workers {
  struct WorkerResult {
    AnyBatch batch;
    std::exception_ptr error;
  };

  Workers(const BatchSource& source, int64_t batches)
      : source_(source),
        epoch_(source.position_.epoch),
        end_(batches),
        claimed_(source.position_.batch),
        taken_(source.position_.batch) {
    const int n = source.options_.workers;
    ahead_ = static_cast<int64_t>(n) * source.options_.prefetch;
    try {
      for (int i = 0; i < n; ++i) threads_.emplace_back([this] { work(); });
    } catch (...) {
      close();
      throw;
    }
  }
  ~Workers() { close(); }

  WorkerResult take(int64_t batch) {
    std::unique_lock lock(mutex_);
    made_.wait(lock, [&] { return results_.contains(batch); });
    WorkerResult r = std::move(results_.extract(batch).mapped());
    taken_ = batch + 1;
    wanted_.notify_all();
    return r;
  }

 private:
  void close() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wanted_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  void work() {
    for (;;) {
      int64_t batch;
      {
        std::unique_lock lock(mutex_);
        wanted_.wait(lock, [&] { return stop_ || claimed_ >= end_ || claimed_ < taken_ + ahead_; });
        if (stop_ || claimed_ >= end_) return;
        batch = claimed_++;
      }
      WorkerResult r;
      try {
        r.batch = source_.made({epoch_, batch}, [this] { return stop_.load(); });
      } catch (...) {
        r.error = std::current_exception();
      }
      std::lock_guard lock(mutex_);
      results_.emplace(batch, std::move(r));
      made_.notify_all();
    }
  }

  const BatchSource& source_;
  const int64_t epoch_, end_;
  int64_t ahead_ = 0;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wanted_, made_;
  int64_t claimed_, taken_;
  std::map<int64_t, WorkerResult> results_;
  std::vector<std::thread> threads_;
};

BatchSource::BatchSource(std::function<int64_t()> size, MakeBatch make, const DataLoaderOptions& options,
                         std::source_location loc)
    : size_(std::move(size)), make_(std::move(make)), options_(options) {
  LineScope line(loc);
  WEFT_CHECK(options.batch_size > 0, "DataLoader: batch_size is ", options.batch_size, "; need 1 or more");
  WEFT_CHECK(options.workers >= 0 && options.workers <= 1024, "DataLoader: workers is ", options.workers,
             "; need 0 to 1024");
  WEFT_CHECK(options.prefetch >= 1 && options.prefetch <= 1 << 20, "DataLoader: prefetch is ", options.prefetch,
             "; need 1 to 2^20");
  items_ = size_();
  WEFT_CHECK(items_ >= 0, "DataLoader: the dataset's size() is ", items_, "; need 0 or more");
  constexpr int64_t kMost = int64_t{1} << 28;
  WEFT_CHECK(std::min(items_, options.batch_size) <= kMost, "DataLoader: batch_size is ", options.batch_size, " of ",
             items_, " items; need at most 2^28 items in a batch");
}
BatchSource::~BatchSource() = default;

int64_t BatchSource::batches() const {
  const int64_t whole = items_ / options_.batch_size;
  return whole + (!options_.drop_last && items_ % options_.batch_size != 0);
}

void BatchSource::seek(const DataPosition& p) {
  WEFT_CHECK_AS(kOutOfRange, p.epoch >= 0 && p.batch >= 0 && p.batch <= batches(), "DataLoader: position is epoch ",
                p.epoch, ", batch ", p.batch, "; need an epoch from 0 and a batch from 0 to ", batches());
  workers_.reset();
  running_ = false;
  position_ = p;
  fresh_ = true;
}

void BatchSource::begin() {
  WEFT_CHECK_AS(kFailedPrecondition, !is_capturing(),
                "DataLoader: a loop inside a compiled function would be captured once; need the loop outside, and the "
                "batch as an argument");
  workers_.reset();
  ++turn_;
  if (!fresh_ && running_) position_ = {position_.epoch + 1, 0};
  fresh_ = false;
  running_ = true;
  if (options_.workers > 0 && position_.batch < batches()) workers_ = std::make_unique<Workers>(*this, batches());
}

AnyBatch BatchSource::next() {
  if (position_.batch >= batches()) {
    workers_.reset();
    running_ = false;
    position_ = {position_.epoch + 1, 0};
    return nullptr;
  }
  AnyBatch batch;
  if (workers_) {
    Workers::WorkerResult r = workers_->take(position_.batch);
    if (r.error) {
      workers_.reset();
      std::rethrow_exception(r.error);
    }
    batch = std::move(r.batch);
  } else {
    batch = made(position_, [] { return false; });
  }
  ++position_.batch;
  return batch;
}

std::vector<int64_t> BatchSource::indices(const DataPosition& at) const {
  const int64_t begin = at.batch * options_.batch_size;
  const int64_t end = begin + std::min(items_ - begin, options_.batch_size);
  std::vector<int64_t> v;
  for (int64_t k = begin; k < end; ++k) v.push_back(index_at(k, items_, options_.shuffle, options_.seed, at.epoch));
  return v;
}

AnyBatch BatchSource::made(const DataPosition& position, const std::function<bool()>& stop) const {
  NoGrad guard;
  const std::vector<int64_t> wanted = indices(position);
  int64_t at = wanted[0];
  const auto failed = [&](Code code, const char* what) {
    const std::string item = at >= 0 ? str_cat("item ", at) : str_cat("the items ", wanted);
    throw Error(code, str_cat("DataLoader: ", item, " of epoch ", position.epoch, ": ", what));
  };
  try {
    return make_(wanted, position.epoch, at, stop);
  } catch (const Error& e) {
    failed(e.code(), e.what());
  } catch (const std::exception& e) {
    failed(Code::kAborted, e.what());
  } catch (...) {
    failed(Code::kAborted, "an exception that is no std::exception");
  }
  return nullptr;
}

}  // namespace weft::data::internal
