// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What check_hit_path.cmake looks at: functions that it must like, and functions that it must not.

#include <curfew/guarded_singleton.hpp>

struct service {
  int value;
};
using services = curfew::guarded_singleton<service>;

extern "C" int good_get(services& of) {
  return of.get()->value;
}
extern "C" int good_try_get(services& of) {
  const auto pinned = of.try_get();
  return pinned ? pinned->value : 0;
}
extern "C" int good_with(services& of) {
  return of.with(&service::value);
}

extern "C" int bad_locks(services& of, std::atomic<int>& shared) {
  shared.fetch_add(1, std::memory_order_relaxed);
  return of.get()->value;
}
extern "C" int bad_exchanges(services& of, std::atomic<int>& shared) {
  return of.get()->value + shared.exchange(1, std::memory_order_relaxed);
}

int somewhere_else();
struct initialised {
  int value = somewhere_else();
};
thread_local initialised per_thread;
extern "C" int bad_initialises_a_thread_local(services& of) {
  return of.get()->value + per_thread.value;
}
extern "C" int bad_guards_a_static(services& of) {
  static const int once = somewhere_else();
  return of.get()->value + once;
}
extern "C" int* bad_allocates(services& of) {
  return new int(of.get()->value);
}
extern "C" int bad_calls_what_is_not_here(services& of) {
  return of.get()->value + somewhere_else();
}
extern "C" int bad_has_no_sequence() {
  return 0;
}
