// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A transport for http and https by libcurl. One of the two headers of the kit that need a package, so it is not in
/// the umbrella: include it, and link CURL::libcurl. Where plain http will do, socket_transport needs nothing.

#ifndef CURFEW_SANDBOX_CURL_TRANSPORT_HPP
#define CURFEW_SANDBOX_CURL_TRANSPORT_HPP

#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <curl/curl.h>

#include <curfew/detail/config.hpp>
#include <curfew/detail/http_message.hpp>
#include <curfew/detail/http_private.hpp>
#include <curfew/detail/http_types.hpp>
#include <curfew/detail/http_url.hpp>
#include <curfew/detail/text.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Options of a curl_transport.
struct curl_options {
  std::string ca_file = {};  ///< PEM file of the authorities to trust instead of the system's
};

/// http and https. Certificates and host names are checked, and there is no way to turn that off. Redirects are
/// returned, not followed. A proxy named by the environment (`https_proxy`, `no_proxy` and the like) is used, except
/// for loopback and private hosts, which it could not reach. The timeout bounds the whole exchange; a body may have
/// eight MiB, the headers 64 KiB.
///
/// Thread safety: any number of threads; there is no state but the options. `sent()` of an error is true from the
/// moment the connection was ready for the request. No signals. Cost: a connection for each request.
class curl_transport {
 public:
  static constexpr bool speaks_https = true;

  /// \throws std::runtime_error when libcurl cannot be initialised
  explicit curl_transport(curl_options options = {}) : options_(std::move(options)) {
    static const CURLcode ready = ::curl_global_init(CURL_GLOBAL_DEFAULT);  // libcurl counts; it is never given back
    if (ready != CURLE_OK) throw std::runtime_error(std::string("curl_transport: ") + ::curl_easy_strerror(ready));
  }

  /// One exchange, within the time of the request; transport_error otherwise.
  http_response send(const http_request& request) const {
    detail::check_request(request, "curl_transport");
    const detail::http_url url = detail::parse_url(request.url, "curl_transport");
    const std::unique_ptr<CURL, void (*)(CURL*)> handle(::curl_easy_init(), ::curl_easy_cleanup);
    if (handle == nullptr) throw std::bad_alloc();
    curl_slist* list = nullptr;
    const auto add = [&list](const std::string& line) {
      curl_slist* const longer = ::curl_slist_append(list, line.c_str());
      if (longer == nullptr) ::curl_slist_free_all(list), throw std::bad_alloc();
      list = longer;
    };
    add("Expect:");  // no waiting for a server's permission to send a body
    bool typed = false;
    for (const auto& [name, value] : request.headers) {
      add(value.empty() ? name + ";" : name + ": " + value);
      typed = typed || detail::equal_ignoring_case(name, "content-type");
    }
    if (!typed) add("Content-Type:");  // libcurl would call it a form
    const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, ::curl_slist_free_all);

    const auto set = [&handle](CURLoption option, auto value) {
      if (const CURLcode code = ::curl_easy_setopt(handle.get(), option, value); code != CURLE_OK)
        throw std::invalid_argument(std::string("curl_transport: ") + ::curl_easy_strerror(code));
    };
    answer received;
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_HTTPHEADER, headers.get());
    if (!request.body.empty() || request.method == "POST" || request.method == "PUT" || request.method == "PATCH") {
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
      set(CURLOPT_POSTFIELDS, request.body.c_str());
    }
    if (request.method == "HEAD") set(CURLOPT_NOBODY, 1L);
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()));
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.timeout.count()));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_SSL_VERIFYPEER, 1L);
    set(CURLOPT_SSL_VERIFYHOST, 2L);
#if LIBCURL_VERSION_NUM >= 0x075500
    set(CURLOPT_PROTOCOLS_STR, "http,https");
#else
    set(CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    if (!options_.ca_file.empty()) set(CURLOPT_CAINFO, options_.ca_file.c_str());
    if (detail::is_private_host(url.host)) set(CURLOPT_PROXY, "");
    set(CURLOPT_WRITEFUNCTION, &take_body);
    set(CURLOPT_WRITEDATA, &received);
    set(CURLOPT_HEADERFUNCTION, &take_header);
    set(CURLOPT_HEADERDATA, &received);
#if defined(SOCK_CLOEXEC)
    set(CURLOPT_OPENSOCKETFUNCTION, &open_socket);
#endif

    const CURLcode code = ::curl_easy_perform(handle.get());
    long status = 0;
    curl_off_t ready = 0;
    ::curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
    ::curl_easy_getinfo(handle.get(), CURLINFO_PRETRANSFER_TIME_T, &ready);
    if (code != CURLE_OK) {
      const char* const why = received.refused != nullptr ? received.refused : ::curl_easy_strerror(code);
      throw transport_error("curl_transport: " + url.authority + ": " + why, ready > 0,
                            code == CURLE_OPERATION_TIMEDOUT);
    }
    received.response.status = static_cast<int>(status);
    return std::move(received.response);
  }

 private:
  struct answer {
    http_response response;
    std::size_t heads = 0;
    const char* refused = nullptr;
  };

  // Called by libcurl, which is C: nothing may be thrown through it. Taking less than was given ends the exchange.
  static std::size_t take_body(char* data, std::size_t, std::size_t size, void* to) noexcept {
    auto& got = *static_cast<answer*>(to);
    try {
      if (size > detail::most_http_body - got.response.body.size()) return got.refused = "body too long", size + 1;
      got.response.body.append(data, size);
      return size;
    } catch (const std::bad_alloc&) {
      return got.refused = "out of memory", size + 1;
    }
  }

  static std::size_t take_header(char* data, std::size_t, std::size_t size, void* to) noexcept {
    auto& got = *static_cast<answer*>(to);
    try {
      const std::string_view line = detail::trimmed({data, size});
      const std::size_t colon = line.find(':');
      if (size > detail::most_http_head - got.heads) return got.refused = "headers too long", size + 1;
      got.heads += size;
      if (line.starts_with("HTTP/"))
        got.response.headers.clear();  // what came before belongs to an interim response
      else if (colon != std::string_view::npos)
        got.response.headers.emplace_back(line.substr(0, colon), detail::trimmed(line.substr(colon + 1)));
      return size;
    } catch (const std::bad_alloc&) {
      return got.refused = "out of memory", size + 1;
    }
  }

#if defined(SOCK_CLOEXEC)
  static curl_socket_t open_socket(void*, curlsocktype, curl_sockaddr* address) noexcept {
    return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  }
#endif

  const curl_options options_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_CURL_TRANSPORT_HPP
