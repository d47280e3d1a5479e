// The communicators of a world: between threads of this process, or between the processes of a job.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/dispatch/communicator.h"
#include "framework/mesh/mesh.h"

namespace weft::dist {

class Processes;

class Transport {
 public:
  virtual ~Transport() = default;
  /// The communicator of a rank of this process along mesh dimensions.
  virtual Ref<Communicator> get(int rank, const std::string& axes) = 0;
  /// Aborts all communicators, including later ones, until reset(). Keeps the first cause.
  virtual void abort(const std::string& cause) = 0;
  /// The rank has returned from its function: no other rank may wait for it any more. Processes end their functions at
  /// different times, so between processes this holds only when the process has left.
  virtual void leave(int rank) = 0;
  /// All ranks run again.
  virtual void begin() = 0;
  /// Drops all communicators; later ones are new.
  virtual void reset() = 0;
};

/// The transport between threads. Communicators are created at first use.
std::unique_ptr<Transport> make_thread_transport(const Mesh& mesh);
/// The transport between processes. The first use of a communicator creates it and waits for the other processes: ranks
/// must use several communicators in one order.
std::unique_ptr<Transport> make_process_transport(const Mesh& mesh, Processes& job);

}  // namespace weft::dist
