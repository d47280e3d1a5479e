// Global memory during one launch: who last wrote and read each byte. Blocks of a launch are not ordered: it is a race
// if one block accesses bytes that another wrote, or writes bytes that another accessed. Within a block the clocks
// decide.
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

  /// The access with which another one races.
  struct Other {
    uint32_t block = 0;
    int thread = -1;  // -1: there is none
    bool wrote = false;
    bool many = false;  // other blocks read, too
    explicit operator bool() const { return thread >= 0; }
  };
  /// Records an access of thread t in the block with this index in the grid. Returns the access with which it races.
  Other access(Clocks& clocks, uint32_t block, int t, const void* p, int bytes, bool writes);

 private:
  struct Cell {
    Clocks::Stamp write = 0, reads[2] = {0, 0};
    uint32_t write_block = 0, read_block = 0;  // for reads: kMany blocks; the first one is in reads[1]
  };
  // A cell covers 1 << shift bytes, which all accesses so far treat alike.
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
