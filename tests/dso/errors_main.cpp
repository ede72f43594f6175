// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What a shared object with hidden visibility throws is caught by type elsewhere. Some runtimes compare types by
// address, so the type must be among the symbols that the object shows.

#include <cstdio>
#include <string>
#include <typeinfo>

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/sandbox/lease_store.hpp>
#include <curfew/sandbox/transport.hpp>

#include "library.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  void* const library = load(argv[1], RTLD_LOCAL);
  int hidden = 0;
  for (const std::type_info* type :
       {&typeid(curfew::admission_refused), &typeid(curfew::singleton_sealed), &typeid(curfew::recursive_creation),
        &typeid(curfew::bad_graph), &typeid(curfew::ownership_conflict), &typeid(curfew::sandbox::backend_error),
        &typeid(curfew::sandbox::capacity_exceeded), &typeid(curfew::sandbox::identity_conflict),
        &typeid(curfew::sandbox::lease_store_error), &typeid(curfew::sandbox::transport_error)}) {
    if (::dlsym(library, (std::string("_ZTI") + type->name()).c_str()) != nullptr) continue;
    std::fprintf(stderr, "%s: hidden\n", type->name());
    ++hidden;
  }
  return hidden == 0 ? 0 : 1;
}
