// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// HTTP/1.1 messages: a request as text, and a reader of responses that is given bytes as they come. No I/O. The reader
/// is strict where leniency lets two parties see two different messages: one way to end a line, one way to say where a
/// body ends, no folded headers.

#ifndef CURFEW_DETAIL_HTTP_MESSAGE_HPP
#define CURFEW_DETAIL_HTTP_MESSAGE_HPP

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/http_types.hpp>
#include <curfew/detail/http_url.hpp>
#include <curfew/detail/text.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// What a server sent is no response, or not a whole one.
class malformed_response : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr std::size_t most_http_head = std::size_t{64} << 10;  ///< of all heads and trailers of one exchange
inline constexpr std::size_t most_http_body = std::size_t{8} << 20;

inline bool is_http_token(std::string_view text) noexcept {
  constexpr std::string_view marks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [marks](char c) {
    return is_ascii_alnum(c) || marks.find(c) != std::string_view::npos;
  });
}

inline bool is_header_value(std::string_view text) noexcept {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == '\x7f'; });
}

/// Throws std::invalid_argument for a method or a header that could be read as more than it is, and for the headers
/// that the transport writes itself.
inline void check_request(const sandbox::http_request& request, const char* who) {
  const auto require = [who](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string(who) + ": " + what);
  };
  require(is_http_token(request.method), "bad method");
  require(request.timeout > std::chrono::milliseconds::zero(), "the timeout is not positive");
  for (const auto& [name, value] : request.headers) {
    require(is_http_token(name), "bad header name");
    require(is_header_value(value), "a control character in a header");
    for (const char* const own : {"host", "connection", "content-length", "transfer-encoding"})
      require(!equal_ignoring_case(name, own),
              "Host, Connection, Content-Length and Transfer-Encoding are not to be set");
  }
}

/// A checked request as it goes over the wire; the server closes the connection after its response.
inline std::string request_text(const sandbox::http_request& request, const http_url& url) {
  std::string text = request.method + " " + url.target + " HTTP/1.1\r\nHost: " + url.authority + "\r\n";
  for (const auto& [name, value] : request.headers) text.append(name).append(": ").append(value).append("\r\n");
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT" || request.method == "PATCH")
    text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  return text.append("Connection: close\r\n\r\n").append(request.body);
}

/// Reads one response.
///
///   head -> head          an interim response (1xx) was skipped
///   head -> done          a status or a method without a body
///   head -> sized         Content-Length
///   head -> until_end     neither a length nor chunks: the end of the connection ends the body
///   head -> chunk_size -> chunk -> chunk_end -> chunk_size ... -> trailer -> done
class response_reader {
 public:
  explicit response_reader(std::string_view method) : bodyless_(method == "HEAD") {}

  /// Takes what has come; true once the response is complete, and what comes later is not looked at. Throws
  /// malformed_response.
  bool feed(std::string_view bytes) {
    input_.append(bytes);
    while (step()) {
    }
    input_.erase(0, std::exchange(at_, 0));
    return state_ == state::done;
  }

  /// Nothing more will come. Throws malformed_response when something is missing.
  void finish() {
    if (state_ == state::until_end) state_ = state::done;
    require(state_ == state::done, heads_ == 0 && input_.empty() ? "closed without a response" : "half a response");
  }

  /// The complete response.
  sandbox::http_response take() { return std::move(response_); }

 private:
  enum class state : unsigned char { head, sized, until_end, chunk_size, chunk, chunk_end, trailer, done };

  static void require(bool holds, const char* what) {
    if (!holds) throw malformed_response(what);
  }

  /// The next line without its end, once it is there. Counted against the bound on heads, also while it is incomplete.
  std::optional<std::string_view> line() {
    const std::size_t end = input_.find('\n', at_);
    const std::size_t size = std::min(end, input_.size()) - at_;
    require(heads_ + size <= most_http_head, "headers too long");
    if (end == std::string::npos) return {};
    require(end > at_ && input_[end - 1] == '\r', "a line that does not end in CR LF");
    const std::string_view text = std::string_view(input_).substr(at_, size - 1);
    heads_ += size + 1;
    at_ = end + 1;
    return text;
  }

  /// One step on; false when it needs more bytes or is done.
  bool step() {
    switch (state_) {
      case state::head:
        return head_line();
      case state::sized:
      case state::chunk:
        return data();
      case state::until_end:
        require(response_.body.size() + input_.size() - at_ <= most_http_body, "body too long");
        response_.body.append(input_, at_);
        at_ = input_.size();
        return false;
      case state::chunk_size:
        return chunk_size();
      case state::chunk_end: {
        const auto text = line();
        require(!text || text->empty(), "a chunk that is longer than its size");
        if (text) {
          state_ = state::chunk_size;
          heads_ -= 2;
        }
        return text.has_value();
      }
      case state::trailer: {
        const auto text = line();
        if (text && text->empty()) state_ = state::done;
        return text.has_value() && state_ != state::done;
      }
      case state::done:
        return false;
    }
    return false;
  }

  bool head_line() {
    const auto text = line();
    if (!text) return false;
    if (response_.status == 0) {
      status_line(*text);
    } else if (!text->empty()) {
      header(*text);
    } else {
      begin_body();
    }
    return true;
  }

  void status_line(std::string_view text) {
    const bool shaped = text.size() >= 12 && (text.starts_with("HTTP/1.1 ") || text.starts_with("HTTP/1.0 ")) &&
                        (text.size() == 12 || text[12] == ' ') && is_header_value(text);
    int status = 0;
    if (shaped) std::from_chars(text.data() + 9, text.data() + 12, status);
    require(shaped && status >= 100, "a malformed status line");
    response_.status = status;
  }

  void header(std::string_view text) {
    const std::size_t colon = text.find(':');
    require(colon != std::string_view::npos && is_http_token(text.substr(0, colon)), "a malformed header");
    const std::string_view value = trimmed(text.substr(colon + 1));
    require(is_header_value(value), "a control character in a header");
    response_.headers.emplace_back(text.substr(0, colon), value);
  }

  void begin_body() {
    if (response_.status < 200) {
      require(response_.status != 101, "an upgrade that was not asked for");
      response_ = {};
      return;
    }
    std::optional<std::size_t> length;
    bool chunked = false;
    for (const auto& [name, value] : response_.headers) {
      if (equal_ignoring_case(name, "transfer-encoding")) {
        require(!chunked && equal_ignoring_case(value, "chunked"), "an unknown transfer encoding");
        chunked = true;
      } else if (equal_ignoring_case(name, "content-length")) {
        const std::size_t size = number(value, 10, "a malformed Content-Length");
        require(!length || *length == size, "two lengths that differ");
        length = size;
      }
    }
    require(!(chunked && length), "both a length and chunks");
    left_ = length.value_or(0);
    if (bodyless_ || response_.status == 204 || response_.status == 304 || (length && left_ == 0)) {
      state_ = state::done;
    } else {
      require(left_ <= most_http_body, "body too long");
      state_ = chunked ? state::chunk_size : length ? state::sized : state::until_end;
    }
  }

  bool chunk_size() {
    const auto text = line();
    if (!text) return false;
    left_ = number(trimmed(text->substr(0, text->find(';'))), 16, "a malformed chunk size");
    require(left_ <= most_http_body - response_.body.size(), "body too long");
    state_ = left_ != 0 ? state::chunk : state::trailer;
    // Small chunks are a server's right: what frames them does not count as a head, but for the longest line.
    if (left_ != 0) heads_ -= text->size() + 2;
    return true;
  }

  bool data() {
    const std::size_t size = std::min(left_, input_.size() - at_);
    response_.body.append(input_, at_, size);
    at_ += size;
    left_ -= size;
    if (left_ != 0) return false;
    state_ = state_ == state::chunk ? state::chunk_end : state::done;
    return true;
  }

  static std::size_t number(std::string_view text, int base, const char* complaint) {
    std::size_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    require(error != std::errc::result_out_of_range, "body too long");
    require(!text.empty() && error == std::errc() && stop == text.data() + text.size(), complaint);
    return value;
  }

  sandbox::http_response response_;
  std::string input_;
  std::size_t at_ = 0;     // what of it has been read
  std::size_t left_ = 0;   // of the body, or of the chunk
  std::size_t heads_ = 0;  // bytes of heads and trailers so far
  const bool bodyless_;
  state state_ = state::head;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_HTTP_MESSAGE_HPP
