// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The guide's pages on guarded_singleton.

#include <memory>
#include <string>
#include <utility>

#include <curfew/guarded_singleton.hpp>

namespace {

// [define]
struct client {
  std::string url = "http://localhost";
  bool open = false;
  void start() { open = true; }      // on the one that was chosen, before anybody else can see it
  void shutdown() { open = false; }  // once, by whoever takes it away, with no lock held
};

curfew::guarded_singleton<client> the_client{"client"};
// [/define]

// [use]
bool ping() {
  auto c = the_client.get();  // made by the first caller; a handle pins it, a reset elsewhere does not end it under us
  return c->open;
}

void start_over() {
  the_client.shutdown();  // the next get() makes a new one; this one goes when its last handle is released
}
// [/use]

// [replace]
void configure(std::string url) {
  auto next = std::make_unique<client>();
  next->url = std::move(url);
  auto previous = the_client.set(std::move(next));  // readers see the one or the other, never neither
  if (previous) previous->shutdown();               // given back, not shut down: its end is ours
}
// [/replace]

// [seal]
void leave_for_good() {
  the_client.seal();  // as shutdown, but a later get() throws singleton_sealed instead of making a new one
}
// [/seal]

}  // namespace

int main() {
  if (!ping()) return 1;
  {
    auto c = the_client.get();
    start_over();
    if (c->url.empty() || !c.detached() || !ping()) return 2;
  }
  configure("http://example");
  if (the_client.get()->url != "http://example") return 3;
  leave_for_good();
  try {
    ping();
    return 4;
  } catch (const curfew::singleton_sealed&) {
    return 0;
  }
}
