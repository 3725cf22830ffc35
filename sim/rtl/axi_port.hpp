// One AXI4 memory port as the card sees it: answers reads and writes on flat memory, at the times that the
// memory model says. Checks what the card drives. Knows nothing of simulators.
//
// A read takes its bytes when the address is accepted, a write puts them when its response is given:
// a card that reads what it has not seen acknowledged reads old bytes here, always.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "memory_model.hpp"

namespace hetero {

enum Response : uint8_t { kOkay = 0, kSlaveError = 2, kDecodeError = 3 };

struct Faults {
  bool hung = false;                    // takes and answers nothing any more
  uint64_t slave_error_at = ~0ull;      // reads and writes of this byte's beat answer SLVERR
};

// What the card drives, sampled just before a clock edge.
struct CardSide {
  bool arvalid, rready, awvalid, wvalid, wlast, bready;
  uint64_t araddr, awaddr;
  uint8_t arlen, awlen;
  const uint8_t* wdata;
  const uint8_t* wstrb;
};

// What the port drives, stable between edges.
struct MemorySide {
  bool arready = false, rvalid = false, rlast = false, awready = false, wready = false,
       bvalid = false;
  uint8_t rresp = kOkay, bresp = kOkay;
  const uint8_t* rdata = nullptr;
};

class AxiPort {
 public:
  // [low, high): the memory that this port reaches.
  AxiPort(uint32_t index, uint32_t port_bytes, MemoryModel* model, uint8_t* memory, uint64_t low,
          uint64_t high)
      : index_(index), bytes_(port_bytes), model_(model), memory_(memory), low_(low), high_(high),
        random_(model->parameters().seed * 2654435761u + index * 40503u + 1u), ring_(kRingBeats) {}

  const MemorySide& side() const { return side_; }
  Faults& faults() { return faults_; }
  const std::string& complaint() const { return complaint_; }
  uint64_t read_beats() const { return read_beats_; }
  uint64_t written_beats() const { return written_beats_; }
  uint64_t handshakes() const { return handshakes_; }

  // The card was reset: nothing of what it asked for is owed any more.
  void reset() {
    side_ = MemorySide();
    head_ = queued_ = 0;
    reads_open_ = 0;
    writes_.clear();
    ar_waits_ = aw_waits_ = w_waits_ = false;
  }

  // A clock edge: transfers happen, then the port decides what it drives in the cycle that begins.
  void edge(const CardSide& card, uint64_t cycle) {
    check_held(card);
    if (card.arvalid && side_.arready) take_read(card.araddr, card.arlen, cycle);
    if (side_.rvalid && card.rready) give_read();
    if (card.awvalid && side_.awready) take_write(card.awaddr, card.awlen);
    if (card.wvalid && side_.wready) take_data(card, cycle);
    if (side_.bvalid && card.bready) finish_write();
    drive(cycle + 1);
  }

 private:
  static constexpr uint64_t kRingBeats = 2048;
  static constexpr uint64_t kPageBytes = 4096;

  struct Beat {
    uint64_t ready_at;
    uint8_t response;
    bool last;
    uint8_t data[kAccessBytes];
  };

  struct Write {
    uint64_t address;
    uint32_t beats;
    uint32_t taken = 0;
    uint64_t answer_at = 0;
    uint8_t response = kOkay;
    std::vector<uint8_t> data;
    std::vector<uint8_t> strobe;
  };

  // ---- reads

  void take_read(uint64_t address, uint8_t len, uint64_t cycle) {
    ++handshakes_;
    check_burst("read", address, len);
    uint64_t ready_at = 0;
    for (uint32_t i = 0; i <= len; ++i) {
      const uint64_t at = address + uint64_t(i) * bytes_;
      if (i == 0 || at % kAccessBytes == 0) ready_at = model_->serve(index_, at, false, cycle);
      Beat& beat = ring_[(head_ + queued_++) % kRingBeats];
      beat.ready_at = ready_at;
      beat.response = response(at);
      beat.last = i == len;
      if (beat.response == kDecodeError) {
        std::memset(beat.data, 0, bytes_);
      } else {
        std::memcpy(beat.data, memory_ + at, bytes_);
      }
    }
    ++reads_open_;
  }

  void give_read() {
    ++handshakes_;
    ++read_beats_;
    if (ring_[head_].last) --reads_open_;
    head_ = (head_ + 1) % kRingBeats;
    --queued_;
    side_.rvalid = false;
  }

  // ---- writes

  void take_write(uint64_t address, uint8_t len) {
    ++handshakes_;
    check_burst("write", address, len);
    Write write;
    write.address = address;
    write.beats = len + 1u;
    for (uint32_t i = 0; i < write.beats; ++i) {
      write.response = std::max(write.response, response(address + uint64_t(i) * bytes_));
    }
    writes_.push_back(std::move(write));
  }

  void take_data(const CardSide& card, uint64_t cycle) {
    ++handshakes_;
    ++written_beats_;
    Write& write = *receiving();
    write.data.insert(write.data.end(), card.wdata, card.wdata + bytes_);
    write.strobe.insert(write.strobe.end(), card.wstrb, card.wstrb + bytes_ / 8);
    ++write.taken;
    if (card.wlast != (write.taken == write.beats)) complain("wlast in the wrong beat");
    if (write.taken != write.beats) return;
    for (uint64_t done = 0; done < uint64_t(write.beats) * bytes_; done += kAccessBytes) {
      write.answer_at = model_->serve(index_, write.address + done, true, cycle);
    }
  }

  void finish_write() {
    ++handshakes_;
    const Write& write = writes_.front();
    if (write.response != kDecodeError) {
      for (uint64_t i = 0; i < write.data.size(); ++i) {
        if (write.strobe[i / 8] >> (i % 8) & 1) memory_[write.address + i] = write.data[i];
      }
    }
    writes_.pop_front();
    side_.bvalid = false;
  }

  Write* receiving() {
    for (Write& write : writes_) {
      if (write.taken != write.beats) return &write;
    }
    return nullptr;
  }

  // ---- both

  void drive(uint64_t cycle) {
    const MemoryParameters& p = model_->parameters();
    if (faults_.hung) {
      side_ = MemorySide();
      return;
    }
    side_.arready = reads_open_ < p.max_bursts && queued_ + 256 <= kRingBeats && !held_back(p);
    side_.awready = writes_.size() < p.max_bursts && !held_back(p);
    side_.wready = receiving() != nullptr && !held_back(p);
    if (!side_.rvalid && queued_ != 0 && ring_[head_].ready_at <= cycle && !held_back(p)) {
      const Beat& beat = ring_[head_];
      side_.rvalid = true;
      side_.rdata = beat.data;
      side_.rresp = beat.response;
      side_.rlast = beat.last;
    }
    if (!side_.bvalid && !writes_.empty()) {
      const Write& write = writes_.front();
      side_.bvalid = write.taken == write.beats && write.answer_at <= cycle && !held_back(p);
      side_.bresp = write.response;
    }
  }

  // xorshift32 (Marsaglia 2003): whether this cycle is one of those that are held back.
  bool held_back(const MemoryParameters& p) {
    if (p.throttle_permille == 0) return false;
    random_ ^= random_ << 13;
    random_ ^= random_ >> 17;
    random_ ^= random_ << 5;
    return random_ % 1000 < p.throttle_permille;
  }

  uint8_t response(uint64_t address) const {
    if (address < low_ || address + bytes_ > high_) return kDecodeError;
    return faults_.slave_error_at / bytes_ == address / bytes_ ? kSlaveError : kOkay;
  }

  void check_burst(const char* what, uint64_t address, uint8_t len) {
    const uint64_t last = address + uint64_t(len) * bytes_;
    if (address % bytes_ != 0) complain(std::string(what) + " address is not aligned");
    if (address / kPageBytes != last / kPageBytes) {
      complain(std::string(what) + " burst crosses a 4 KiB boundary");
    }
  }

  // AXI: what was offered and not taken must still be offered, unchanged.
  void check_held(const CardSide& card) {
    if (ar_waits_ && !(card.arvalid && card.araddr == araddr_ && card.arlen == arlen_)) {
      complain("read address withdrawn or changed before it was taken");
    }
    if (aw_waits_ && !(card.awvalid && card.awaddr == awaddr_ && card.awlen == awlen_)) {
      complain("write address withdrawn or changed before it was taken");
    }
    if (w_waits_ && !card.wvalid) complain("write data withdrawn before it was taken");
    ar_waits_ = card.arvalid && !side_.arready;
    aw_waits_ = card.awvalid && !side_.awready;
    w_waits_ = card.wvalid && !side_.wready;
    araddr_ = card.araddr;
    arlen_ = card.arlen;
    awaddr_ = card.awaddr;
    awlen_ = card.awlen;
  }

  void complain(const std::string& what) {
    if (complaint_.empty()) complaint_ = "port " + std::to_string(index_) + ": " + what;
  }

  uint32_t index_, bytes_;
  MemoryModel* model_;
  uint8_t* memory_;
  uint64_t low_, high_;
  uint32_t random_;
  MemorySide side_;
  Faults faults_;
  std::string complaint_;

  std::vector<Beat> ring_;
  uint64_t head_ = 0, queued_ = 0;
  uint32_t reads_open_ = 0;
  std::deque<Write> writes_;
  uint64_t read_beats_ = 0, written_beats_ = 0, handshakes_ = 0;

  bool ar_waits_ = false, aw_waits_ = false, w_waits_ = false;
  uint64_t araddr_ = 0, awaddr_ = 0;
  uint8_t arlen_ = 0, awlen_ = 0;
};

}  // namespace hetero
