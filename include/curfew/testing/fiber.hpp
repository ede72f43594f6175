// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Stacks to switch between, for the explorer: a switch of about twenty instructions on x86-64 and AArch64, ucontext
/// elsewhere. Keeps the exception state of each stack apart, and tells AddressSanitizer and ThreadSanitizer what is
/// going on. ThreadSanitizer is told that a switch orders nothing: so it sees each fiber as a thread of its own and
/// checks plain memory in every schedule that is explored.

#ifndef CURFEW_TESTING_FIBER_HPP
#define CURFEW_TESTING_FIBER_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include <curfew/detail/config.hpp>

#if CURFEW_POSIX
#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#endif

// clang-format off
#if defined(__SANITIZE_THREAD__)
#define CURFEW_TESTING_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CURFEW_TESTING_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define CURFEW_TESTING_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CURFEW_TESTING_ASAN 1
#endif
#endif
// clang-format on
#ifndef CURFEW_TESTING_TSAN
#define CURFEW_TESTING_TSAN 0
#endif
#ifndef CURFEW_TESTING_ASAN
#define CURFEW_TESTING_ASAN 0
#endif
#if !defined(CURFEW_TESTING_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define CURFEW_TESTING_UCONTEXT 1
#endif

#if CURFEW_TESTING_TSAN
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif
#if CURFEW_TESTING_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, std::size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack_save, const void** bottom_old, std::size_t* size_old);
void __asan_unpoison_memory_region(const volatile void* address, std::size_t size);
void __lsan_register_root_region(const void* address, std::size_t size);
}
#endif

CURFEW_BEGIN_NAMESPACE
namespace testing::engine {

/// While it lives, ThreadSanitizer does not look at what this thread reads and writes: the bookkeeping of the explorer
/// is one thread's work although many fibers do it. Balanced across switches, because every switch happens inside one.
class unobserved {
 public:
#if CURFEW_TESTING_TSAN
  unobserved() noexcept {
    begin();
  }
  ~unobserved() {
    end();
  }
  static void begin() noexcept {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  static void end() noexcept {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  unobserved() noexcept {}
  ~unobserved() {}
  static void begin() noexcept {}
  static void end() noexcept {}
#endif
  unobserved(const unobserved&) = delete;
  unobserved& operator=(const unobserved&) = delete;
};

/// Tells ThreadSanitizer alone about an edge; any address may stand for it.
inline void publish([[maybe_unused]] void* edge) noexcept {
#if CURFEW_TESTING_TSAN
  __tsan_release(edge);
#endif
}
inline void observe([[maybe_unused]] void* edge) noexcept {
#if CURFEW_TESTING_TSAN
  __tsan_acquire(edge);
#endif
}

#if !defined(CURFEW_TESTING_UCONTEXT)
// Saves what the calling convention leaves to the callee, by pushing the two registers that an asm statement cannot
// name as clobbered and naming the others; the red zone is stepped over first.
CURFEW_NOINLINE inline void switch_stack(void** save, void* load) noexcept {
#if defined(__x86_64__)
  asm volatile(
      "leaq -128(%%rsp), %%rsp\n\t"
      "pushq %%rbp\n\t"
      "pushq %%rbx\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "pushq %%rax\n\t"
      "movq %%rsp, (%%rdi)\n\t"
      "movq %%rsi, %%rsp\n\t"
      "popq %%rax\n\t"
      "jmpq *%%rax\n"
      "1:\n\t"
      "popq %%rbx\n\t"
      "popq %%rbp\n\t"
      "leaq 128(%%rsp), %%rsp\n\t"
      : "+D"(save), "+S"(load)
      :
      : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory");
#else
  register void** x0 asm("x0") = save;
  register void* x1 asm("x1") = load;
  asm volatile(
      "stp x29, x30, [sp, #-16]!\n\t"
      "adr x9, 1f\n\t"
      "str x9, [sp, #-16]!\n\t"
      "mov x9, sp\n\t"
      "str x9, [x0]\n\t"
      "mov sp, x1\n\t"
      "ldr x9, [sp], #16\n\t"
      "br x9\n"
      "1:\n\t"
      "ldp x29, x30, [sp], #16\n\t"
      : "+r"(x0), "+r"(x1)
      :
      : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x19",
        "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7",
        "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23",
        "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "cc", "memory");
#endif
}
#endif

/// One stack and what is suspended on it. A default-constructed one stands for the stack of the thread that explores.
class fiber {
 public:
  static constexpr std::size_t stack_size = CURFEW_TESTING_ASAN || CURFEW_TESTING_TSAN ? 512 * 1024 : 256 * 1024;

  fiber() noexcept {
#if CURFEW_TESTING_TSAN
    tsan_ = __tsan_get_current_fiber();
#endif
  }
  /// \p entry never returns.
  explicit fiber(void (*entry)() noexcept) : entry_(entry) {
    const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    mapped_ = stack_size + page;
    void* const map = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    ::mprotect(map, page, PROT_NONE);  // a guard: running out of stack is a crash here and nowhere else
    map_ = static_cast<unsigned char*>(map);
    bottom_ = map_ + page;
#if CURFEW_TESTING_TSAN
    tsan_ = __tsan_create_fiber(0);
#endif
#if defined(CURFEW_TESTING_UCONTEXT)
    ::getcontext(&context_);
    context_.uc_stack.ss_sp = bottom_;
    context_.uc_stack.ss_size = stack_size;
    context_.uc_link = nullptr;
    ::makecontext(&context_, reinterpret_cast<void (*)()>(&fiber::start), 0);
#else
    // As after the first half of a switch: the address to go on at, below a stack that looks like that of a call.
    unsigned char* top = bottom_ + stack_size - 64;
#if defined(__x86_64__)
    top -= sizeof(void*);
#else
    top -= 16;
#endif
    void (*const at)() = &fiber::start;
#if defined(__x86_64__)
    top -= sizeof at;
#endif
    std::memcpy(top, &at, sizeof at);
    stack_pointer_ = top;
#endif
  }
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;
  ~fiber() {
    if (map_ == nullptr || doomed_) return;
#if CURFEW_TESTING_TSAN
    void* const self = __tsan_get_current_fiber();
    if (started_) {
      __tsan_switch_to_fiber(tsan_, 1);
      unobserved::end();
      __tsan_switch_to_fiber(self, 1);
    }
    __tsan_destroy_fiber(tsan_);
#endif
#if CURFEW_TESTING_ASAN
    __asan_unpoison_memory_region(bottom_, stack_size);
#endif
    ::munmap(map_, mapped_);
  }

  /// From the stack that runs, which is that of \p from, to this one; returns when somebody switches back.
  void enter(fiber& from) noexcept {
    starting_ = this;
    left_ = &from;
    from.exceptions_ = swap_exceptions(exceptions_);
#if CURFEW_TESTING_ASAN
    __sanitizer_start_switch_fiber(from.doomed_ ? nullptr : &from.fake_stack_, bottom_, size_);
#endif
#if CURFEW_TESTING_TSAN
    __tsan_switch_to_fiber(tsan_, 1);
#endif
#if defined(CURFEW_TESTING_UCONTEXT)
    ::swapcontext(&from.context_, &context_);
#else
    switch_stack(&from.stack_pointer_, stack_pointer_);
#endif
    from.arrive();
  }

  /// Whatever ran here happens before whoever observes \p edge, as ThreadSanitizer sees it.
  void publish_to([[maybe_unused]] void* edge) noexcept {
#if CURFEW_TESTING_TSAN
    void* const self = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_, 1);
    __tsan_release(edge);
    __tsan_switch_to_fiber(self, 1);
#endif
  }

  /// What is suspended here is never resumed. Its frames, and what they own, stay as they are for good.
  void abandon() noexcept {
    doomed_ = true;
#if CURFEW_TESTING_ASAN
    __lsan_register_root_region(bottom_, stack_size);
#endif
  }

 private:
  // The two fields that the C++ ABI keeps for each thread: the exceptions being handled, and how many are in flight.
  struct exception_state {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };
  static exception_state swap_exceptions(const exception_state& next) noexcept {
    void* const place = abi::__cxa_get_globals();
    exception_state before;
    std::memcpy(&before.caught, place, sizeof before.caught);
    std::memcpy(&before.uncaught, static_cast<char*>(place) + sizeof before.caught, sizeof before.uncaught);
    std::memcpy(place, &next.caught, sizeof next.caught);
    std::memcpy(static_cast<char*>(place) + sizeof next.caught, &next.uncaught, sizeof next.uncaught);
    return before;
  }

  // First thing on a stack that has just been switched to.
  void arrive() noexcept {
#if CURFEW_TESTING_ASAN
    const void* bottom = nullptr;
    std::size_t size = 0;
    __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &size);
    if (left_->bottom_ == nullptr) {  // a thread's own stack, whose bounds are learnt by leaving it
      left_->bottom_ = static_cast<unsigned char*>(const_cast<void*>(bottom));
      left_->size_ = size;
    }
#endif
  }

  static void start() {
    fiber* const self = starting_;
    self->started_ = true;
    self->arrive();
    unobserved::begin();  // a fiber is born inside the explorer
    self->entry_();
  }

  static inline constinit fiber* starting_ = nullptr;
  static inline constinit fiber* left_ = nullptr;

  void (*entry_)() noexcept = nullptr;
  void* stack_pointer_ = nullptr;
  unsigned char* map_ = nullptr;
  std::size_t mapped_ = 0;
  unsigned char* bottom_ = nullptr;
  std::size_t size_ = stack_size;
  exception_state exceptions_;
  bool started_ = false;
  bool doomed_ = false;
#if CURFEW_TESTING_TSAN
  void* tsan_ = nullptr;
#endif
#if CURFEW_TESTING_ASAN
  void* fake_stack_ = nullptr;
#endif
#if defined(CURFEW_TESTING_UCONTEXT)
  ucontext_t context_{};
#endif
};

}  // namespace testing::engine
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_FIBER_HPP
