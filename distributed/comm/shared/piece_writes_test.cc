#include "distributed/comm/shared/piece_writes.h"

#include "gtest/gtest.h"

namespace weft::dist::shared {
namespace {

// The fraction of collectives that write around the caches, given these times.
double share(PieceWrites& w, double cached, double around, int n) {
  int times = 0;
  for (int i = 0; i < n; ++i) {
    const bool a = w.next();
    times += a;
    w.took(a, a ? around : cached);
  }
  return static_cast<double>(times) / n;
}

TEST(PieceWrites, TheFasterWayIsTakenAndTheOtherOneTriedNowAndThen) {
  PieceWrites near, far;
  EXPECT_NEAR(share(near, 1.0, 1.2, 1280), 13.0 / 1280, 1e-9);
  EXPECT_NEAR(share(far, 5.0, 2.0, 1280), 1 - 13.0 / 1280, 1e-9);
}

TEST(PieceWrites, EqualTimesKeepTheCaches) {
  PieceWrites w;
  EXPECT_LT(share(w, 1.0, 0.95, 1280), 0.02);
}

TEST(PieceWrites, RanksThatMoveToOtherCoresAreNoticed) {
  PieceWrites w;
  share(w, 1.0, 1.2, 1000);
  share(w, 5.0, 2.0, 200);  // enough collectives to notice the change
  EXPECT_GT(share(w, 5.0, 2.0, 1280), 0.98);
  share(w, 1.0, 1.2, 200);
  EXPECT_LT(share(w, 1.0, 1.2, 1280), 0.02);
}

TEST(PieceWrites, OneInterruptedMeasurementChangesNothing) {
  PieceWrites w;
  share(w, 1.0, 1.2, 300);
  w.took(w.next(), 50.0);
  EXPECT_LT(share(w, 1.0, 1.2, 1280), 0.02);
}

}  // namespace
}  // namespace weft::dist::shared
