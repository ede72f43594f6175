# Checks who includes whom, and what each header may name: cmake -P cmake/check_layers.cmake [-DROOT=<tree>]
#
# A new edge between two parts is one line below, and a reason in docs/design.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/checks.cmake)

# The part a header belongs to, and the part's layer. First match wins; the names are relative to include/curfew.
#   0 version, config, exceptions   1 detail   2 primitives   3 second-tier parts   4 sandbox   5 testing   6 umbrella
set(parts
    "version|detail/(config|exceptions)=base=0"
    "detail/(drain|drain_awaitable|compact_core|striped_core|traced_core|occupants)=admission_fence=2"
    "detail/(singleton_.+|creation_.+)=guarded_singleton=2"
    "detail/signal_.+=signals=2"
    "detail/lifespan_.+=ordered_lifespan=2"
    "detail/(process_id|process_identity)=detail=1"
    "detail/(directory_tree|process_.+)=processes=4"
    "detail/docker_.+=sandbox/docker_cli_backend=4"
    "detail/(http_.+|json)=sandbox/transport=4"
    "detail/.+=detail=1"
    "admission_fence=admission_fence=2"
    "guarded_singleton=guarded_singleton=2"
    "teardown=teardown=2"
    "signals=signals=2"
    "ordered_lifespan=ordered_lifespan=2"
    "keyed_serializer=keyed_serializer=3"
    "slot_ledger=slot_ledger=3"
    "periodic_worker=periodic_worker=3"
    "systemd_notifier=systemd_notifier=3"
    "sandbox/(lease|pool_[a-z]+|sandbox_table)=sandbox/sandbox_pool=4"
    "(sandbox/[a-z0-9_]+)=SELF=4"
    "testing/.+=testing=5"
    "curfew=umbrella=6")

# Inside layers 2 and 4 only these edges exist. Layer 3 may use layer 2, layer 4 may use layers 2 and 3. What a part keeps
# in detail/ is for itself and for those of its own layer that have an edge to it.
set(edges
    guarded_singleton->admission_fence
    guarded_singleton->teardown
    ordered_lifespan->signals
    ordered_lifespan->admission_fence
    sandbox/lease_store->sandbox/backend
    sandbox/sandbox_pool->sandbox/backend
    sandbox/sandbox_pool->sandbox/lease_store
    sandbox/aio->sandbox/backend
    sandbox/aio->sandbox/lease_store
    sandbox/aio->sandbox/sandbox_pool
    sandbox/e2b->sandbox/backend
    sandbox/e2b->sandbox/lease_store
    sandbox/e2b->sandbox/sandbox_pool
    sandbox/process_backend->sandbox/backend
    sandbox/process_backend->processes
    sandbox/docker_cli_backend->sandbox/backend
    sandbox/docker_cli_backend->sandbox/transport
    sandbox/docker_cli_backend->processes
    sandbox/curl_transport->sandbox/transport
    sandbox/redis_lease_store->sandbox/backend
    sandbox/redis_lease_store->sandbox/lease_store
    sandbox/transport->sandbox/backend
    sandbox/aio_rest_backend->sandbox/backend
    sandbox/aio_rest_backend->sandbox/transport
    sandbox/e2b_rest_backend->sandbox/backend
    sandbox/e2b_rest_backend->sandbox/transport)

# Headers that need the operating system. Their includes of it stand inside a conditional on the platform.
set(system_headers
    "^(detail/(signal_.+|lifespan_.+|process_.+|cancel_shield|descriptor|docker_.+|rseq|directory_tree|singleton_domain)|testing/(crash|fiber|race|scheduler)|signals|ordered_lifespan|systemd_notifier|testing/(fiber|race)|sandbox/[a-z0-9_]*(process|docker|transport)[a-z0-9_]*)$")

set(banned_includes iostream future regex)

# Taken from the policy everywhere else.
set(seam detail/sync)
set(banned_names
    "std::(atomic|atomic_flag|atomic_ref|mutex|timed_mutex|recursive_mutex|shared_mutex|condition_variable|condition_variable_any|jthread|this_thread|latch|barrier|counting_semaphore|binary_semaphore|call_once|once_flag)([^a-z_]|$)"
    "std::thread([^a-z_:]|$)"
    "std::thread::[a-hj-z]"
    "(steady|system|high_resolution)_clock::now"
    "pthread_(create|mutex|cond|join|detach)")

# The core compiles without exceptions, so one header alone says throw, try and catch.
set(exceptions_header detail/exceptions)

# Thin means thin: the providers leave these to the primitives, and no header outgrows its budget of code lines.
set(pure_headers sandbox/aio sandbox/e2b)
set(impure_names mutex condition_variable std::atomic std::thread jthread sigaction "signal(" ".join(" sleep_)
set(budgets
    sandbox/backend=140
    sandbox/lease_store=100
    sandbox/sandbox_pool=350
    sandbox/aio=180
    sandbox/e2b=240
    sandbox/process_backend=320
    sandbox/docker_cli_backend=260
    sandbox/curl_transport=140
    sandbox/transport=220
    sandbox/aio_rest_backend=130
    sandbox/e2b_rest_backend=220)
set(most_lines 450)

set(not_in_umbrella sandbox/curl_transport sandbox/redis_lease_store systemd_notifier)
# Those that need a package, and may name its headers on any platform.
set(with_package sandbox/curl_transport sandbox/redis_lease_store)

function(part_of name part layer)
  foreach(row IN LISTS parts)
    string(REPLACE "=" ";" row "${row}")
    list(GET row 0 pattern)
    if(name MATCHES "^(${pattern})$")
      list(GET row 1 found)
      list(GET row 2 found_layer)
      if(found STREQUAL "SELF")
        set(found ${name})
      endif()
      set(${part} ${found} PARENT_SCOPE)
      set(${layer} ${found_layer} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${part} "" PARENT_SCOPE)
  set(${layer} -1 PARENT_SCOPE)
endfunction()

function(check_edge where from from_layer to)
  part_of("${to}" to_part to_layer)
  if(to_part STREQUAL "")
    curfew_complain("${where}" "includes curfew/${to}.hpp, which is in no part")
    return()
  endif()
  set(allowed FALSE)
  if(from STREQUAL to_part)
    set(allowed TRUE)
  elseif(from_layer EQUAL 6)
    if(to_layer GREATER_EQUAL 2 AND to_layer LESS_EQUAL 4 OR to STREQUAL "version")
      set(allowed TRUE)
    endif()
  elseif(from_layer EQUAL 5)
    if(to_layer LESS_EQUAL 1)
      set(allowed TRUE)
    endif()
  elseif(to_layer LESS from_layer)
    set(allowed TRUE)
  elseif(to_layer EQUAL from_layer AND "${from}->${to_part}" IN_LIST edges)
    set(allowed TRUE)
  endif()
  if(allowed AND to MATCHES "^detail/" AND to_layer GREATER 1 AND NOT to_layer EQUAL from_layer)
    set(allowed FALSE)
  endif()
  if(NOT allowed)
    curfew_complain("${where}" "${from} (layer ${from_layer}) must not include curfew/${to}.hpp (${to_part}, layer ${to_layer})")
  endif()
endfunction()

function(check_header header)
  string(REGEX REPLACE "^curfew/(.*)\\.hpp$" "\\1" name ${header})
  set(path include/${header})
  part_of(${name} part layer)
  if(part STREQUAL "")
    curfew_complain(${path} "belongs to no part: add it to cmake/check_layers.cmake")
    return()
  endif()

  file(READ ${ROOT}/${path} text)
  if(NOT text MATCHES "^// SPDX-License-Identifier: MIT\n// Copyright ")
    curfew_complain(${path} "does not begin with the two licence lines")
  endif()
  if(NOT text MATCHES "\n$")
    curfew_complain(${path} "no newline at the end of the file")
  endif()
  if(NOT text MATCHES "\n/// \\\\file\n")
    curfew_complain(${path} "has no '/// \\file' paragraph")
  endif()
  string(TOUPPER "CURFEW_${name}_HPP" guard)
  string(REPLACE "CURFEW_CURFEW_HPP" "CURFEW_HPP" guard ${guard})
  string(REPLACE "/" "_" guard ${guard})
  if(NOT text MATCHES "\n#ifndef ${guard}\n#define ${guard}\n" OR NOT text MATCHES "\n#endif  // ${guard}\n")
    curfew_complain(${path} "has no include guard ${guard}")
  endif()
  if(text MATCHES "#[ ]*pragma once")
    curfew_complain(${path} "#pragma once: the guard is what lets this meet its copy in the single header")
  endif()
  if(text MATCHES "/\\*")
    curfew_complain(${path} "block comment: use //")
  endif()
  if(name IN_LIST pure_headers)
    foreach(word IN LISTS impure_names)
      string(FIND "${text}" "${word}" at)
      if(NOT at EQUAL -1)
        curfew_complain(${path} "contains '${word}': a provider leaves that to the primitives")
      endif()
    endforeach()
  endif()

  curfew_read_lines(${ROOT}/${path} lines)
  set(number 0)
  set(code_lines 0)
  set(depth 0) # of conditional blocks, the include guard among them
  set(platform 0) # the depth at which a conditional on the platform stands, 0 outside
  set(with_exceptions 0) # the same for the one conditional in the umbrella that may hold own includes: its last
  set(umbrella_ended FALSE)
  foreach(raw IN LISTS lines)
    math(EXPR number "${number} + 1")
    set(where ${path}:${number})
    curfew_code("${raw}" line)
    if(line STREQUAL "")
      continue()
    endif()
    math(EXPR code_lines "${code_lines} + 1")

    if(line MATCHES "^# *if")
      math(EXPR depth "${depth} + 1")
      if(line MATCHES "^# *if (CURFEW_POSIX|defined\\(__(linux|APPLE)__\\))" AND platform EQUAL 0)
        set(platform ${depth})
      endif()
      if(layer EQUAL 6 AND line STREQUAL "#if CURFEW_EXCEPTIONS")
        set(with_exceptions ${depth})
      endif()
      continue()
    elseif(line MATCHES "^# *endif")
      if(depth EQUAL platform)
        set(platform 0)
      endif()
      if(depth EQUAL with_exceptions)
        set(with_exceptions 0)
        set(umbrella_ended TRUE)
      endif()
      math(EXPR depth "${depth} - 1")
      continue()
    elseif(line MATCHES "^# *include")
      if(line MATCHES "\"")
        curfew_complain(${where} "include in quotes: own headers are <curfew/...>")
      elseif(raw MATCHES "^#include <curfew/([a-z0-9_/]+)\\.hpp>$")
        set(to ${CMAKE_MATCH_1})
        if(depth GREATER 1 AND NOT with_exceptions EQUAL depth)
          curfew_complain(${where} "own include inside a conditional")
        endif()
        if(umbrella_ended)
          curfew_complain(${where} "own include after those that need exceptions: what they hold would be lost")
        endif()
        check_edge(${where} ${part} ${layer} ${to})
      elseif(line MATCHES "<curfew/")
        curfew_complain(${where} "own include not written '#include <curfew/...>' at column 0 with nothing behind it")
      elseif(line MATCHES "<([a-z0-9_/]+\\.h)>")
        set(system ${CMAKE_MATCH_1})
        if(name IN_LIST with_package)
          continue()
        elseif(NOT name MATCHES "${system_headers}")
          curfew_complain(${where} "operating system header <${system}>")
        elseif(platform EQUAL 0)
          curfew_complain(${where} "<${system}> outside a conditional on the platform")
        endif()
      elseif(line MATCHES "<([a-z_0-9]+)>" AND CMAKE_MATCH_1 IN_LIST banned_includes)
        curfew_complain(${where} "banned include <${CMAKE_MATCH_1}>")
      endif()
      continue()
    endif()

    if(line MATCHES "using namespace")
      curfew_complain(${where} "using namespace in a header")
    endif()
    if(line MATCHES "atomic_(thread|signal)_fence")
      curfew_complain(${where} "standalone fence")
    endif()
    if(layer LESS 4 AND NOT name STREQUAL exceptions_header AND line MATCHES "(^|[^a-zA-Z_])(throw|try|catch)([^a-zA-Z_]|$)")
      curfew_complain(${where} "'${CMAKE_MATCH_2}': the core says it with the macros of ${exceptions_header}.hpp")
    endif()
    if(NOT name IN_LIST seam)
      foreach(pattern IN LISTS banned_names)
        if(line MATCHES "${pattern}")
          curfew_complain(${where} "${CMAKE_MATCH_0} is to come from the policy (Sync)")
        endif()
      endforeach()
    endif()
  endforeach()

  if(number GREATER most_lines)
    curfew_complain(${path} "${number} lines, at most ${most_lines}: split it by idea")
  endif()
  foreach(row IN LISTS budgets)
    if(row MATCHES "^${name}=([0-9]+)$" AND code_lines GREATER CMAKE_MATCH_1)
      curfew_complain(${path} "${code_lines} lines of code, its budget is ${CMAKE_MATCH_1}")
    endif()
  endforeach()
endfunction()

curfew_find_headers(headers)
foreach(header IN LISTS headers)
  check_header(${header})
endforeach()

# The one list of headers has them all, and the umbrella includes the head of every part.
if(EXISTS ${ROOT}/cmake/headers.cmake)
  include(${ROOT}/cmake/headers.cmake)
  list(APPEND CURFEW_HEADERS ${CURFEW_OPT_IN_HEADERS})
  foreach(header IN LISTS headers)
    if(NOT header IN_LIST CURFEW_HEADERS)
      curfew_complain(include/${header} "is not listed in cmake/headers.cmake")
    endif()
  endforeach()
  foreach(header IN LISTS CURFEW_HEADERS)
    if(NOT header IN_LIST headers)
      curfew_complain(cmake/headers.cmake "lists ${header}, which does not exist")
    endif()
  endforeach()
endif()
if(EXISTS ${ROOT}/include/curfew/curfew.hpp)
  file(READ ${ROOT}/include/curfew/curfew.hpp umbrella)
  foreach(header IN LISTS headers)
    string(REGEX REPLACE "^curfew/(.*)\\.hpp$" "\\1" name ${header})
    part_of(${name} part layer)
    if(layer GREATER_EQUAL 2 AND layer LESS_EQUAL 4 AND name STREQUAL part AND NOT name IN_LIST not_in_umbrella)
      string(FIND "${umbrella}" "\n#include <${header}>\n" at)
      if(at EQUAL -1)
        curfew_complain(include/curfew/curfew.hpp "does not include <${header}>")
      endif()
    endif()
  endforeach()
endif()
curfew_verdict("layers")
