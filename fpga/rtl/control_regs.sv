// Control registers: an AXI4-Lite slave with AMD's ap_ctrl_chain protocol (UG1393, UG1399).
//
// What:       START is kept until the core is idle and the last DONE was acknowledged, then given
//             as a pulse. RESET raises `drain` until the core has said `drained` for 16 cycles,
//             then `core_rst` for 16 cycles; arguments and interrupt enables stay. Writes to what
//             is read-only or unmapped are answered and ignored; unmapped reads give 0. Map:
//             fpga/regmap/regs.toml.
// Latency:    2 cycles from the later of address and data to the answer; 2 for a read.
// Throughput: a write and a read every 2 cycles, independent of each other.
// Golden:     sim/kernel.py::DraftKernel, its read and write; the map: fpga/regmap/regs.toml.
`default_nettype none
`include "registers.svh"
`include "isa.svh"
`include "tables.svh"

module control_regs #(
    parameter int PORTS = 4,               // address registers in use: 1..32, the others read 0
    parameter int LANES = 4,               // what MAX_LANES reads
    parameter int MAX_READ_TOKENS = 512,   // what MAX_READ_TOKENS reads
    parameter int MAX_DRAFT_TOKENS = 16,   // what MAX_DRAFT_TOKENS reads
    parameter int VECTOR_WORDS = 16384,    // what VECTOR_WORDS reads
    parameter int CLOCK_HZ = 300000000,    // what CLOCK_HZ reads
    parameter logic [127:0] BUILD_HASH = 128'd0  // what BUILD_HASH reads, first byte lowest
) (
    input  wire                 clk,
    input  wire                 rst,
    input  wire                 awvalid,
    output wire                 awready,
    input  wire  [11:0]         awaddr,
    input  wire                 wvalid,
    output wire                 wready,
    input  wire  [31:0]         wdata,
    input  wire  [3:0]          wstrb,
    output logic                bvalid,
    input  wire                 bready,
    output wire  [1:0]          bresp,        // always OKAY
    input  wire                 arvalid,
    output wire                 arready,
    input  wire  [11:0]         araddr,
    output logic                rvalid,
    input  wire                 rready,
    output logic [31:0]         rdata,
    output wire  [1:0]          rresp,        // always OKAY
    output logic                irq,          // the kernel's `interrupt`
    // core
    output logic                core_start,   // pulse: arguments are valid, begin
    input  wire                 core_done,    // pulse: the result is in memory
    input  wire  [63:0]         cycles,       // what CYCLES reads
    output logic                drain,        // level: issue nothing new, let memory answer
    input  wire                 drained,      // level: nothing issued is unanswered
    output logic                core_rst,     // level: reset everything behind these registers
    // arguments
    output logic [63:0]         command_addr,
    output logic [63:0]         result_addr,
    output logic [63:0]         program_addr,
    output logic [PORTS*64-1:0] weight_addr,  // port p at [p*64 +: 64]
    output logic [PORTS*64-1:0] kv_addr
);
  localparam logic [4:0] SETTLE = 5'd16;  // cycles for `drained`, and for `core_rst`

  // Bytes of a register that a write changes.
  function automatic logic [31:0] merged(input logic [31:0] old_i, input logic [31:0] new_i,
                                         input logic [3:0] strobe_i);
    begin
      merged = old_i;
      for (int i = 0; i < 4; i++) if (strobe_i[i]) merged[i*8+:8] = new_i[i*8+:8];
    end
  endfunction

  // ---- Write channel: address and data may come in either order.
  logic        aw_held, w_held;
  logic [11:0] aw_addr;
  logic [31:0] w_data;
  logic [3:0]  w_strobe;
  wire         write = aw_held && w_held && (!bvalid || bready);
  wire [11:0]  to = {aw_addr[11:2], 2'b00};
  wire         low_byte = write && w_strobe[0];

  assign awready = !aw_held;
  assign wready  = !w_held;
  assign bresp   = 2'b00;
  assign rresp   = 2'b00;

  always_ff @(posedge clk) begin
    if (awready && awvalid) aw_addr <= awaddr;
    if (wready && wvalid) begin
      w_data <= wdata;
      w_strobe <= wstrb;
    end
    if (rst) begin
      aw_held <= 1'b0;
      w_held <= 1'b0;
      bvalid <= 1'b0;
    end else begin
      aw_held <= aw_held ? !write : awvalid;
      w_held <= w_held ? !write : wvalid;
      if (write) bvalid <= 1'b1;
      else if (bready) bvalid <= 1'b0;
    end
  end

  // ---- Start, completion, reset.
  logic       start, running, complete, was_drained;
  logic [4:0] settle;
  wire        to_control = low_byte && to == `REG_CTRL;
  wire        idle = !start && !running && !drain;
  wire        give = start && !running && !complete && !drain;

  always_ff @(posedge clk) begin
    core_start <= give && !rst;
    if (rst) begin
      start <= 1'b0;
      running <= 1'b0;
      complete <= 1'b0;
      drain <= 1'b0;
      core_rst <= 1'b0;
      was_drained <= 1'b0;
      settle <= SETTLE;
    end else begin
      if (to_control && w_data[`REG_CTRL_START_BIT]) start <= 1'b1;
      else if (give) start <= 1'b0;
      if (give) begin
        running <= 1'b1;
        was_drained <= 1'b0;
      end
`ifdef BUG_CONTROL_REGS_1
      if (core_done) running <= 1'b0;
      if (to_control && w_data[`REG_CTRL_CONTINUE_BIT]) complete <= 1'b0;
      else if (core_done) complete <= 1'b1;
`else
      if (core_done) begin
        running <= 1'b0;
        complete <= 1'b1;
      end else if (to_control && w_data[`REG_CTRL_CONTINUE_BIT]) complete <= 1'b0;
`endif
      if (low_byte && to == `REG_RESET && w_data[`REG_RESET_DRAIN_BIT]) begin
        drain <= 1'b1;
        was_drained <= 1'b0;
      end
      if (drain) begin
        settle <= core_rst || drained ? settle - 5'd1 : SETTLE;
        if (settle == 5'd0) begin
          settle <= SETTLE;
          core_rst <= !core_rst;
          if (core_rst) begin
            drain <= 1'b0;
            was_drained <= 1'b1;
            start <= 1'b0;
            running <= 1'b0;
            complete <= 1'b0;
          end
        end
      end
    end
  end

  // ---- Interrupts: both events are the end of a start.
  logic       global_enable;
  logic [1:0] enable, status;
  wire  [1:0] toggle = low_byte && to == `REG_ISR ? w_data[1:0] : 2'b00;
  always_ff @(posedge clk) begin
    irq <= global_enable && status != 2'b00 && !rst;
    if (rst) begin
      global_enable <= 1'b0;
      enable <= 2'b00;
      status <= 2'b00;
    end else begin
      if (low_byte && to == `REG_GIE) global_enable <= w_data[`REG_GIE_ENABLE_BIT];
      if (low_byte && to == `REG_IER) enable <= w_data[1:0];
      status <= (status ^ toggle) | (core_done ? enable : 2'b00);
    end
  end

  // ---- Arguments. In an array of addresses word i is half of address i/2.
  wire [5:0] to_word = aw_addr[7:2];
  wire       to_weight = write && to[11:8] == 4'h1 && 32'(to_word) < 2 * PORTS;
  wire       to_kv = write && to[11:8] == 4'h2 && 32'(to_word) < 2 * PORTS;
  always_ff @(posedge clk) begin
    if (write) begin
      case (to)
        `REG_COMMAND_ADDR: command_addr[31:0] <= merged(command_addr[31:0], w_data, w_strobe);
        `REG_COMMAND_ADDR + 12'd4:
          command_addr[63:32] <= merged(command_addr[63:32], w_data, w_strobe);
        `REG_RESULT_ADDR: result_addr[31:0] <= merged(result_addr[31:0], w_data, w_strobe);
        `REG_RESULT_ADDR + 12'd4:
          result_addr[63:32] <= merged(result_addr[63:32], w_data, w_strobe);
        `REG_PROGRAM_ADDR: program_addr[31:0] <= merged(program_addr[31:0], w_data, w_strobe);
        `REG_PROGRAM_ADDR + 12'd4:
          program_addr[63:32] <= merged(program_addr[63:32], w_data, w_strobe);
        default: ;
      endcase
    end
    // By constant places: a part select at a variable place becomes a shifter.
    for (int i = 0; i < 2 * PORTS; i++) begin
      if (to_weight && to_word == 6'(i))
        weight_addr[i*32+:32] <= merged(weight_addr[i*32+:32], w_data, w_strobe);
      if (to_kv && to_word == 6'(i))
        kv_addr[i*32+:32] <= merged(kv_addr[i*32+:32], w_data, w_strobe);
    end
    if (rst) begin
      command_addr <= 64'd0;
      result_addr <= 64'd0;
      program_addr <= 64'd0;
      weight_addr <= '0;
      kv_addr <= '0;
    end
  end

  // ---- Read channel.
  logic        ar_held;
  logic [11:0] ar_addr;
  wire  [11:0] from = {ar_addr[11:2], 2'b00};
  wire  [5:0]  from_word = ar_addr[7:2];
  wire         there = 32'(from_word) < 2 * PORTS;
  wire  [5:0]  safe_word = there ? from_word : 6'd0;
  wire         answer = ar_held && (!rvalid || rready);
  wire  [31:0] control_word = (32'(start) << `REG_CTRL_START_BIT) |
                              (32'(complete) << `REG_CTRL_DONE_BIT) |
                              (32'(idle) << `REG_CTRL_IDLE_BIT) | (32'(idle) << `REG_CTRL_READY_BIT);
  assign arready = !ar_held;

  always_ff @(posedge clk) begin
    if (answer) begin
      rdata <= 32'd0;
      if (from[11:8] == 4'h1 && there) rdata <= weight_addr[32'(safe_word)*32+:32];
      if (from[11:8] == 4'h2 && there) rdata <= kv_addr[32'(safe_word)*32+:32];
      case (from)
        `REG_CTRL: rdata <= control_word;
        `REG_GIE: rdata <= {31'd0, global_enable};
        `REG_IER: rdata <= {30'd0, enable};
        `REG_ISR: rdata <= {30'd0, status};
        `REG_COMMAND_ADDR: rdata <= command_addr[31:0];
        `REG_COMMAND_ADDR + 12'd4: rdata <= command_addr[63:32];
        `REG_RESULT_ADDR: rdata <= result_addr[31:0];
        `REG_RESULT_ADDR + 12'd4: rdata <= result_addr[63:32];
        `REG_PROGRAM_ADDR: rdata <= program_addr[31:0];
        `REG_PROGRAM_ADDR + 12'd4: rdata <= program_addr[63:32];
        `REG_TYPE: rdata <= `REG_TYPE_ID;
        `REG_VERSION: rdata <= `REG_INTERFACE_VERSION;
        `REG_ISA_VERSION: rdata <= `ISA_VERSION;
        `REG_ARITHMETIC_VERSION: rdata <= `ARITHMETIC_VERSION;
        `REG_BUILD_HASH: rdata <= BUILD_HASH[31:0];
        `REG_BUILD_HASH + 12'd4: rdata <= BUILD_HASH[63:32];
        `REG_BUILD_HASH + 12'd8: rdata <= BUILD_HASH[95:64];
        `REG_BUILD_HASH + 12'd12: rdata <= BUILD_HASH[127:96];
        `REG_NUM_PORTS: rdata <= 32'(PORTS);
        `REG_MAX_LANES: rdata <= 32'(LANES);
        `REG_MAX_READ_TOKENS: rdata <= 32'(MAX_READ_TOKENS);
        `REG_MAX_DRAFT_TOKENS: rdata <= 32'(MAX_DRAFT_TOKENS);
        `REG_VECTOR_WORDS: rdata <= 32'(VECTOR_WORDS);
        `REG_CLOCK_HZ: rdata <= 32'(CLOCK_HZ);
        `REG_CYCLES: rdata <= cycles[31:0];
        `REG_CYCLES + 12'd4: rdata <= cycles[63:32];
        `REG_RESET: rdata <= {30'd0, was_drained, drain};
        default: ;
      endcase
    end
  end

  always_ff @(posedge clk) begin
    if (arready && arvalid) ar_addr <= araddr;
    if (rst) begin
      ar_held <= 1'b0;
      rvalid <= 1'b0;
    end else begin
      ar_held <= ar_held ? !answer : arvalid;
      if (answer) rvalid <= 1'b1;
      else if (rready) rvalid <= 1'b0;
    end
  end

  wire unused = &{1'b0, aw_addr[1:0], ar_addr[1:0]};

`ifndef SYNTHESIS
  if (PORTS < 1 || PORTS > `REG_WEIGHT_ADDR_COUNT) begin : g_check
    initial $fatal(1, "control_regs: PORTS = %0d must be 1 to %0d", PORTS, `REG_WEIGHT_ADDR_COUNT);
  end
`endif
endmodule

`default_nettype wire
