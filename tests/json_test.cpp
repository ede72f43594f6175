// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>

#include <curfew/detail/json.hpp>

namespace {

using namespace std::string_literals;
using curfew::detail::json_value;
using curfew::detail::json_writer;
using curfew::detail::parse_json;
using curfew::sandbox::backend_error;
using curfew::sandbox::backend_fault;
using kind = json_value::kind;

testing::AssertionResult refused(const std::string& text) {
  try {
    parse_json(text);
  } catch (const backend_error& e) {
    if (e.fault() == backend_fault::bad_response) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "another fault";
  }
  return testing::AssertionFailure() << "read: " << text;
}

std::string nested(unsigned depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(Json, ReadsEveryKind) {
  const auto v = parse_json(
      " {\"n\" : null, \"t\":true,\"f\":false , \"i\":-12, \"s\":\"x\", \"a\":[1, [], {}],\r\n\t\"o\":{\"k\":\"v\"}} ");
  EXPECT_EQ(v.type(), kind::object);
  EXPECT_EQ(v.at("n").type(), kind::null);
  EXPECT_TRUE(v.at("t").boolean());
  EXPECT_FALSE(v.at("f").boolean());
  EXPECT_EQ(v.at("i").integer(), -12);
  EXPECT_EQ(v.at("s").string(), "x");
  ASSERT_EQ(v.at("a").array().size(), 3U);
  EXPECT_EQ(v.at("a").array()[0].integer(), 1);
  EXPECT_TRUE(v.at("a").array()[1].array().empty());
  EXPECT_EQ(v.at("o").at("k").string(), "v");
  EXPECT_EQ(parse_json("7").integer(), 7);
  EXPECT_EQ(parse_json("\"\"").string(), "");
}

TEST(Json, TypedAccessRefusesEverythingElse) {
  const auto v = parse_json(R"({"s":"x","i":1,"f":1.5,"e":1e3,"big":9223372036854775808})");
  EXPECT_THROW(v.at("s").integer(), backend_error);
  EXPECT_THROW(v.at("i").string(), backend_error);
  EXPECT_THROW(v.at("i").boolean(), backend_error);
  EXPECT_THROW(v.at("f").integer(), backend_error);
  EXPECT_THROW(v.at("e").integer(), backend_error);
  EXPECT_THROW(v.at("big").integer(), backend_error);
  EXPECT_THROW(v.at("none"), backend_error);
  EXPECT_THROW(v.at("s").at("x"), backend_error);
  EXPECT_THROW(v.array(), backend_error);
  EXPECT_EQ(v.text_or_empty("s"), "x");
  EXPECT_EQ(v.text_or_empty("i"), "");
  EXPECT_EQ(v.text_or_empty("none"), "");
  EXPECT_EQ(parse_json("3").text_or_empty("s"), "");
}

TEST(Json, Integers) {
  EXPECT_EQ(parse_json("9223372036854775807").integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse_json("-9223372036854775808").integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parse_json("0").integer(), 0);
  EXPECT_EQ(parse_json("-0").integer(), 0);
}

TEST(Json, EscapesAndSurrogates) {
  EXPECT_EQ(parse_json(R"("\"\\\/\b\f\n\r\t")").string(), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(parse_json(R"("\u0041\u00e9\u20AC")").string(), "A\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(parse_json(R"("\ud83d\ude00")").string(), "\xf0\x9f\x98\x80");
  EXPECT_EQ(parse_json(R"("\uD800\uDC00\uDBFF\uDFFF")").string(), "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
  EXPECT_EQ(parse_json(R"("a\u0000b")").string(), "a\0b"s);
  EXPECT_EQ(parse_json("\"\xc3\xa9\"").string(), "\xc3\xa9");
  for (const char* bad : {R"("\x")", R"("\")", R"("\u12")", R"("\u12g4")", R"("\u+123")", R"("\ud800")", R"("\ud800x")",
                          R"("\ud800\u0041")", R"("\udc00")", R"("\ud800\ud800")", R"("\)"})
    EXPECT_TRUE(refused(bad));
}

TEST(Json, RefusesWhatIsNotUtf8) {
  for (const char* bad : {"\"\x80\"", "\"\xc3\"", "\"\xc0\xaf\"", "\"\xe0\x80\xaf\"", "\"\xed\xa0\x80\"",
                          "\"\xf4\x90\x80\x80\"", "\"\xff\"", "\"\xe2\x82\"", "\"\xf8\x88\x80\x80\x80\""})
    EXPECT_TRUE(refused(bad));
}

TEST(Json, RefusesMalformedText) {
  for (const char* bad : {"",
                          " ",
                          "nul",
                          "True",
                          "{",
                          "}",
                          "[",
                          "]",
                          "[1",
                          "[1,",
                          "[1,]",
                          "[,1]",
                          "{\"a\"}",
                          "{\"a\":}",
                          "{\"a\":1,}",
                          "{a:1}",
                          "{\"a\":1 \"b\":2}",
                          "[1 2]",
                          "\"a",
                          "'a'",
                          "01",
                          "-",
                          "+1",
                          ".5",
                          "1.",
                          "1e",
                          "1e+",
                          "--1",
                          "0x1",
                          "1_0",
                          "NaN",
                          "Infinity",
                          "// c\n1",
                          "[1]]",
                          "{}{}",
                          "1 2",
                          "truefalse",
                          "\"a\nb\"",
                          "\"a\tb\""})
    EXPECT_TRUE(refused(bad));
  EXPECT_TRUE(refused("1\0"s));
  EXPECT_TRUE(refused("\0"s));
  EXPECT_TRUE(refused("[1\0]"s));
}

TEST(Json, RefusesTwoMembersOfOneName) {
  EXPECT_TRUE(refused(R"({"a":1,"a":2})"));
  EXPECT_TRUE(refused(R"({"a":1,"\u0061":2})"));
  EXPECT_NO_THROW(parse_json(R"([{"a":1},{"a":2}])"));
}

TEST(Json, DepthIsBoundedAt64) {
  EXPECT_NO_THROW(parse_json(nested(64)));
  EXPECT_TRUE(refused(nested(65)));
  EXPECT_TRUE(refused(std::string(1'000'000, '[')));
  std::string objects;
  for (int i = 0; i < 65; ++i) objects += "{\"a\":";
  EXPECT_TRUE(refused(objects + "1" + std::string(65, '}')));
}

TEST(Json, EveryPrefixOfATextIsRefused) {
  const std::string text = R"({"a":[1.5e3,"\u00e9\n",{"b":null}],"c":true})";
  for (std::size_t n = 0; n < text.size(); ++n) EXPECT_TRUE(refused(text.substr(0, n))) << n;
  EXPECT_NO_THROW(parse_json(text));
}

TEST(Json, WhatIsWrittenIsReadBack) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "\xc3\xa9\xf0\x9f\x98\x80";
  const std::map<std::string, std::string> inner{{"k\"1", "v\\"}, {"", all}};
  const std::string text = json_writer().add("name\n", all).add("n", 42).add("m", inner).str();
  for (const char c : text) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << "control characters are escaped";
  const auto back = parse_json(text);
  EXPECT_EQ(back.at("name\n").string(), all);
  EXPECT_EQ(back.at("n").integer(), 42);
  EXPECT_EQ(back.at("m").at("").string(), all);
  EXPECT_EQ(back.at("m").at("k\"1").string(), "v\\");
  EXPECT_EQ(json_writer().str(), "{}");
  EXPECT_EQ(json_writer().add("m", std::map<std::string, std::string>{}).str(), R"({"m":{}})");
}

TEST(Json, WritingRefusesWhatIsNotUtf8) {
  EXPECT_THROW(json_writer().add("k", "\xff"), std::invalid_argument);
  EXPECT_THROW(json_writer().add("\xed\xa0\x80", "v"), std::invalid_argument);
}

}  // namespace
