// Global memory during one launch: who wrote and read each byte last. Blocks of a launch run in no order, so what one
// touches after another wrote it, or writes after another touched it, is a race; within a block the clocks judge.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "compiler/targets/cuda/testing/emulate/clocks.h"

namespace weft::cuda {

class GlobalShadow {
 public:
  void begin_launch();

  /// The access that another one is in no order with.
  struct Other {
    uint32_t block = 0;
    int thread = -1;  // -1: there is none
    bool wrote = false;
    bool many = false;  // other blocks read, too
    explicit operator bool() const { return thread >= 0; }
  };
  /// An access of thread t of a block, whose number in the grid is given. Returns what it races with.
  Other access(Clocks& clocks, uint32_t block, int t, const void* p, int bytes, bool writes);

 private:
  struct Cell {
    Clocks::Stamp write = 0, reads[2] = {0, 0};
    uint32_t write_block = 0, read_block = 0;  // of a read: kMany blocks, the first of which is reads[1]
  };
  // As many bytes are told together as all accesses so far allow: cells are of 1 << shift bytes.
  struct Page {
    uint64_t launch = 0;
    int shift = 0;
    std::vector<Cell> cells;
  };
  static constexpr uint32_t kMany = 0xffffffffu;
  static constexpr int kPage = 4096, kLookups = 1024;

  Page& page(uint64_t number);
  void refine(Page& p, int shift);

  uint64_t launch_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  struct Lookup {
    uint64_t number = ~uint64_t{0};
    Page* page = nullptr;
  };
  std::vector<Lookup> lookups_ = std::vector<Lookup>(kLookups);
};

}  // namespace weft::cuda
