// Batches of a dataset that has no indices: a stream of items, such as lines of a file or the results of a simulation.
#pragma once
#include "framework/dispatch/state/state.h"
#include "models/data/data_loader.h"

namespace weft::data {

/// A dataset whose stream(epoch) returns a function that gives the next item, or nothing at the end: std::optional of a
/// Tensor, or of a tuple, array, vector or struct of tensors.
template <class D>
concept IterableDataset = requires(const D& d) {
  *d.stream(int64_t{})();
};

/// for (auto [x, y] : loader) ... runs through one epoch, and each loop through the next. The batches have the order of
/// the stream. Only batch_size and drop_last of the options apply; others throw.
template <IterableDataset D>
class StreamLoader {
  using Stream = decltype(std::declval<const D&>().stream(int64_t{}));

 public:
  using Item = std::remove_cvref_t<decltype(*std::declval<Stream&>()())>;
  explicit StreamLoader(D dataset, const DataLoaderOptions& options = {},
                        std::source_location loc = std::source_location::current())
      : dataset_(std::move(dataset)), options_(options) {
    weft::internal::LineScope line(loc);
    WEFT_CHECK(options.batch_size > 0, "StreamLoader: batch_size is ", options.batch_size, "; need 1 or more");
    WEFT_CHECK(!options.shuffle && options.workers == 0, "StreamLoader: got ", options.shuffle ? "shuffle" : "workers",
               "; need neither: the caller makes a stream in its order; a dataset with size and get accepts both");
  }
  StreamLoader(const StreamLoader&) = delete;

  DataPosition position() const { return position_; }
  /// The next loop begins here; it reads and drops the items before.
  void seek(const DataPosition& p) {
    WEFT_CHECK_AS(kOutOfRange, p.epoch >= 0 && p.batch >= 0, "StreamLoader: position is epoch ", p.epoch, ", batch ",
                  p.batch, "; need numbers of 0 or more");
    position_ = p;
    fresh_ = true;
  }

  class Iterator {
   public:
    using value_type = Item;
    using difference_type = std::ptrdiff_t;
    const Item& operator*() const { return *item_; }
    Iterator& operator++() {
      load();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !item_; }

   private:
    friend class StreamLoader;
    Iterator(StreamLoader* loader, Stream stream) : loader_(loader), stream_(std::move(stream)) {
      const int64_t before = loader->position_.batch * loader->options_.batch_size;
      for (int64_t i = 0; i < before && stream_(); ++i) {
      }
      load();
    }
    void load() {
      NoGrad guard;
      item_.reset();
      internal::ItemStack<Item> stack;
      int64_t n = 0;
      for (; n < loader_->options_.batch_size; ++n) {
        auto one = stream_();
        if (!one) break;
        stack.add(std::move(*one));
      }
      if (n == 0 || (n < loader_->options_.batch_size && loader_->options_.drop_last)) {
        loader_->position_ = {loader_->position_.epoch + 1, 0};
        loader_->fresh_ = true;
        return;
      }
      ++loader_->position_.batch;
      item_ = stack.stacked();
    }
    StreamLoader* loader_;
    Stream stream_;
    std::optional<Item> item_;
  };
  Iterator begin() {
    if (!fresh_) position_ = {position_.epoch + 1, 0};  // the last loop was left early
    fresh_ = false;
    return Iterator(this, dataset_.stream(position_.epoch));
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  const D dataset_;
  DataLoaderOptions options_;
  DataPosition position_;
  bool fresh_ = true;  // position_ was set, or the epoch before it has ended
};

}  // namespace weft::data
