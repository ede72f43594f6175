// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The vocabulary of the sandbox backends: the owner's identity, the errors, and what counts as bad input.

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <curfew/detail/sha256.hpp>
#include <curfew/sandbox/backend.hpp>

namespace {

using namespace curfew::sandbox;
using namespace std::chrono_literals;

std::string hex(std::string_view text) {
  std::string out;
  for (const std::uint32_t word : curfew::detail::sha256(text))
    for (int shift = 28; shift >= 0; shift -= 4) out += "0123456789abcdef"[word >> shift & 0xf];
  return out;
}

static_assert(curfew::detail::sha256("abc")[0] == 0xba7816bf, "the digest is a constant expression");

TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EveryLengthAroundTheBlockBoundary) {
  // The padding needs one more block from 56 bytes on; the answers are those of the reference implementation.
  EXPECT_EQ(hex(std::string(55, 'a')), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(hex(std::string(56, 'a')), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(hex(std::string(63, 'a')), "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
  EXPECT_EQ(hex(std::string(64, 'a')), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  EXPECT_EQ(hex(std::string(65, 'a')), "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0");
}

TEST(StableId, IsTheFirstSixteenDigitsOfTheDigest) {
  EXPECT_EQ(stable_id({"user", "thread"}), "4b8a99b5237474c4");
  EXPECT_EQ(stable_id({"user", "thread"}), hex("4:userthread").substr(0, 16));
  EXPECT_EQ(stable_id({"", ""}), hex("0:").substr(0, 16));
}

TEST(StableId, IsInjectiveBeforeHashing) {
  EXPECT_NE(stable_id({"ab", "c"}), stable_id({"a", "bc"}));
  EXPECT_NE(stable_id({"", "abc"}), stable_id({"abc", ""}));
  EXPECT_NE(stable_id({"1", "2:x"}), stable_id({"12:x", ""}));
}

TEST(StableId, TakesAnyBytes) {
  const owner_key zero{std::string("a\0b", 3), "t"};
  EXPECT_NE(stable_id(zero), stable_id({"a", "t"}));
  EXPECT_EQ(stable_id({"\xc3\xa4", "\xff"}).size(), 16u);
}

TEST(BackendError, CarriesEverythingAndKnowsWhatMayBeRetried) {
  const backend_error plain(backend_fault::spawn_failed, "no more processes");
  EXPECT_STREQ(plain.what(), "no more processes");
  EXPECT_EQ(plain.fault(), backend_fault::spawn_failed);
  EXPECT_EQ(plain.status(), 0);
  EXPECT_TRUE(plain.leftover().empty());

  const backend_error full(backend_fault::ambiguous, "lost", "attempt:1", 503);
  EXPECT_EQ(full.leftover(), "attempt:1");
  EXPECT_EQ(full.status(), 503);

  for (const auto fault : {backend_fault::unavailable, backend_fault::timed_out, backend_fault::ambiguous})
    EXPECT_TRUE(backend_error(fault, "").retryable());
  for (const auto fault : {backend_fault::rejected, backend_fault::conflict, backend_fault::not_found,
                           backend_fault::bad_response, backend_fault::spawn_failed})
    EXPECT_FALSE(backend_error(fault, "").retryable());
  EXPECT_TRUE(backend_error(backend_fault::rejected, "slow down", {}, 429).retryable());
}

TEST(BackendError, IsARuntimeErrorThatCanBeThrown) {
  static_assert(std::is_base_of_v<std::runtime_error, backend_error>);
  static_assert(std::is_base_of_v<std::runtime_error, capacity_exceeded>);
  static_assert(std::is_base_of_v<std::runtime_error, identity_conflict>);
  EXPECT_THROW(throw identity_conflict("two owners"), std::runtime_error);
}

TEST(CapacityExceeded, SaysHowManyAndWhen) {
  const capacity_exceeded error(capacity_reason::timed_out, 3, 30s);
  EXPECT_EQ(error.reason(), capacity_reason::timed_out);
  EXPECT_EQ(error.limit(), 3u);
  EXPECT_EQ(error.retry_after(), 30s);
  EXPECT_NE(std::string(error.what()).find("3"), std::string::npos);
  EXPECT_NE(std::string(error.what()).find("timed out"), std::string::npos);
}

struct smallest {
  sandbox_info create(const create_request& request) { return {request.id, "none"}; }
  bool destroy(const std::string&) { return true; }
  liveness probe(const std::string&) { return liveness::unknown; }
  std::vector<sandbox_info> list() { return {}; }
};
struct without_probe {
  sandbox_info create(const create_request&);
  bool destroy(const std::string&);
  std::vector<sandbox_info> list();
};
struct destroys_silently : smallest {
  void destroy(const std::string&) {}
};
static_assert(backend<smallest>);
static_assert(!backend<without_probe>);
static_assert(!backend<destroys_silently>, "a destroy that cannot say whether it succeeded is no backend");
static_assert(!backend<const smallest>);

TEST(SandboxTypes, DefaultsAreThoseOfTheContract) {
  const list_budget budget;
  EXPECT_EQ(budget.max_pages, 10u);
  EXPECT_EQ(budget.max_items, 200u);
  EXPECT_EQ(budget.max_time, 15s);
  EXPECT_TRUE(listing{}.complete);
  EXPECT_EQ(create_request{}.time_to_live, 0s);
  EXPECT_LT((owner_key{"a", "z"}), (owner_key{"b", "a"}));
  EXPECT_FALSE(clock_fn{});
}

TEST(SandboxIds, AreOneSafePathComponent) {
  using curfew::detail::colon;
  using curfew::detail::is_sandbox_id;
  for (const char* good : {"a", "4b8a99b5237474c4", "A_b-c.d", "-x", "_", "0", "a..b"})
    EXPECT_TRUE(is_sandbox_id(good, colon::refused)) << good;
  EXPECT_TRUE(is_sandbox_id(std::string(128, 'x'), colon::refused));
  for (const char* bad : {"", ".", "..", ".x", "a/b", "/", "../x", "a b", "a\n", "a\\b", "\xc3\xa4", "a*", "a:b"})
    EXPECT_FALSE(is_sandbox_id(bad, colon::refused)) << bad;
  EXPECT_FALSE(is_sandbox_id(std::string(129, 'x'), colon::refused));
  EXPECT_FALSE(is_sandbox_id(std::string_view("a\0b", 3), colon::refused));
  EXPECT_TRUE(is_sandbox_id("attempt:1", colon::allowed));
}

TEST(SandboxEnvironment, BadNamesAndValuesAreNamed) {
  using curfew::detail::check_environment;
  EXPECT_NO_THROW(check_environment({{"A", ""}, {"_b9", "x=y\n"}}, "who"));
  for (const char* bad : {"", "1A", "A-B", "A=B", "A B", "\xc3\xa4"}) {
    try {
      check_environment({{bad, "x"}}, "who");
      ADD_FAILURE() << "accepted \"" << bad << '"';
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("who: "), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(bad), std::string::npos);
    }
  }
  EXPECT_THROW(check_environment({{"A", std::string("x\0y", 3)}}, "who"), std::invalid_argument);
  EXPECT_THROW(check_environment({{std::string("A\0B", 3), "x"}}, "who"), std::invalid_argument);
}

}  // namespace
