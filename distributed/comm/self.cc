#include "distributed/comm/self.h"

#include "distributed/comm/threads.h"

namespace weft::dist {
namespace {

class Alone final : public RankContext {
 public:
  Alone() : RankContext(0, 1, Device::cpu()), communicator_(make_self_communicator()) {}
  ~Alone() override { abandon(); }
  Communicator& communicator(const std::string&) override { return *communicator_; }

 private:
  Ref<Communicator> communicator_;
};

}  // namespace

Ref<Communicator> make_self_communicator() { return make_thread_communicators(1)[0]; }
std::unique_ptr<RankContext> make_alone() { return std::make_unique<Alone>(); }

}  // namespace weft::dist
