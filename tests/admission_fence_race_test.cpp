// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The races of the fence protocols, each one set up by holding a thread at a named point. In every test the threads are
// declared before the parks, so that a failed assertion first opens the parks and then joins.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include <curfew/admission_fence.hpp>

#include "support/park.hpp"

namespace {

using namespace std::chrono_literals;
using curfew::drain_hook;
using curfew::drain_result;
using curfew::drain_status;
using curfew_test::gate;
using curfew_test::park;
using curfew_test::park_sync;
using curfew_test::patience;
using curfew_test::watchdog;

using striped = curfew::basic_admission_fence<park_sync>;
using compact = curfew::basic_compact_admission_fence<park_sync>;
using traced = curfew::basic_traced_admission_fence<park_sync>;

struct kind_names {
  template <class Fence>
  static std::string GetName(int) {
    if (std::is_same_v<Fence, traced>) return "traced";
    return std::is_same_v<Fence, striped> ? "striped" : "compact";
  }
};

// The name of a point in the protocol of this kind.
template <class Fence>
std::string at(const char* point) {
  return (std::is_same_v<Fence, compact> ? "compact." : "fence.") + std::string(point);
}

// Long enough for a thread that wrongly does not wait to be seen; only ever used to observe that nothing happens.
constexpr auto a_moment = 50ms;

struct counting_hook {
  static void hit(void* self) noexcept { static_cast<counting_hook*>(self)->runs.fetch_add(1); }
  std::atomic<int> runs{0};
  drain_hook hook{&hit, this};
};

template <class Fence>
class AdmissionFenceRace : public testing::Test {
  watchdog watchdog_{"admission_fence_race_test", 2 * curfew_test::patience};
};
using kinds = testing::Types<striped, compact, traced>;
TYPED_TEST_SUITE(AdmissionFenceRace, kinds, kind_names);

// --- entering against closing ---------------------------------------------------------------------------------------

// The closing moves the counts to where an estimate does not look for them.
TEST(AdmissionFenceStripedRace, Rule1_ACountOvertakenByCloseDoesNotMissThePassesOut) {
  watchdog dog("Rule1_ACountOvertakenByClose");
  striped fence;
  const auto pass = fence.enter();
  std::uint64_t counted = 0;
  std::jthread counter;
  park p("fence.inside.open");
  counter = std::jthread([&] { counted = fence.inside(); });
  ASSERT_TRUE(p.wait_arrived());
  EXPECT_TRUE(fence.close());
  p.open();
  counter.join();
  EXPECT_EQ(counted, 1u);
}

TYPED_TEST(AdmissionFenceRace, Rule1_AnEntrantOvertakenByCloseIsRefusedAndLeavesNoTrace) {
  TypeParam fence;
  typename TypeParam::pass pass;
  std::jthread entrant;
  park p(at<TypeParam>("enter.checked"));
  entrant = std::jthread([&] { pass = fence.try_enter(); });
  ASSERT_TRUE(p.wait_arrived());
  EXPECT_TRUE(fence.close());
  EXPECT_TRUE(fence.is_drained());
  p.open();
  entrant.join();
  EXPECT_FALSE(pass);
  EXPECT_EQ(fence.inside(), 0u);
  EXPECT_TRUE(fence.is_drained());
  // Nothing of the refusal reaches the next epoch, in which the count is exact again.
  EXPECT_TRUE(fence.reopen());
  EXPECT_EQ(fence.inside(), 0u);
  pass = fence.enter();
  fence.close();
  EXPECT_EQ(fence.inside(), 1u);
  pass.release();
  EXPECT_TRUE(fence.is_drained());
}

TYPED_TEST(AdmissionFenceRace, Rule1_AnEntrantOvertakenByAWholeEpochIsAdmittedToTheNext) {
  TypeParam fence;
  typename TypeParam::pass pass;
  std::jthread entrant;
  park p(at<TypeParam>("enter.checked"));
  entrant = std::jthread([&] { pass = fence.try_enter(); });
  ASSERT_TRUE(p.wait_arrived());
  fence.drain();
  EXPECT_TRUE(fence.reopen());
  p.open();
  entrant.join();
  // One word may notice that it has changed twice or may not; either way the verdict and the count agree.
  EXPECT_TRUE(pass);
  fence.close();
  EXPECT_EQ(fence.inside(), 1u);
  pass.release();
  EXPECT_TRUE(fence.is_drained());
}

TEST(AdmissionFenceStripedRace, Rule1_AnEntrantBeforeTheHarvestIsCountedByIt) {
  watchdog dog("Rule1_AnEntrantBeforeTheHarvestIsCountedByIt");
  striped fence;
  striped::pass pass;
  std::jthread entrant, closer;
  park checked("fence.enter.checked"), flagged("fence.close.flagged");
  entrant = std::jthread([&] { pass = fence.try_enter(); });
  ASSERT_TRUE(checked.wait_arrived());
  closer = std::jthread([&] { fence.close(); });
  ASSERT_TRUE(flagged.wait_arrived());
  EXPECT_FALSE(fence.try_enter());  // refused by the state word: from here on nobody who comes anew
  checked.open();
  entrant.join();
  EXPECT_TRUE(pass);  // its stripe was still open
  flagged.open();
  closer.join();
  EXPECT_EQ(fence.inside(), 1u);
  EXPECT_FALSE(fence.is_drained());
  pass.release();
  EXPECT_TRUE(fence.is_drained());
}

TEST(AdmissionFenceStripedRace, Rule2_AThreadRefusedByAStripeIsRefusedByTheStateWordFromThenOn) {
  watchdog dog("Rule2_AThreadRefusedByAStripe");
  striped fence;
  std::atomic<bool> first{true}, second{true};
  std::jthread entrant, closer;
  park checked("fence.enter.checked"), harvested("fence.close.harvested");
  entrant = std::jthread([&] {
    first.store(static_cast<bool>(fence.try_enter()));
    second.store(static_cast<bool>(fence.try_enter()));
  });
  ASSERT_TRUE(checked.wait_arrived());
  closer = std::jthread([&] { fence.close(); });
  ASSERT_TRUE(harvested.wait_arrived());
  checked.open();
  entrant.join();
  EXPECT_FALSE(first.load());
  EXPECT_FALSE(second.load());
}

// --- leaving against closing ----------------------------------------------------------------------------------------

// Everything leaves between the harvest and its entry into the counter: without the bias zero would be seen too early.
TEST(AdmissionFenceStripedRace, Rule1_LeavesDuringTheHarvestAreCountedOnce) {
  watchdog dog("Rule1_LeavesDuringTheHarvestAreCountedOnce");
  striped fence;
  auto first = fence.enter();
  auto second = fence.enter();
  counting_hook counter;
  fence.on_drained(counter.hook);
  std::jthread closer;
  park harvested("fence.close.harvested");
  closer = std::jthread([&] { fence.close(); });
  ASSERT_TRUE(harvested.wait_arrived());
  first.release();
  auto clone = second.clone();
  second.release();
  EXPECT_FALSE(fence.is_drained());
  harvested.open();
  closer.join();
  EXPECT_EQ(fence.inside(), 1u);
  EXPECT_EQ(counter.runs.load(), 0);
  clone.release();
  EXPECT_TRUE(fence.is_drained());
  EXPECT_EQ(counter.runs.load(), 1);
}

TEST(AdmissionFenceStripedRace, Rule1_TheCloserIsTheLastWhenAllLeftDuringTheHarvest) {
  watchdog dog("Rule1_TheCloserIsTheLastWhenAllLeftDuringTheHarvest");
  striped fence;
  auto first = fence.enter();
  auto second = fence.enter();
  counting_hook counter;
  fence.on_drained(counter.hook);
  std::jthread closer;
  park harvested("fence.close.harvested");
  closer = std::jthread([&] { fence.close(); });
  ASSERT_TRUE(harvested.wait_arrived());
  first.release();
  second.release();
  EXPECT_EQ(counter.runs.load(), 0);
  harvested.open();
  closer.join();
  EXPECT_TRUE(fence.is_drained());
  EXPECT_EQ(counter.runs.load(), 1);
}

TEST(AdmissionFenceStripedRace, Rule3_ACloneOvertakenByCancelCloseStaysCounted) {
  watchdog dog("Rule3_ACloneOvertakenByCancelCloseStaysCounted");
  striped fence;
  auto pass = fence.enter();
  striped::pass clone;
  fence.close();
  std::jthread cloner;
  park redirected("fence.clone.redirected");
  cloner = std::jthread([&] { clone = pass.clone(); });
  ASSERT_TRUE(redirected.wait_arrived());
  EXPECT_TRUE(fence.cancel_close());
  redirected.open();
  cloner.join();
  fence.close();
  EXPECT_EQ(fence.inside(), 2u);
  pass.release();
  EXPECT_FALSE(fence.is_drained());
  clone.release();
  EXPECT_TRUE(fence.is_drained());
}

// --- the last leaver ------------------------------------------------------------------------------------------------

// The last leaver has made the count zero and has not yet been to the lot: nothing may take that for drained.
TYPED_TEST(AdmissionFenceRace, Rule6_ZeroIsNotDrainedUntilTheLastLeaverIsDone) {
  TypeParam fence;
  auto pass = fence.enter();
  counting_hook counter;
  fence.on_drained(counter.hook);
  fence.close();
  gate returned;
  std::jthread leaver, drainer;
  park zero(at<TypeParam>("leave.zero"));
  leaver = std::jthread([&] { pass.release(); });
  ASSERT_TRUE(zero.wait_arrived());
  EXPECT_FALSE(fence.is_drained());
  EXPECT_TRUE(fence.is_closed());
  EXPECT_EQ(fence.inside(), 0u);
  const drain_result poll = fence.drain_for(0s);
  EXPECT_EQ(poll.status, drain_status::timed_out);
  EXPECT_EQ(poll.remaining, 1u);
  EXPECT_EQ(fence.drain_for(1ms).status, drain_status::timed_out);  // not held up by the leaver either
  EXPECT_EQ(fence.wait_drained_for(0s).status, drain_status::timed_out);
  EXPECT_FALSE(fence.try_enter());
  drainer = std::jthread([&] {
    fence.drain();
    returned.open();
  });
  EXPECT_FALSE(returned.wait(a_moment));
  zero.open();
  EXPECT_TRUE(returned.wait());
  leaver.join();
  EXPECT_EQ(counter.runs.load(), 1);
}

TYPED_TEST(AdmissionFenceRace, Rule6_TheFenceIsDestroyedAsSoonAsDrainReturns) {
  for (const char* point : {"leave.begin", "leave.zero"}) {
    auto fence = std::make_unique<TypeParam>();
    auto pass = fence->enter();
    std::jthread leaver, drainer;
    park enlisted("drain.await.enlisted"), leaving(at<TypeParam>(point));
    drainer = std::jthread([&] {
      fence->drain();
      fence.reset();
    });
    ASSERT_TRUE(enlisted.wait_arrived());
    enlisted.open();
    leaver = std::jthread([&] { pass.release(); });
    ASSERT_TRUE(leaving.wait_arrived());
    leaving.open();
    drainer.join();
    leaver.join();
  }
}

// Seen drained without a lock, destroyed while the last leaver has not even unlocked the lot.
TYPED_TEST(AdmissionFenceRace, Rule6_IsDrainedMeansThatTheLastLeaverIsDone) {
  auto fence = std::make_unique<TypeParam>();
  auto pass = fence->enter();
  counting_hook counter;
  fence->on_drained(counter.hook);
  fence->close();
  std::jthread leaver, destroyer;
  park settled(at<TypeParam>("leave.settled"));
  leaver = std::jthread([&] { pass.release(); });
  ASSERT_TRUE(settled.wait_arrived());
  EXPECT_TRUE(fence->is_drained());
  destroyer = std::jthread([&] { fence.reset(); });
  if (std::is_same_v<TypeParam, compact>) destroyer.join();  // takes no lock when nobody waits
  settled.open();
  leaver.join();
  if (destroyer.joinable()) destroyer.join();
  EXPECT_EQ(counter.runs.load(), 1);
}

TYPED_TEST(AdmissionFenceRace, Rule9_TheDestructorWaitsForTheLastLeaver) {
  auto fence = std::make_unique<TypeParam>();
  auto pass = fence->enter();
  counting_hook counter;
  fence->on_drained(counter.hook);
  fence->close();
  gate gone;
  std::jthread leaver, destroyer;
  park zero(at<TypeParam>("leave.zero"));
  leaver = std::jthread([&] { pass.release(); });
  ASSERT_TRUE(zero.wait_arrived());
  destroyer = std::jthread([&] {
    fence.reset();
    gone.open();
  });
  EXPECT_FALSE(gone.wait(a_moment));
  zero.open();
  EXPECT_TRUE(gone.wait());
  leaver.join();
  EXPECT_EQ(counter.runs.load(), 1);
}

// The closer has counted and is still inside close() while another thread is told "drained" and destroys the fence.
TEST(AdmissionFenceStripedRace, Rule6_TheCloserMayStillBeInCloseWhenTheFenceIsDestroyed) {
  watchdog dog("Rule6_TheCloserMayStillBeInClose");
  for (const bool occupied : {false, true}) {
    auto fence = std::make_unique<striped>();
    striped::pass pass;
    if (occupied) pass = fence->enter();
    gate gone;
    std::jthread closer, leaver, destroyer;
    park counted("fence.close.counted"), zero("fence.leave.zero");
    closer = std::jthread([&] { fence->close(); });
    ASSERT_TRUE(counted.wait_arrived());
    if (occupied) {
      leaver = std::jthread([&] { pass.release(); });
      ASSERT_TRUE(zero.wait_arrived());
      zero.open();
    }
    destroyer = std::jthread([&] {
      while (!fence->is_drained()) std::this_thread::yield();
      fence.reset();
      gone.open();
    });
    EXPECT_FALSE(gone.wait(a_moment));
    counted.open();
    EXPECT_TRUE(gone.wait());
    closer.join();
    if (occupied) leaver.join();
  }
}

TEST(AdmissionFenceCompactRace, Rule6_TheCloserMayStillBeInCloseWhenTheFenceIsDestroyed) {
  watchdog dog("Rule6_TheCloserMayStillBeInClose");
  auto fence = std::make_unique<compact>();
  std::jthread closer;
  park flagged("compact.close.flagged");
  closer = std::jthread([&] { fence->close(); });
  ASSERT_TRUE(flagged.wait_arrived());
  EXPECT_TRUE(fence->drain_for(0s));
  fence.reset();
  flagged.open();
  closer.join();
}

// With a hook registered the closer of an empty fence is its signaller.
TEST(AdmissionFenceCompactRace, Rule6_ACloserThatStillHasToSignalIsWaitedFor) {
  watchdog dog("Rule6_ACloserThatStillHasToSignalIsWaitedFor");
  auto fence = std::make_unique<compact>();
  counting_hook counter;
  fence->on_drained(counter.hook);
  gate gone;
  std::jthread closer, destroyer;
  park flagged("compact.close.flagged");
  closer = std::jthread([&] { fence->close(); });
  ASSERT_TRUE(flagged.wait_arrived());
  EXPECT_FALSE(fence->is_drained());
  EXPECT_FALSE(fence->reopen());
  EXPECT_FALSE(fence->cancel_close());
  const drain_result poll = fence->drain_for(0s);
  EXPECT_EQ(poll.status, drain_status::timed_out);
  EXPECT_EQ(poll.remaining, 1u);
  destroyer = std::jthread([&] {
    fence.reset();
    gone.open();
  });
  EXPECT_FALSE(gone.wait(a_moment));
  flagged.open();
  EXPECT_TRUE(gone.wait());
  closer.join();
  EXPECT_EQ(counter.runs.load(), 1);
}

// A drainer that has announced itself keeps the fence from being seen drained until it is registered.
TEST(AdmissionFenceCompactRace, Rule6_ADrainerIsNeverOvertakenBetweenClosingAndRegistering) {
  watchdog dog("Rule6_ADrainerIsNeverOvertaken");
  auto fence = std::make_unique<compact>();
  auto pass = fence->enter();
  gate told, gone;
  std::jthread drainer, leaver, destroyer;
  park announced("compact.wait.announced");
  drainer = std::jthread([&] {
    if (fence->drain_for(patience)) told.open();
  });
  ASSERT_TRUE(announced.wait_arrived());
  leaver = std::jthread([&] { pass.release(); });
  destroyer = std::jthread([&] {
    while (!fence->is_drained()) std::this_thread::yield();
    fence.reset();
    gone.open();
  });
  EXPECT_FALSE(gone.wait(a_moment));
  announced.open();
  EXPECT_TRUE(gone.wait());
  EXPECT_TRUE(told.wait());
  drainer.join();
  leaver.join();
}

// --- reopening ------------------------------------------------------------------------------------------------------

TYPED_TEST(AdmissionFenceRace, Rule8_ASlowLastLeaverNeverCompletesTheNextEpoch) {
  TypeParam fence;
  auto pass = fence.enter();
  counting_hook counter;
  fence.on_drained(counter.hook);  // so that the last leaver has something to signal
  fence.close();
  std::jthread leaver;
  park zero(at<TypeParam>("leave.zero"));
  leaver = std::jthread([&] { pass.release(); });
  ASSERT_TRUE(zero.wait_arrived());
  EXPECT_FALSE(fence.reopen());
  EXPECT_FALSE(fence.cancel_close());
  EXPECT_TRUE(fence.is_closed());
  EXPECT_FALSE(fence.try_enter());
  zero.open();
  leaver.join();
  EXPECT_EQ(counter.runs.load(), 1);
  EXPECT_TRUE(fence.reopen());
  auto next = fence.enter();
  fence.close();
  EXPECT_FALSE(fence.is_drained());
  EXPECT_EQ(fence.inside(), 1u);
}

TYPED_TEST(AdmissionFenceRace, Rule8_ALeaverOvertakenByCancelCloseLeavesOnce) {
  for (const bool past_its_stripe : {false, true}) {
    if (past_its_stripe && std::is_same_v<TypeParam, compact>) continue;
    TypeParam fence;
    auto pass = fence.enter();
    fence.close();
    std::jthread leaver;
    park leaving(past_its_stripe ? "fence.leave.redirected" : at<TypeParam>("leave.begin"));
    leaver = std::jthread([&] { pass.release(); });
    ASSERT_TRUE(leaving.wait_arrived());
    EXPECT_TRUE(fence.cancel_close());
    auto next = fence.enter();
    leaving.open();
    leaver.join();
    EXPECT_EQ(fence.inside(), 1u);
    fence.close();
    EXPECT_EQ(fence.inside(), 1u);
    EXPECT_FALSE(fence.is_drained());
    next.release();
    EXPECT_TRUE(fence.is_drained());
    EXPECT_TRUE(fence.reopen());
    EXPECT_EQ(fence.inside(), 0u);
  }
}

// A leaver of epoch 1 held before the shared counter while epoch 2 opens and closes.
TEST(AdmissionFenceStripedRace, Rule8_ALeaverOvertakenByTwoEpochsLeavesOnce) {
  watchdog dog("Rule8_ALeaverOvertakenByTwoEpochsLeavesOnce");
  striped fence;
  auto pass = fence.enter();
  fence.close();
  std::jthread leaver;
  park redirected("fence.leave.redirected");
  leaver = std::jthread([&] { pass.release(); });
  ASSERT_TRUE(redirected.wait_arrived());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(fence.cancel_close());
    EXPECT_TRUE(fence.close());
    EXPECT_EQ(fence.inside(), 1u);
  }
  redirected.open();
  leaver.join();
  EXPECT_TRUE(fence.is_drained());
}

TYPED_TEST(AdmissionFenceRace, Rule8_WaitersGetReopenedAndTheCount) {
  TypeParam fence;
  auto pass = fence.enter();
  auto second = pass.clone();
  drain_result drainer_told{}, observer_told{};
  gate returned;
  std::jthread drainer, observer, plain;
  park enlisted("drain.await.enlisted", "", 3);
  observer = std::jthread([&] { observer_told = fence.wait_drained_for(patience); });
  ASSERT_TRUE(enlisted.wait_arrived(1));
  enlisted.open();
  park next("drain.await.enlisted");
  drainer = std::jthread([&] { drainer_told = fence.drain_for(patience); });
  ASSERT_TRUE(next.wait_arrived());
  next.open();
  park third("drain.await.enlisted");
  plain = std::jthread([&] {
    fence.drain();
    returned.open();
  });
  ASSERT_TRUE(third.wait_arrived());
  third.open();
  EXPECT_TRUE(fence.cancel_close());
  observer.join();
  drainer.join();
  EXPECT_TRUE(returned.wait());
  EXPECT_EQ(drainer_told.status, drain_status::reopened);
  EXPECT_EQ(drainer_told.remaining, 2u);
  EXPECT_EQ(observer_told.status, drain_status::reopened);
  EXPECT_FALSE(static_cast<bool>(drainer_told));
}

// --- drainers and their epochs
// ----------------------------------------------------------------------------------------

// The last leaver's hook reopens, closes and enters again before the drainer that it has told can run.
TYPED_TEST(AdmissionFenceRace, Rule7_ADrainerIsToldAboutItsEpochAlthoughItWasReopened) {
  struct context {
    TypeParam fence;
    typename TypeParam::pass next;
    bool reopened = false;
  } shared;
  drain_hook hook(
      [](void* arg) noexcept {
        auto& self = *static_cast<context*>(arg);
        self.reopened = self.fence.reopen();
        self.next = self.fence.try_enter();
        self.fence.close();
      },
      &shared);
  auto pass = shared.fence.enter();
  ASSERT_TRUE(shared.fence.on_drained(hook));
  drain_result told{};
  std::jthread drainer;
  park enlisted("drain.await.enlisted");
  drainer = std::jthread([&] { told = shared.fence.drain_for(patience); });
  ASSERT_TRUE(enlisted.wait_arrived());
  enlisted.open();
  pass.release();
  drainer.join();
  EXPECT_EQ(told.status, drain_status::drained);
  EXPECT_TRUE(shared.reopened);
  EXPECT_TRUE(shared.next);
  EXPECT_FALSE(shared.fence.is_drained());
}

TYPED_TEST(AdmissionFenceRace, Rule7_WhoComesWhileTheLastLeaverIsOnItsWayIsServedByIt) {
  TypeParam fence;
  auto pass = fence.enter();
  counting_hook first, late;
  fence.on_drained(first.hook);
  fence.close();
  gate told;
  std::jthread leaver, drainer;
  park zero(at<TypeParam>("leave.zero")), enlisted("drain.await.enlisted");
  leaver = std::jthread([&] { pass.release(); });
  ASSERT_TRUE(zero.wait_arrived());
  EXPECT_TRUE(fence.on_drained(late.hook));
  drainer = std::jthread([&] {
    if (fence.wait_drained_for(patience)) told.open();
  });
  ASSERT_TRUE(enlisted.wait_arrived());
  enlisted.open();
  zero.open();
  EXPECT_TRUE(told.wait());
  leaver.join();
  EXPECT_EQ(first.runs.load(), 1);
  EXPECT_EQ(late.runs.load(), 1);
}

TYPED_TEST(AdmissionFenceRace, Rule10_CancelBeatsALastLeaverThatHasNotCollectedTheHook) {
  TypeParam fence;
  auto pass = fence.enter();
  counting_hook counter;
  fence.on_drained(counter.hook);
  fence.close();
  std::jthread leaver;
  park zero(at<TypeParam>("leave.zero"));
  leaver = std::jthread([&] { pass.release(); });
  ASSERT_TRUE(zero.wait_arrived());
  EXPECT_TRUE(fence.cancel(counter.hook));
  zero.open();
  leaver.join();
  EXPECT_TRUE(fence.is_drained());
  EXPECT_EQ(counter.runs.load(), 0);
}

// --- visibility where only one operation carries it
// -------------------------------------------------------------------

// Holds one thread at one point and, unlike a park, orders nothing: what the threads then see of each other they see
// through the fence alone, and ThreadSanitizer notices when they do not.
struct silent_sync : curfew::std_sync {
  static inline std::atomic<const char*> point{nullptr};
  static inline std::atomic<int> stage{0};  // 1: somebody is there, 2: may go on
  static inline constinit thread_local bool held_here = false;

  static void here(const char* tag) noexcept {
    if (!held_here || std::string_view(tag) != point.load(std::memory_order_relaxed)) return;
    held_here = false;
    stage.store(1, std::memory_order_relaxed);
    while (stage.load(std::memory_order_relaxed) != 2) std::this_thread::yield();
  }
  static void arm(const char* tag) noexcept {
    point.store(tag, std::memory_order_relaxed);
    stage.store(0, std::memory_order_relaxed);
  }
  static void await() noexcept {
    while (stage.load(std::memory_order_relaxed) != 1) std::this_thread::yield();
  }
  static void go_on() noexcept { stage.store(2, std::memory_order_relaxed); }
};

// The state looked open, then a whole epoch went by: only the operation that admits can show what preceded the opening.
template <class Fence>
void overtaken_entrant_sees_the_opening(const char* point) {
  watchdog dog("overtaken_entrant_sees_the_opening");
  Fence fence;
  int plain = 0;
  int seen = 0;
  std::atomic<bool> admitted{false};
  silent_sync::arm(point);
  std::thread entrant([&] {
    silent_sync::held_here = true;
    if (auto pass = fence.try_enter()) {
      seen = plain;
      admitted.store(true);
    }
  });
  silent_sync::await();
  fence.close();
  plain = 1;
  EXPECT_TRUE(fence.reopen());
  silent_sync::go_on();
  entrant.join();
  EXPECT_TRUE(admitted.load());
  EXPECT_EQ(seen, 1);
}

TEST(AdmissionFenceStripedRace, Rule5_AnOvertakenEntrantSeesWhatPrecededTheOpening) {
  overtaken_entrant_sees_the_opening<curfew::basic_admission_fence<silent_sync>>("fence.enter.checked");
}

TEST(AdmissionFenceCompactRace, Rule5_AnOvertakenEntrantSeesWhatPrecededTheOpening) {
  overtaken_entrant_sees_the_opening<curfew::basic_compact_admission_fence<silent_sync>>("compact.enter.checked");
}

// Somebody leaves after the harvest has passed its stripe, and the closer is then the one who finds the fence empty.
TEST(AdmissionFenceStripedRace, Rule5_ACloserThatIsTheLastSeesWhatLeaversWrote) {
  watchdog dog("Rule5_ACloserThatIsTheLastSeesWhatLeaversWrote");
  curfew::basic_admission_fence<silent_sync> fence;
  auto pass = fence.enter();
  int plain = 0;
  int seen = 0;
  silent_sync::arm("fence.close.harvested");
  std::thread closer([&] {
    silent_sync::held_here = true;
    if (fence.drain_for(0s)) seen = plain;
  });
  silent_sync::await();
  plain = 1;
  pass.release();
  silent_sync::go_on();
  closer.join();
  EXPECT_EQ(seen, 1);
}

// --- fork -----------------------------------------------------------------------------------------------------------

// Forked while another thread holds the lot's lock, which the child must be able to take all the same.
TYPED_TEST(AdmissionFenceRace, Rule11_AChildSurvivesALotThatWasLocked) {
  auto fence = std::make_unique<TypeParam>();
  auto pass = fence->enter();
  auto other = pass.clone();
  std::jthread drainer;
  park enlisted("drain.await.enlisted");
  drainer = std::jthread([&] { fence->drain_for(patience); });
  ASSERT_TRUE(enlisted.wait_arrived());  // enlisted, with the lock held
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    fence->reset_after_fork_in_child(1);
    pass.release();
    const bool drained = static_cast<bool>(fence->drain_for(0s));
    fence.reset();
    ::_exit(drained ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  enlisted.open();
  pass.release();
  other.release();
  drainer.join();
}

// --- the lot on its own ---------------------------------------------------------------------------------------------

TEST(Lot, ParksUntilThePredicateHolds) {
  watchdog dog("Lot");
  using lot = curfew::detail::lot<park_sync>;
  static constinit lot place;
  int key = 0;
  std::atomic<int> value{0};
  std::jthread sleeper;
  park enlisted("lot.park.enlisted", "", 2);
  sleeper = std::jthread([&] { EXPECT_TRUE(place.park(&key, [&] { return value.load() == 2; })); });
  ASSERT_TRUE(enlisted.wait_arrived(1));
  enlisted.open();
  value.store(1);
  place.unpark_all(&key);  // looks again and goes back to sleep
  value.store(2);
  place.unpark_all(&key);
  sleeper.join();
}

TEST(Lot, GivesUpAtItsDeadline) {
  static constinit curfew::detail::lot<park_sync> place;
  int key = 0;
  const auto never = [] { return false; };
  EXPECT_FALSE(place.park(&key, never, std::chrono::steady_clock::time_point::min()));
  EXPECT_FALSE(place.park(&key, never, std::chrono::steady_clock::now() + 1ms));
  EXPECT_TRUE(place.park(
      &key, [] { return true; }, std::chrono::steady_clock::time_point::min()));
}

}  // namespace
