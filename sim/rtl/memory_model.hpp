// When a card's memory answers, in cycles of the kernel's clock. Knows nothing of simulators.
//
// Ideal: every access takes the same latency, nothing ever waits. Banked: each channel serves its
// accesses in order of arrival; an access occupies the channel for its transfer time, waits for its
// bank to open another row, for the bus to turn between reads and writes, and for refresh. Opening
// rows overlaps with transfers of other banks. This is not a controller that reorders: a
// sequential stream hardly needs one.
//
// Times inside are integers in units of 1/units_per_cycle of a cycle: no rounding, no platform.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hetero {

constexpr uint64_t kAccessBytes = 64;

// Same layout as MemoryParameters in sim/rtl/memory.py.
struct MemoryParameters {
  uint32_t is_banked;
  uint32_t channels;            // port p is wired to channel p % channels
  uint32_t latency_cycles;      // request to first beat, row open, nobody before it
  uint32_t units_per_cycle;
  uint32_t access_units;        // transfer of 64 bytes
  uint32_t banks;               // of a channel; consecutive rows lie in consecutive banks
  uint32_t row_bytes;
  uint32_t row_miss_units;      // close a row and open another
  uint32_t row_cycle_units;     // least time between two openings in one bank
  uint32_t turnaround_units;    // reads after writes or writes after reads
  uint32_t refresh_interval_units;
  uint32_t refresh_units;
  uint32_t throttle_permille;   // cycles in which a port holds ready and valid back
  uint32_t skew_cycles;         // ports out of step: port p answers (5 * p) % (skew + 1) later
  uint32_t max_bursts;          // outstanding reads, and writes, that a port takes
  uint32_t seed;
};

class MemoryModel {
 public:
  explicit MemoryModel(const MemoryParameters& parameters)
      : p_(parameters),
        channels_(parameters.channels, Channel(parameters.is_banked ? parameters.banks : 0)) {}

  // Cycle in which the access that contains address is at the port (a read's first beat, a write's
  // response), when it arrives at the given cycle. Call in order of arrival.
  uint64_t serve(uint32_t port, uint64_t address, bool is_write, uint64_t cycle) {
    const uint64_t answer = p_.latency_cycles + (5 * port) % (p_.skew_cycles + 1);
    if (!p_.is_banked) return cycle + answer;
    Channel& channel = channels_[port % p_.channels];
    const uint64_t row_index = address / p_.row_bytes;
    const uint64_t begin = channel.begin(row_index, is_write, cycle * p_.units_per_cycle, p_);
    return (begin + p_.units_per_cycle - 1) / p_.units_per_cycle + answer;
  }

  const MemoryParameters& parameters() const { return p_; }

 private:
  struct Bank {
    uint64_t row = ~0ull;
    uint64_t opened = 0;
    uint64_t busy_until = 0;
  };

  struct Channel {
    std::vector<Bank> banks;
    uint64_t free_at = 0;
    uint64_t next_refresh = 0;
    bool was_write = false;

    explicit Channel(uint32_t num_banks) : banks(num_banks) {}

    // When the transfer of an access begins.
    uint64_t begin(uint64_t row_index, bool is_write, uint64_t now, const MemoryParameters& p) {
      Bank& bank = banks[row_index % p.banks];
      const uint64_t row = row_index / p.banks;
      uint64_t ready = now;
      if (bank.row != row) {
        const uint64_t may_open = bank.row == ~0ull ? 0 : bank.opened + p.row_cycle_units;
        const uint64_t opened = std::max({now, bank.busy_until, may_open});
        bank.row = row;
        bank.opened = opened;
        ready = opened + p.row_miss_units;
      }
      uint64_t start = std::max(ready, free_at + (is_write != was_write ? p.turnaround_units : 0));
      start = after_refresh(start, p);
      was_write = is_write;
      free_at = bank.busy_until = start + p.access_units;
      return start;
    }

    // Refresh stops the channel for refresh_units every refresh_interval_units.
    uint64_t after_refresh(uint64_t start, const MemoryParameters& p) {
      if (p.refresh_interval_units == 0) return start;
      const uint64_t due = start / p.refresh_interval_units * p.refresh_interval_units;
      return due != 0 && start < due + p.refresh_units ? due + p.refresh_units : start;
    }
  };

  MemoryParameters p_;
  std::vector<Channel> channels_;
};

}  // namespace hetero
