// The shared memory of one rank: a memfd without a name, mapped by its owner and by the other processes of the host.
// The kernel frees it when the last of these processes has ended, however it ended. It can only grow. All processes
// reserve the same range of addresses for it, so they see its growth without mapping it again.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace weft::dist::shared {

/// Where the control area of one communicator begins in this segment. `key` is the same on all its ranks.
struct DirectoryEntry {
  std::atomic<uint64_t> key;
  uint64_t offset;
};
inline constexpr uint32_t kDirectory = 1 << 14;

/// The beginning of a segment.
struct SegmentHeader {
  static constexpr uint64_t kMagic = 0x31746665574d4853;
  uint64_t magic;
  int32_t rank;
  int32_t progress_rank;         // the rank whose segment has the progress thread's words for this rank's process
  int64_t piece_bytes;           // SharedWorldOptions::piece_bytes
  std::atomic<uint32_t> closed;  // the owner has left in an orderly way
  alignas(64) std::atomic<uint32_t> bell;           // changes at every event that this rank may wait for
  std::atomic<uint32_t> sleepers;                   // threads of the owner that sleep until it changes
  std::atomic<uint32_t> wants_progress;             // the owner has collectives under way and computes
  alignas(64) std::atomic<uint32_t> progress_bell;  // the bell of the progress thread of a process
  std::atomic<uint32_t> progress_sleeps;
  alignas(64) std::atomic<uint32_t> entries;
  DirectoryEntry directory[kDirectory];
};

class Segment {
 public:
  /// A new segment of this process's rank; `reserve` is the largest size that it can have.
  Segment(int rank, int64_t reserve);
  /// The segment of another process; takes the file descriptor, and throws if it is not sealed or not of this rank.
  Segment(int rank, int64_t reserve, int fd);
  ~Segment();
  Segment(const Segment&) = delete;

  int fd() const { return fd_; }
  int rank() const { return rank_; }
  int64_t reserve() const { return reserve_; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  char* at(uint64_t offset) const { return base_ + offset; }
  uint64_t offset_of(const void* p) const { return static_cast<uint64_t>(static_cast<const char*>(p) - base_); }
  bool contains(const void* p) const { return p >= base_ && p < base_ + reserve_; }
  /// Makes the segment at least this large. Only its owner calls it, from one thread at a time.
  void grow(int64_t bytes);
  /// Adds a control area to the directory.
  void publish(uint64_t key, uint64_t offset);
  /// The offset of a control area, 0 if it is not in the directory yet.
  uint64_t find(uint64_t key) const;

 private:
  void map();
  int rank_, fd_ = -1;
  int64_t reserve_, size_ = 0;
  char* base_ = nullptr;
};

}  // namespace weft::dist::shared
