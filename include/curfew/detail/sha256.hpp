// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// SHA-256 (FIPS 180-4) of a string in memory, for names that must come out the same in every process. Not meant for
/// secrets: nothing here is hardened against timing, and nothing is wiped.

#ifndef CURFEW_DETAIL_SHA256_HPP
#define CURFEW_DETAIL_SHA256_HPP

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <curfew/detail/config.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// The fractional parts of the cube roots of the first 64 primes, as the standard tabulates them.
inline constexpr std::array<std::uint32_t, 64> sha256_round_constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/// The eight words of the digest, most significant first. Constant expression capable; linear in the length.
constexpr std::array<std::uint32_t, 8> sha256(std::string_view text) noexcept {
  std::array<std::uint32_t, 8> hash{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const std::uint64_t bits = static_cast<std::uint64_t>(text.size()) * 8;
  const std::size_t blocks = (text.size() + 8) / 64 + 1;  // the text, the 0x80 mark, and eight bytes of length

  // Byte `at` of the padded message, which is never built.
  const auto padded = [&](std::size_t at) -> std::uint32_t {
    if (at < text.size()) return static_cast<unsigned char>(text[at]);
    if (at == text.size()) return 0x80;
    const std::size_t from_end = blocks * 64 - 1 - at;
    return from_end < 8 ? static_cast<std::uint32_t>((bits >> (8 * from_end)) & 0xff) : 0;
  };

  for (std::size_t block = 0; block < blocks; ++block) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) {
      const std::size_t at = block * 64 + i * 4;
      w[i] = padded(at) << 24 | padded(at + 1) << 16 | padded(at + 2) << 8 | padded(at + 3);
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = hash;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t big1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t t1 = h + big1 + ((e & f) ^ (~e & g)) + sha256_round_constants[i] + w[i];
      const std::uint32_t big0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t t2 = big0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1;
      d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<std::uint32_t, 8> mixed{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) hash[i] += mixed[i];
  }
  return hash;
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SHA256_HPP
