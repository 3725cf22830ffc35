// The whole card under Verilator, for ctypes: its registers, and cycles until a start is done.
//
// Built by sim/rtl/build.py with -DPORTS=.. -DPORT_BYTES=.. and a model class named Vcard.
#include <memory>

#include "Vcard.h"
#include "axi_port.hpp"
#include "verilated.h"
#ifdef CARD_CHECKS
#include "verilated_syms.h"
#endif
#ifdef CARD_DEBUG
#include "verilated_vcd_c.h"
#include "verilated_vpi.h"
#endif

namespace {

std::string last_words;  // of a $fatal, $stop or failed assertion; read right after it

constexpr int kBusTimeoutCycles = 10000;
constexpr int kResetCycles = 32;
constexpr uint32_t kControlRegister = 0;
constexpr uint32_t kDoneBit = 1u << 1;
constexpr uint64_t kCyclesBetweenLooks = 64;

// Verilator keeps a signal of any width as little-endian words: bytes of it lie in order.
template <typename Signal>
const uint8_t* bytes_of(const Signal& signal) {
  return reinterpret_cast<const uint8_t*>(&signal);
}

template <typename Signal>
uint8_t* bytes_of(Signal& signal) {
  return reinterpret_cast<uint8_t*>(&signal);
}

template <typename Signal>
bool bit_of(const Signal& signal, uint32_t at) {
  return bytes_of(signal)[at / 8] >> (at % 8) & 1;
}

template <typename Signal>
void set_bits(Signal& signal, uint32_t at, uint8_t mask, uint8_t value) {
  uint8_t& byte = bytes_of(signal)[at / 8];
  byte = uint8_t((byte & ~(mask << (at % 8))) | value << (at % 8));
}

void end_simulation(const char* file, int line, const char* text) {
  last_words = std::string(file) + ":" + std::to_string(line) + ": " + text;
  Verilated::threadContextp()->gotFinish(true);
}

class Card {
 public:
  Card(uint8_t* memory, const uint64_t* low, const uint64_t* high,
       const hetero::MemoryParameters& parameters)
      : memory_model_(parameters), top_(new_top(&context_)) {
    for (uint32_t port = 0; port < PORTS; ++port) {
      ports_.emplace_back(port, PORT_BYTES, &memory_model_, memory, low[port], high[port]);
    }
    reset();
  }

  ~Card() { top_->final(); }

  void reset() {
    top_->ap_rst_n = 0;
    top_->s_axi_control_awvalid = top_->s_axi_control_wvalid = top_->s_axi_control_arvalid = 0;
    top_->s_axi_control_bready = top_->s_axi_control_rready = 1;
    top_->s_axi_control_wstrb = 0xF;
    top_->ap_clk = 0;
    top_->eval();
    for (int i = 0; i < kResetCycles; ++i) step();
    top_->ap_rst_n = 1;
    for (int i = 0; i < kResetCycles; ++i) step();
  }

  // False when the card does not answer.
  bool read(uint32_t offset, uint32_t* value) {
    top_->s_axi_control_araddr = offset;
    top_->s_axi_control_arvalid = 1;
    for (int i = 0; i < kBusTimeoutCycles && !context_.gotFinish(); ++i) {
      settle();
      const bool taken = top_->s_axi_control_arvalid && top_->s_axi_control_arready;
      const bool answered = top_->s_axi_control_rvalid;
      if (answered) *value = top_->s_axi_control_rdata;
      step();
      if (taken) top_->s_axi_control_arvalid = 0;
      if (answered) return true;
    }
    return false;
  }

  bool write(uint32_t offset, uint32_t value) {
    top_->s_axi_control_awaddr = offset;
    top_->s_axi_control_wdata = value;
    top_->s_axi_control_awvalid = top_->s_axi_control_wvalid = 1;
    for (int i = 0; i < kBusTimeoutCycles && !context_.gotFinish(); ++i) {
      settle();
      const bool address = top_->s_axi_control_awvalid && top_->s_axi_control_awready;
      const bool data = top_->s_axi_control_wvalid && top_->s_axi_control_wready;
      const bool answered = top_->s_axi_control_bvalid;
      step();
      if (address) top_->s_axi_control_awvalid = 0;
      if (data) top_->s_axi_control_wvalid = 0;
      if (answered) return true;
    }
    return false;
  }

  // Run until DONE: 1, until no port moved for stall_cycles: 2, for max_cycles: 0, $finish: 3.
  int run(uint64_t max_cycles, uint64_t stall_cycles) {
    uint64_t moved = 0, since = cycle_;
    const uint64_t end = cycle_ + max_cycles;
    while (cycle_ < end) {
      for (uint64_t i = 0; i < kCyclesBetweenLooks && !context_.gotFinish(); ++i) step();
      if (context_.gotFinish()) return 3;
      uint32_t control = 0;
      if (!read(kControlRegister, &control)) return 2;
      if (control & kDoneBit) return 1;
      const uint64_t handshakes = total(&hetero::AxiPort::handshakes);
      if (handshakes != moved) {
        moved = handshakes;
        since = cycle_;
      } else if (cycle_ - since > stall_cycles) {
        return 2;
      }
    }
    return 0;
  }

  void step() {
    settle();
    hetero::CardSide card[PORTS];
    for (uint32_t port = 0; port < PORTS; ++port) card[port] = sample(port);
    if (trace_ != nullptr && traced_ < trace_size_) {
      trace_[2 * traced_] = top_->trace_busy;
      trace_[2 * traced_ + 1] = top_->trace_op;
      ++traced_;
    }
    // Written data is taken before the edge: the card may change it at the edge.
    for (uint32_t port = 0; port < PORTS; ++port) {
      if (top_->ap_rst_n) {
        ports_[port].edge(card[port], cycle_);
      } else {
        ports_[port].reset();
      }
    }
    top_->ap_clk = 1;
    top_->eval();
    dump(2 * cycle_ + 1);
    for (uint32_t port = 0; port < PORTS; ++port) drive(port);
    top_->ap_clk = 0;
    ++cycle_;
    settled_ = false;
  }

#ifdef CARD_CHECKS
  // One line for each coverage counter: its name with all modules above it, and its value.
  const char* coverage() {
    coverage_.clear();
    const VerilatedScopeNameMap* scopes = context_.scopeNameMap();
    for (const auto& scope : *scopes) {
      if (scope.second->varsp() == nullptr) continue;
      for (const auto& var : *scope.second->varsp()) {
        if (std::strncmp(var.first, "cov_", 4) != 0) continue;
        const uint32_t value = *static_cast<const uint32_t*>(var.second.datap());
        coverage_ += std::string(scope.first) + "." + var.first + " " + std::to_string(value) + "\n";
      }
    }
    return coverage_.c_str();
  }
#endif

#ifdef CARD_DEBUG
  // Words of a signal, or of one word of a memory if index is not negative; -1 for an unknown name.
  int peek(const char* name, int64_t index, uint32_t* words, int max_words) {
    settle();
    vpiHandle handle = vpi_handle_by_name(const_cast<PLI_BYTE8*>(name), nullptr);
    if (handle != nullptr && index >= 0) handle = vpi_handle_by_index(handle, PLI_INT32(index));
    if (handle == nullptr) return -1;
    s_vpi_value value;
    value.format = vpiVectorVal;
    vpi_get_value(handle, &value);
    const int count = std::min(max_words, int(vpi_get(vpiSize, handle) + 31) / 32);
    for (int i = 0; i < count; ++i) words[i] = uint32_t(value.value.vector[i].aval);
    return count;
  }

  // Waveforms of the cycles from now on; null ends the file.
  void waves(const char* path) {
    if (waves_) waves_->close();
    waves_.reset();
    if (path == nullptr) return;
    waves_.reset(new VerilatedVcdC);
    top_->trace(waves_.get(), 99);
    waves_->open(path);
  }
#endif

  void trace(uint32_t* words, uint64_t cycles) {
    trace_ = words;
    trace_size_ = cycles;
    traced_ = 0;
  }

  uint64_t total(uint64_t (hetero::AxiPort::*counter)() const) const {
    uint64_t sum = 0;
    for (const auto& port : ports_) sum += (port.*counter)();
    return sum;
  }

  const char* complaint() const {
    if (context_.gotFinish()) return last_words.empty() ? "$finish" : last_words.c_str();
    for (const auto& port : ports_) {
      if (!port.complaint().empty()) return port.complaint().c_str();
    }
    return "";
  }

  hetero::AxiPort& port(uint32_t index) { return ports_[index]; }
  uint64_t cycle() const { return cycle_; }
  uint64_t traced() const { return traced_; }

 private:
  static Vcard* new_top(VerilatedContext* context) {
#ifdef CARD_DEBUG
    context->traceEverOn(true);
#endif
    return new Vcard(context);
  }

  void settle() {
    if (settled_) return;
    top_->eval();
    dump(2 * cycle_);
    settled_ = true;
  }

  void dump(uint64_t time) {
#ifdef CARD_DEBUG
    if (waves_) waves_->dump(time);
#else
    (void)time;
#endif
  }

  hetero::CardSide sample(uint32_t port) const {
    hetero::CardSide card{};
    card.arvalid = bit_of(top_->m_axi_arvalid, port);
    card.rready = bit_of(top_->m_axi_rready, port);
    card.awvalid = bit_of(top_->m_axi_awvalid, port);
    card.wvalid = bit_of(top_->m_axi_wvalid, port);
    card.wlast = bit_of(top_->m_axi_wlast, port);
    card.bready = bit_of(top_->m_axi_bready, port);
    std::memcpy(&card.araddr, bytes_of(top_->m_axi_araddr) + 8 * port, 8);
    std::memcpy(&card.awaddr, bytes_of(top_->m_axi_awaddr) + 8 * port, 8);
    card.arlen = bytes_of(top_->m_axi_arlen)[port];
    card.awlen = bytes_of(top_->m_axi_awlen)[port];
    card.wdata = bytes_of(top_->m_axi_wdata) + PORT_BYTES * port;
    card.wstrb = bytes_of(top_->m_axi_wstrb) + PORT_BYTES / 8 * port;
    return card;
  }

  void drive(uint32_t port) {
    const hetero::MemorySide& side = ports_[port].side();
    set_bits(top_->m_axi_arready, port, 1, side.arready);
    set_bits(top_->m_axi_rvalid, port, 1, side.rvalid);
    set_bits(top_->m_axi_rlast, port, 1, side.rlast);
    set_bits(top_->m_axi_awready, port, 1, side.awready);
    set_bits(top_->m_axi_wready, port, 1, side.wready);
    set_bits(top_->m_axi_bvalid, port, 1, side.bvalid);
    set_bits(top_->m_axi_rresp, 2 * port, 3, side.rresp);
    set_bits(top_->m_axi_bresp, 2 * port, 3, side.bresp);
    if (side.rvalid) {
      std::memcpy(bytes_of(top_->m_axi_rdata) + PORT_BYTES * port, side.rdata, PORT_BYTES);
    }
  }

  VerilatedContext context_;
  hetero::MemoryModel memory_model_;
  std::unique_ptr<Vcard> top_;
  std::vector<hetero::AxiPort> ports_;
  uint64_t cycle_ = 0;
  bool settled_ = false;
  uint32_t* trace_ = nullptr;
  uint64_t trace_size_ = 0, traced_ = 0;
#ifdef CARD_CHECKS
  std::string coverage_;
#endif
#ifdef CARD_DEBUG
  std::unique_ptr<VerilatedVcdC> waves_;
#endif
};

}  // namespace

// Verilator would abort the process; whoever runs the card decides.
void vl_stop(const char* file, int line, const char* scope) { end_simulation(file, line, scope); }
void vl_fatal(const char* file, int line, const char*, const char* text) {
  end_simulation(file, line, text);
}

extern "C" {

uint32_t card_ports() { return PORTS; }
uint32_t card_port_bytes() { return PORT_BYTES; }

void* card_open(uint8_t* memory, const uint64_t* low, const uint64_t* high,
                const hetero::MemoryParameters* parameters) {
  return new Card(memory, low, high, *parameters);
}

void card_close(void* card) { delete static_cast<Card*>(card); }
int card_read(void* card, uint32_t offset, uint32_t* value) {
  return static_cast<Card*>(card)->read(offset, value);
}
int card_write(void* card, uint32_t offset, uint32_t value) {
  return static_cast<Card*>(card)->write(offset, value);
}
int card_run(void* card, uint64_t max_cycles, uint64_t stall_cycles) {
  return static_cast<Card*>(card)->run(max_cycles, stall_cycles);
}
void card_reset(void* card) { static_cast<Card*>(card)->reset(); }
uint64_t card_cycle(void* card) { return static_cast<Card*>(card)->cycle(); }
const char* card_complaint(void* card) { return static_cast<Card*>(card)->complaint(); }

uint64_t card_read_beats(void* card) {
  return static_cast<Card*>(card)->total(&hetero::AxiPort::read_beats);
}
uint64_t card_written_beats(void* card) {
  return static_cast<Card*>(card)->total(&hetero::AxiPort::written_beats);
}

// Two words a cycle, trace_busy and trace_op, until the room is used up; null ends tracing.
void card_trace(void* card, uint32_t* words, uint64_t cycles) {
  static_cast<Card*>(card)->trace(words, cycles);
}
uint64_t card_traced(void* card) { return static_cast<Card*>(card)->traced(); }

void card_hang(void* card, uint32_t port, int hung) {
  static_cast<Card*>(card)->port(port).faults().hung = hung != 0;
}
void card_slave_error(void* card, uint32_t port, uint64_t address) {
  static_cast<Card*>(card)->port(port).faults().slave_error_at = address;
}

#ifdef CARD_CHECKS
const char* card_coverage(void* card) { return static_cast<Card*>(card)->coverage(); }
#endif

#ifdef CARD_DEBUG
int card_peek(void* card, const char* name, int64_t index, uint32_t* words, int max_words) {
  return static_cast<Card*>(card)->peek(name, index, words, max_words);
}
void card_waves(void* card, const char* path) { static_cast<Card*>(card)->waves(path); }
#endif

}  // extern "C"
