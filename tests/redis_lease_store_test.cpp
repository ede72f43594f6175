// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// redis_lease_store against a redis-server that each test starts for itself on a free loopback port, restarts, stops
/// and kills. Leases that have to lapse live for milliseconds and are watched until they have.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/sandbox/aio.hpp>
#include <curfew/sandbox/redis_lease_store.hpp>

#include <tests/support/fake_backend.hpp>
#include <tests/support/park.hpp>
#include <tests/support/redis_server.hpp>

namespace {

using namespace curfew::sandbox;
using namespace std::chrono_literals;
using curfew_test::eventually;
using curfew_test::redis_server;
using curfew_test::start_gate;
using curfew_test::watchdog;

static_assert(lease_store<redis_lease_store>);

struct RedisLeaseStore : ::testing::Test {
  redis_server server;
  redis_options options{.port = server.port()};
  redis_lease_store store{options};
  const watchdog dog{"redis"};

  bool lapses(const std::string& id) {
    return eventually([&] { return !store.owner(id); });
  }
};

// ---- the contract of a store

TEST_F(RedisLeaseStore, TakeIsTheAcquireSideAndTakesFromAPeer) {
  EXPECT_TRUE(store.take("x", "a", 60s));
  EXPECT_EQ(store.owner("x"), "a");
  EXPECT_TRUE(store.take("x", "b", 60s));
  EXPECT_EQ(store.owner("x"), "b");
  EXPECT_EQ(store.owner("y"), std::nullopt);
}

TEST_F(RedisLeaseStore, TakeIsRefusedOnlyWhileATeardownMarkIsInForce) {
  ASSERT_TRUE(store.claim("x", "a", 60s, true));
  EXPECT_FALSE(store.take("x", "b", 60s));
  EXPECT_FALSE(store.take("x", "a", 60s));
  EXPECT_EQ(store.owner("x"), "a");
  ASSERT_TRUE(store.claim("y", "a", 1ms, true));
  EXPECT_TRUE(lapses("y"));
  EXPECT_TRUE(store.take("y", "b", 60s)) << "a lapsed mark is no mark";
}

TEST_F(RedisLeaseStore, ClaimOnlyWhenUnownedOrMine) {
  EXPECT_TRUE(store.claim("x", "a", 60s, false));
  EXPECT_FALSE(store.claim("x", "b", 60s, false));
  EXPECT_FALSE(store.claim("x", "b", 60s, true));
  EXPECT_TRUE(store.take("x", "a", 60s)) << "a refused claim sets no mark";
  EXPECT_TRUE(store.claim("x", "a", 1ms, true));
  EXPECT_TRUE(lapses("x"));
  EXPECT_TRUE(store.claim("x", "b", 60s, false));
}

TEST_F(RedisLeaseStore, AClaimWithoutDestroyingNeverClearsTheMark) {
  ASSERT_TRUE(store.claim("x", "a", 60s, true));
  EXPECT_TRUE(store.claim("x", "a", 60s, false));
  EXPECT_FALSE(store.take("x", "b", 60s));
}

TEST_F(RedisLeaseStore, RenewIsThreeWayKeepsTheMarkAndExtends) {
  EXPECT_EQ(store.renew("x", "a", 60s), renewal::lapsed);
  EXPECT_EQ(store.owner("x"), std::nullopt) << "a renewal makes no lease";
  ASSERT_TRUE(store.claim("x", "a", 60s, true));
  EXPECT_EQ(store.renew("x", "b", 1ms), renewal::lost);
  EXPECT_EQ(store.renew("x", "a", 60s), renewal::renewed);
  EXPECT_FALSE(store.take("x", "b", 60s)) << "the mark is kept";
  EXPECT_EQ(store.renew("x", "a", 1ms), renewal::renewed);
  EXPECT_TRUE(lapses("x")) << "the new time counts";
  EXPECT_EQ(store.renew("x", "a", 60s), renewal::lapsed);
}

TEST_F(RedisLeaseStore, ReleaseClearsLeaseAndMarkButOnlyMine) {
  ASSERT_TRUE(store.claim("x", "a", 60s, true));
  store.release("x", "b");
  EXPECT_FALSE(store.take("x", "b", 60s));
  store.release("x", "a");
  EXPECT_EQ(store.owner("x"), std::nullopt);
  EXPECT_TRUE(store.take("x", "b", 60s));
  store.release("none", "a");
}

TEST_F(RedisLeaseStore, NamesAreTakenAsTheyAre) {
  for (const std::string& who : {std::string("own:"), std::string("del:x"), std::string("a\0b\r\n", 5), std::string(),
                                 std::string(300, 'w'), std::string("\xff\"' .. redis")}) {
    ASSERT_TRUE(store.claim("i:" + who, who, 60s, false));
    EXPECT_EQ(store.owner("i:" + who), who);
    EXPECT_EQ(store.renew("i:" + who, who, 60s), renewal::renewed);
    EXPECT_EQ(store.renew("i:" + who, who + "x", 60s), renewal::lost);
    store.release("i:" + who, who);
    EXPECT_EQ(store.owner("i:" + who), std::nullopt);
  }
}

TEST_F(RedisLeaseStore, TimesToLiveAtTheEdges) {
  EXPECT_TRUE(store.take("tiny", "a", 1ns));
  EXPECT_TRUE(lapses("tiny"));
  EXPECT_TRUE(store.take("none", "a", 0ns));
  EXPECT_TRUE(lapses("none"));
  EXPECT_TRUE(store.take("long", "a", std::chrono::nanoseconds::max()));
  EXPECT_EQ(store.owner("long"), "a");
}

TEST_F(RedisLeaseStore, PrefixesKeepFleetsApart) {
  options.key_prefix = "other:";
  redis_lease_store other(options);
  EXPECT_TRUE(store.claim("x", "a", 60s, false));
  EXPECT_TRUE(other.claim("x", "b", 60s, true));
  EXPECT_EQ(store.owner("x"), "a");
}

// ---- several at once

TEST_F(RedisLeaseStore, OfEightClaimsAtOnceOneWins) {
  for (int round = 0; round < 20; ++round) {
    const std::string id = "x" + std::to_string(round);
    std::atomic<int> winners{0};
    start_gate together(8);
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<redis_lease_store>> stores;
    for (int i = 0; i < 8; ++i) stores.push_back(std::make_unique<redis_lease_store>(options));
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&, i] {
        stores[static_cast<std::size_t>(i)]->owner(id);  // connected before it counts
        together.arrive_and_wait();
        if (stores[static_cast<std::size_t>(i)]->claim(id, "w" + std::to_string(i), 60s, true)) ++winners;
      });
    for (std::thread& one : threads) one.join();
    EXPECT_EQ(winners.load(), 1);
  }
}

TEST_F(RedisLeaseStore, ManyThreadsShareOneStore) {
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string id = std::to_string(t) + "/" + std::to_string(i), who = "w" + id;
        if (store.take(id, who, 60s) && store.owner(id) == who && store.renew(id, who, 60s) == renewal::renewed)
          ++right;
      }
    });
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(right.load(), 300);
}

// ---- a server that is not there, restarts, hangs

TEST_F(RedisLeaseStore, WithoutAServerEveryCallThrows) {
  store.take("x", "a", 60s);
  server.kill();  // SIGPIPE has its default action here
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(store.take("x", "a", 60s), lease_store_error);
    EXPECT_THROW(store.claim("x", "a", 60s, true), lease_store_error);
    EXPECT_THROW(store.renew("x", "a", 60s), lease_store_error);
    EXPECT_THROW(store.release("x", "a"), lease_store_error);
    EXPECT_THROW(store.owner("x"), lease_store_error);
  }
}

TEST_F(RedisLeaseStore, AfterARestartLeasesHaveLapsedAndAreClaimedAgainByTheirOwner) {
  ASSERT_TRUE(store.take("x", "a", 60s));
  server.kill();
  server.start();
  ASSERT_TRUE(server.running());
  EXPECT_EQ(store.renew("x", "a", 60s), renewal::lapsed) << "lapsed, not lost; and the old connection is no error";
  EXPECT_TRUE(store.claim("x", "a", 60s, false));
  EXPECT_EQ(store.owner("x"), "a");
}

TEST_F(RedisLeaseStore, AServerThatHangsIsAnErrorAndItsLateAnswerIsNobodys) {
  options.timeout = 100ms;
  redis_lease_store impatient(options);
  ASSERT_TRUE(impatient.take("y", "b", 60s));
  server.signal(SIGSTOP);
  EXPECT_THROW(impatient.take("x", "a", 60s), lease_store_error);
  EXPECT_THROW(impatient.owner("y"), lease_store_error);
  server.signal(SIGCONT);
  EXPECT_EQ(store.owner("y"), "b");
  EXPECT_TRUE(eventually([&] {
    try {
      return impatient.owner("y") == "b";
    } catch (const lease_store_error&) {
      return false;
    }
  }));
  EXPECT_EQ(impatient.owner("none"), std::nullopt) << "the answer to this question";
}

TEST_F(RedisLeaseStore, AnotherTypeUnderTheKeyIsAnError) {
  options.key_prefix = "";
  redis_lease_store bare(options);
  const std::unique_ptr<redisContext, void (*)(redisContext*)> raw(::redisConnect("127.0.0.1", server.port()),
                                                                   ::redisFree);
  ::freeReplyObject(::redisCommand(raw.get(), "LPUSH list 1"));
  EXPECT_THROW(bare.take("list", "a", 60s), lease_store_error);
  EXPECT_THROW(bare.owner("list"), lease_store_error);
  EXPECT_TRUE(bare.take("x", "a", 60s)) << "and the next call works";
}

TEST(RedisLeaseStoreOptions, Passwords) {
  redis_server server({"--requirepass", "s3cret"});
  const watchdog dog("password");
  redis_options options{.port = server.port()};
  EXPECT_THROW(redis_lease_store(options).owner("x"), lease_store_error);
  options.password = "wrong";
  EXPECT_THROW(redis_lease_store(options).owner("x"), lease_store_error);
  options.password = "s3cret";
  EXPECT_TRUE(redis_lease_store(options).take("x", "a", 60s));
  options.username = "default";
  EXPECT_EQ(redis_lease_store(options).owner("x"), "a");
}

TEST(RedisLeaseStoreOptions, BadOnesAreRefused) {
  EXPECT_THROW(redis_lease_store({.port = 0}), std::invalid_argument);
  EXPECT_THROW(redis_lease_store({.port = 65536}), std::invalid_argument);
  EXPECT_THROW(redis_lease_store({.host = ""}), std::invalid_argument);
  EXPECT_THROW(redis_lease_store({.timeout = 0ms}), std::invalid_argument);
}

// ---- other processes

TEST(RedisLeaseStoreProcess, AnOwnerThatWasStoppedTooLongFindsOut) {
  redis_server server;
  const redis_options options{.port = server.port()};
  const pid_t owner = ::fork();
  if (owner == 0) {
    redis_lease_store mine(options);
    if (!mine.take("x", "owner", 50ms)) ::_exit(10);
    ::raise(SIGSTOP);
    ::_exit(mine.renew("x", "owner", 60s) == renewal::lost && mine.owner("x") == "peer" ? 0 : 11);
  }
  const watchdog dog("stopped owner");
  int status = 0;
  ASSERT_EQ(::waitpid(owner, &status, WUNTRACED), owner);
  ASSERT_TRUE(WIFSTOPPED(status));
  redis_lease_store store(options);
  EXPECT_TRUE(eventually([&] { return store.claim("x", "peer", 60s, false); }));
  ::kill(owner, SIGCONT);
  ASSERT_EQ(::waitpid(owner, &status, 0), owner);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(RedisLeaseStoreProcess, AChildDoesNotUseItsParentsConnections) {
  redis_server server;
  redis_lease_store store({.port = server.port()});
  ASSERT_TRUE(store.take("x", "p", 60s));
  const std::unique_ptr<redisContext, void (*)(redisContext*)> raw(::redisConnect("127.0.0.1", server.port()),
                                                                   ::redisFree);
  const auto connections = [&] {
    redisReply* const answer = static_cast<redisReply*>(::redisCommand(raw.get(), "CLIENT LIST"));
    const auto lines = std::count(answer->str, answer->str + answer->len, '\n');
    ::freeReplyObject(answer);
    return lines;
  };
  ASSERT_EQ(connections(), 2);
  int used[2], seen[2];
  ASSERT_EQ(::pipe(used), 0);
  ASSERT_EQ(::pipe(seen), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(seen[1]);
    const bool right = store.owner("x") == "p";
    char byte = 0;
    const bool told = ::write(used[1], "x", 1) == 1 && ::read(seen[0], &byte, 1) == 0;
    ::_exit(right && told ? 0 : 1);
  }
  const watchdog dog("fork");
  char byte = 0;
  EXPECT_EQ(::read(used[0], &byte, 1), 1);
  EXPECT_EQ(connections(), 3) << "the child has one of its own";
  EXPECT_EQ(store.owner("x"), "p") << "and the parent still has its";
  for (const int fd : {seen[0], seen[1], used[0], used[1]}) ::close(fd);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// ---- with providers: two processes' worth of them, one store

TEST_F(RedisLeaseStore, TwoProvidersShareSandboxesAndNeitherEndsTheOthers) {
  const auto world = std::make_shared<curfew_test::fake_backend>();
  const auto make = [&](const char* name) {
    aio_options named;
    named.owner_id = name;
    return std::make_unique<aio_provider<curfew_test::fake_backend, redis_lease_store>>(
        world, named, std::make_shared<redis_lease_store>(options));
  };
  auto a = make("a"), b = make("b");
  lease mine = a->acquire({"u", "t"});
  const std::string id = mine.id();
  EXPECT_EQ(store.owner(id), "a");
  {
    const lease theirs = b->acquire({"u", "t"});
    EXPECT_EQ(theirs.id(), id) << "found, and taken over";
    EXPECT_EQ(store.owner(id), "b");
    EXPECT_EQ(a->shutdown(), curfew::teardown_status::completed);
    EXPECT_TRUE(world->runs(id)) << "it was the other's by then";
  }
  EXPECT_EQ(b->shutdown(), curfew::teardown_status::completed);
  EXPECT_FALSE(world->runs(id));
  EXPECT_EQ(store.owner(id), std::nullopt);
}

}  // namespace
