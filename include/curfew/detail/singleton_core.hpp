// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The heap part of a singleton: blocks, the free list, generations, and the transitions between them. Knows nothing of
/// factories and callbacks. docs/design/guarded_singleton.md has the protocol and the argument.

#ifndef CURFEW_DETAIL_SINGLETON_CORE_HPP
#define CURFEW_DETAIL_SINGLETON_CORE_HPP

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/drain.hpp>
#include <curfew/detail/singleton_domain.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE

/// Counters of one singleton, taken together. `made == torn_down + handed_back + live` in every snapshot.
struct singleton_stats {
  std::uint64_t made = 0;             ///< successful makes, and instances accepted by `set` and `override_with`
  std::uint64_t installed = 0;        ///< of these, the ones that became current
  std::uint64_t lost_races = 0;       ///< candidates that met another one already current or starting
  std::uint64_t stale = 0;            ///< candidates outdated while they were being made or started
  std::uint64_t torn_down = 0;        ///< whose teardown has begun; every one of these once
  std::uint64_t handed_back = 0;      ///< previous instances returned by `set` and `detach`
  std::uint64_t teardown_errors = 0;  ///< teardown callbacks that threw
  std::uint64_t live = 0;             ///< the current instance, and those suspended by an override
};

namespace detail {

template <class T, class FenceCore, class Sync>
class singleton_core;

/// The place an instance lives in. Type-stable: reused for other instances, freed only when no thread can hold a
/// pointer to it any more, so that a thread may enter the fence of a block that has long left.
///
///     spare    --candidate made---> holds an instance, fence closed (or never entered)     free list, or one creator's
///     filled   --install----------> fence open, current_ points here
///     current  --override begins--> suspended: fence open, current_ elsewhere  --override ends--> current or detached
///     current  --detach-----------> current_ elsewhere, fence closing, one pass held by the detaching thread
///     detached --last pass left---> instance destroyed --> spare
template <class T, class FenceCore, class Sync>
struct singleton_block {
  using core = singleton_core<T, FenceCore, Sync>;

  explicit singleton_block(core& of) noexcept : owner(of), fence(of.name), drained(&core::on_block_drained, this) {}
  singleton_block(const singleton_block&) = delete;
  singleton_block& operator=(const singleton_block&) = delete;

  // Written while nobody else can reach the block: by its creator before install, by the last leaver after everybody.
  std::unique_ptr<T> instance;
  core& owner;
  // Guarded by the domain lock.
  singleton_block* next = nullptr;     // on the free list or the detached list
  singleton_block* prev = nullptr;     // on the detached list
  singleton_block* sibling = nullptr;  // all blocks of the core
  std::uint64_t ticket = 0;            // order of detaching

  FenceCore fence;
  drain_hook drained;
};

/// What an override remembers until it ends.
template <class Block>
struct singleton_override {
  singleton_override* outer = nullptr;
  Block* suspended = nullptr;
  std::uint64_t interventions = 0;
};

// word              who writes, and when
// current           under the domain lock; read by every get. Null, or an open block whose instance has been started.
// generation        +1 under the domain lock for every call that outdates candidates
// is_sealed         under the domain lock
template <class T, class FenceCore, class Sync>
class singleton_core : public singleton_node<Sync> {
 public:
  using domain = singleton_domain<Sync>;
  using section = typename domain::section;
  using block = singleton_block<T, FenceCore, Sync>;
  using block_word = typename Sync::template atomic<block*>;
  using override_record = singleton_override<block>;
  using time_point = typename Sync::clock::time_point;

  singleton_core(const char* label, block_word& current)
      : singleton_node<Sync>(process_singletons<Sync>, label, &after_fork), current_(&current) {
    this->home->enlist(*this);
  }

  // Only for a core that never came into use, or is orphaned and empty.
  ~singleton_core() {
    this->home->delist(*this);
    while (blocks_ != nullptr) delete std::exchange(blocks_, blocks_->sibling);
  }

  std::uint64_t generation() const noexcept {
    // order(singleton.generation, acquire): what preceded the call that outdated; pairs with outdate()
    return generation_.load(std::memory_order_acquire);
  }
  bool is_sealed() const noexcept {
    // order(singleton.sealed, acquire): what preceded seal or unseal; pairs with set_sealed()
    return sealed_.load(std::memory_order_acquire);
  }

  /// A block that only its holder knows: on its way from the free list to being installed, or back. Throws
  /// std::bad_alloc.
  class spare {
   public:
    explicit spare(singleton_core& owner) : owner_(owner), block_(owner.take_spare()) {}
    spare(const spare&) = delete;
    spare& operator=(const spare&) = delete;
    ~spare() {
      if (block_ == nullptr) return;
      block_->instance.reset();
      owner_.give_spare(block_);
    }
    block& operator*() const noexcept { return *block_; }
    block* operator->() const noexcept { return block_; }
    block& installed() noexcept { return *std::exchange(block_, nullptr); }

   private:
    singleton_core& owner_;
    block* block_;
  };

  // ---- blocks, without the lock ----

  block* take_spare() {
    {
      const section locked(*this->home);
      if (block* const found = free_; found != nullptr) {
        ++spares_out_;
        free_ = found->next;
        return found;
      }
    }
    auto fresh = std::make_unique<block>(*this);
    const section locked(*this->home);
    ++spares_out_;
    fresh->sibling = blocks_;
    return blocks_ = fresh.release();
  }

  void give_spare(block* unused) noexcept {
    const section locked(*this->home);
    --spares_out_;
    unused->next = free_;
    free_ = unused;
  }

  /// Second half of a detach, with the lock released and the pass of detach() still held: refuses stale getters from
  /// now on, and arranges for the end.
  void close(block& taken) noexcept {
    Sync::here("singleton.detach.unlinked");
    taken.fence.close();
    taken.fence.on_drained(taken.drained);
    Sync::here("singleton.detach.closed");
  }

  /// On the last leaver's thread, with no lock held, after the fence's last access.
  static void on_block_drained(void* self) noexcept {
    auto& taken = *static_cast<block*>(self);
    Sync::here("singleton.drained");
    taken.instance.reset();
    taken.owner.retire(taken);
  }

  /// The singleton is gone. Detached instances live on in their handles; the last one ends the core.
  static void orphan(singleton_core* core) noexcept {
    bool last = false, inside = false;
    {
      const section locked(*core->home);
      inside = core->top_ != nullptr;
      core->orphaned_ = !inside;
      last = core->unused();
    }
    // With the lock released: a terminate handler may use singletons.
    if (inside) fail("scoped_singleton destroyed inside an override:", core->name);
    if (last) delete core;
  }

  // ---- everything below is called with the lock held ----

  block* current() const noexcept {
    // order(none, relaxed): changes only under the lock that is held
    return current_->load(std::memory_order_relaxed);
  }

  /// The current block with a pass taken, or null. Its fence is open for as long as it is current.
  block* enter_current() const noexcept {
    block* const now = current();
    if (now != nullptr && !now->fence.try_enter()) fail("closed fence on the current instance of", this->name);
    return now;
  }

  /// What reset, shutdown, set, detach, seal and the two ends of an override have in common: no candidate that is being
  /// made or started now may be installed any more, and nobody needs to wait for it.
  void outdate() noexcept {
    // order(singleton.generation, release): what the caller did before; pairs with generation()
    generation_.store(count() + 1, std::memory_order_release);
    this->flight = nullptr;
    domain::wake_locked(*this);
  }

  void set_sealed(bool sealed) noexcept {
    if (sealed) sealed_since_ = count();
    // order(singleton.sealed, release): what the caller did before; pairs with is_sealed()
    sealed_.store(sealed, std::memory_order_release);
  }

  std::uint64_t count() const noexcept {
    // order(none, relaxed): changes only under the lock that is held
    return generation_.load(std::memory_order_relaxed);
  }
  bool outdated_by_seal(std::uint64_t birth) const noexcept { return sealed_since_ > birth; }

  /// Opens the block's fence and makes it current. The instance is complete and started. Returns the block that was
  /// current until now, detached, with a pass for the caller: it needs close() afterwards. Null when there was none.
  block* install(block& next) noexcept {
    open(next);
    return replace_current(&next);
  }

  /// Takes the current block away; the rest as for install().
  block* detach() noexcept { return replace_current(nullptr); }

  /// Puts \p record on the stack of overrides and makes \p next current; the block that was is out of sight, but open.
  void suspend(override_record& record, block& next) noexcept {
    record.outer = top_;
    record.suspended = current();
    record.interventions = interventions;
    top_ = &record;
    if (record.suspended != nullptr) ++suspended_;
    open(next);
    show(&next);
    domain::wake_locked(*this);
  }

  bool innermost(const override_record& record) const noexcept { return top_ == &record; }

  /// Ends the innermost override. Returns its block, detached, when nobody intervened; else the suspended one, which
  /// nobody wants back.
  block* resume(override_record& record) noexcept {
    top_ = record.outer;
    block* const back = record.suspended;
    if (back != nullptr) --suspended_;
    if (record.interventions == interventions) {
      return replace_current(back);
    }
    if (back != nullptr) {
      if (!back->fence.try_enter()) fail("closed fence on the suspended instance of", this->name);
      link_detached(*back);
    }
    return back;
  }

  std::uint64_t last_ticket() const noexcept { return last_ticket_; }

  /// Detached instances up to that ticket that have not been destroyed.
  std::uint64_t detached_up_to(std::uint64_t ticket) const noexcept {
    std::uint64_t found = 0;
    for (const block* each = first_detached_; each != nullptr && each->ticket <= ticket; each = each->next) ++found;
    return found;
  }

  singleton_stats snapshot() const noexcept {
    singleton_stats copy = stats;
    copy.live = suspended_ + (current() != nullptr ? 1 : 0);
    return copy;
  }

  singleton_stats stats;            // `live` is computed
  bool ending = false;              // the singleton is being destroyed: sealed for good
  std::uint64_t interventions = 0;  // calls that keep an override's end from putting anything back

 private:
  block* replace_current(block* next) noexcept {
    block* const taken = enter_current();
    show(next);
    if (taken != nullptr) link_detached(*taken);
    domain::wake_locked(*this);
    return taken;
  }

  void open(block& next) noexcept {
    if (next.fence.is_closed()) next.fence.reopen();
    Sync::here("singleton.install.opened");
    ++stats.installed;
    --spares_out_;
  }

  void show(block* next) noexcept {
    // order(singleton.current, release): the instance, made and started, or what the call that took one away had done
    // before; pairs with hit()
    current_->store(next, std::memory_order_release);
  }

  void link_detached(block& taken) noexcept {
    taken.ticket = ++last_ticket_;
    taken.next = nullptr;
    taken.prev = last_detached_;
    (last_detached_ != nullptr ? last_detached_->next : first_detached_) = &taken;
    last_detached_ = &taken;
  }

  void retire(block& empty) noexcept {
    bool last = false;
    {
      const section locked(*this->home);
      (empty.prev != nullptr ? empty.prev->next : first_detached_) = empty.next;
      (empty.next != nullptr ? empty.next->prev : last_detached_) = empty.prev;
      empty.prev = nullptr;
      empty.next = free_;
      free_ = &empty;
      domain::wake_locked(*this);
      last = orphaned_ && unused();
    }
    if (last) delete this;
  }

  // Spares that are out are what threads were making or starting that a forked child does not have: leaked there.
  bool unused() const noexcept { return first_detached_ == nullptr && spares_out_ == 0; }

  // In the child the lot has forgotten its parent's hooks. Instances that are still pinned, perhaps by the thread that
  // forked, get theirs back; the others' last leaver is gone, and they stay.
  static void after_fork(singleton_node<Sync>& node) noexcept {
    auto& core = static_cast<singleton_core&>(node);
    for (block* each = core.first_detached_; each != nullptr; each = each->next) {
      if (!each->fence.is_drained()) each->fence.on_drained(each->drained);
    }
  }

  block_word* const current_;
  typename Sync::template atomic<std::uint64_t> generation_{0};
  typename Sync::template atomic<bool> sealed_{false};
  // Guarded by the domain lock.
  std::uint64_t sealed_since_ = 0;  // the generation that the last seal began
  block* blocks_ = nullptr;         // all of them
  block* free_ = nullptr;
  block* first_detached_ = nullptr;  // in the order of their tickets
  block* last_detached_ = nullptr;
  std::uint64_t last_ticket_ = 0;
  override_record* top_ = nullptr;
  std::uint64_t suspended_ = 0;
  std::uint64_t spares_out_ = 0;  // blocks on their way from the free list to being installed, or back
  bool orphaned_ = false;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SINGLETON_CORE_HPP
