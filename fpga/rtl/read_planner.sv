// Walks the linked program for each pass and says what every port has to read, in stream order.
//
// What:       Runs ahead of everything: over instructions, layers, tokens and passes, as far as the
//             FIFOs behind it allow. One stream command goes to all ports alike; port_planner makes
//             each port's addresses and counts of it. KV reads wait until the writes of all earlier
//             passes to that layer are acknowledged (every pass runs every ROPE_KV).
// Latency:    about 12 cycles from a pass descriptor to the first command.
// Throughput: one command a cycle; an instruction without a read takes one cycle, ROPE_ROW one
//             more, ATTENTION two more.
// Golden:     tests/support/stream_model.py (order of the stream)
`default_nettype none
`include "isa.svh"

module read_planner #(
    parameter int PORTS = 1,   // memory ports: 1, 2, 4 .. 32
    parameter int LANES = 1,   // lanes: 1, 2, 4, 8
    parameter int PC_BITS = 16 // width of an instruction index
) (
    input  wire                    clk,
    input  wire                    rst,
    input  wire                    clear,            // begin of a start: forget everything
    // linked program, read only while a pass is in work
    output logic [PC_BITS-1:0]     pc,
    input  wire  [511:0]           pc_word,          // one cycle after pc
    // from the command header, stable during a start
    input  wire  [31:0]            cmd_slot_beats,
    input  wire  [31:0]            cmd_layer_beats,
    input  wire  [31:0]            cmd_k_beats,
    input  wire  [31:0]            cmd_v_beats,
    // pass descriptor (pass_scheduler), kept here from the cycle it is taken
    input  wire                    pass_valid,
    output logic                   pass_ready,
    input  wire  [LANES-1:0]       pass_rows,
    input  wire  [LANES-1:0]       pass_sampled,
    input  wire  [LANES-1:0]       pass_leader,
    input  wire  [LANES*LANES-1:0] pass_group,
    input  wire  [LANES*20-1:0]    pass_position,
    input  wire  [LANES*20-1:0]    pass_lo,
    input  wire  [LANES*20-1:0]    pass_mem_len,
    input  wire  [LANES*20-1:0]    pass_prefix_len,
    input  wire  [LANES*16-1:0]    pass_slot,
    input  wire  [LANES*16-1:0]    pass_tail_slot,
    // ROPE_KV instructions executed since `clear` whose writes are all acknowledged, on all ports
    input  wire  [31:0]            kv_done_count,
    output logic                   idle,             // no pass in work, no command waiting
    output logic                   fence_wait,       // a KV read waits for writes (utilisation)
    // stream commands: to memory_port p with s_valid[p], s_ready[p]
    output logic [PORTS-1:0]       s_valid,
    input  wire  [PORTS-1:0]       s_ready,
    output logic [133+LANES-1:0]   s_command         // fields: see port_planner
);
  localparam [2:0] KIND_MATRIX = 3'd0;
  localparam [2:0] KIND_ROPE_ROW = 3'd1;
  localparam [2:0] KIND_GAMMA = 3'd2;
  localparam [2:0] KIND_SCALE = 3'd3;  // then KV_K = 4, KV_V = 5
  localparam [1:0] S_NEXT = 2'd0;
  localparam [1:0] S_ROWS = 2'd1;   // ROPE_ROW: a command for each row
  localparam [1:0] S_FENCE = 2'd2;  // ATTENTION: wait for earlier passes' writes
  localparam [1:0] S_KV = 2'd3;     // ATTENTION: six commands for each group
  localparam int HELD_WORDS = 6;    // words of an instruction that matter here
  localparam int COMMAND_BITS = 133 + LANES;

  function automatic [LANES-1:0] lowest(input [LANES-1:0] mask_i);
    lowest = mask_i & (~mask_i + 1'b1);
  endfunction

  function automatic [19:0] larger(input [19:0] a_i, input [19:0] b_i);
    larger = a_i > b_i ? a_i : b_i;
  endfunction

  function automatic [19:0] smaller(input [19:0] a_i, input [19:0] b_i);
    smaller = a_i < b_i ? a_i : b_i;
  endfunction

  // ---- the pass in work
  logic                   have_pass;
  logic [LANES-1:0]       rows, sampled, leader;
  logic [LANES*LANES-1:0] group;
  logic [LANES*20-1:0]    position, lo, mem_len, prefix_len;
  logic [LANES*16-1:0]    slot, tail_slot;
  wire                    pass_over;

  assign pass_ready = !have_pass;

  always_ff @(posedge clk) begin
    if (pass_ready && pass_valid) begin
      rows       <= pass_rows;
      sampled    <= pass_sampled;
      leader     <= pass_leader;
      group      <= pass_group;
      position   <= pass_position;
      lo         <= pass_lo;
      mem_len    <= pass_mem_len;
      prefix_len <= pass_prefix_len;
      slot       <= pass_slot;
      tail_slot  <= pass_tail_slot;
    end
    if (rst || clear) have_pass <= 1'b0;
    else if (pass_ready) have_pass <= pass_valid;
    else if (pass_over) have_pass <= 1'b0;
  end

  // ---- instructions, fetched ahead up to END
  logic       asked;      // pc_word answers a request
  logic       seen_end;
  wire  [2:0] held;
  wire        fetch_room;
  wire        inst_valid;
  wire        inst_take;
  wire [HELD_WORDS*32-1:0] inst;

  wire word_ends = asked && pc_word[7:0] == `OP_END;
  wire ask = have_pass && !seen_end && !word_ends && held + {2'd0, asked} < 3'd4;

  always_ff @(posedge clk) begin
    if (rst || clear) begin
      asked    <= 1'b0;
      seen_end <= 1'b0;
      pc       <= '0;
    end else begin
      asked    <= ask;
      seen_end <= (seen_end || word_ends) && !pass_over;
      if (word_ends) pc <= '0;
      else if (ask) pc <= pc + 1'b1;
    end
  end

  stream_fifo #(
      .WIDTH(HELD_WORDS * 32),
      .DEPTH(4)
  ) u_instructions (
      .clk      (clk),
      .rst      (rst),
      .clear    (clear),
      .in_valid (asked),
      .in_ready (fetch_room),
      .in_data  (pc_word[HELD_WORDS*32-1:0]),
      .out_valid(inst_valid),
      .out_ready(inst_take),
      .out_data (inst),
      .level    (held)
  );

  wire [7:0]  opcode = inst[7:0];
  wire [31:0] word1 = inst[32+:32];
  wire [31:0] word2 = inst[64+:32];
  wire [31:0] word4 = inst[128+:32];
  wire [31:0] word5 = inst[160+:32];
  wire [7:0]  num_kv_heads = inst[96+:8];  // ATTENTION: word 3, head_dim: word 4

  // ---- walk
  logic [1:0]       state;
  logic [LANES-1:0] todo;        // rows or groups still to be done
  logic [2:0]       phase;       // scales R0, R1, keys R0, R1, values R0, R1
  logic [31:0]      ropes;       // ROPE_KV walked since clear
  logic [31:0]      pass_ropes;  // in this pass
  logic [31:0]      last_ropes;  // in the pass before
  logic             first_pass;
  logic [31:0]      needed;      // KV writes that must be done: those of all earlier passes to this layer
  wire              moves;       // the pipeline below takes a command

  wire [LANES-1:0] lanes = inst[`ISA_FLAG_SAMPLED_BIT] ? rows & sampled : rows;
  wire is_matrix = opcode == `OP_MATMUL || opcode == `OP_HEAD;
  wire is_gamma = opcode == `OP_NORMQUANT;
  wire [31:0] whole_beats = is_gamma ? word5 : word2;
  wire decode = state == S_NEXT && inst_valid;
  wire wanted = decode && lanes != '0;
  wire emit_whole = wanted && (is_matrix || is_gamma) && whole_beats != 32'd0;
  wire emit_row = state == S_ROWS;
  wire emit_kv = state == S_KV;
  wire emit = emit_whole || emit_row || emit_kv;
  wire [LANES-1:0] now = lowest(todo);
  wire todo_last = todo == now;
  wire group_over = phase == 3'd5;
  wire to_rows = wanted && opcode == `OP_ROPEROW && word2 != 32'd0;

  logic [LANES-1:0] leading;  // rows whose group has a row this instruction is for
  for (genvar r = 0; r < LANES; r++) begin : g_leading
    assign leading[r] = leader[r] && (group[r*LANES+:LANES] & lanes) != '0;
  end
  wire to_kv = wanted && opcode == `OP_ATTENTION && leading != '0;

  wire single = decode && !to_rows && !to_kv && (!emit_whole || moves);
  assign inst_take = single || (emit_row && moves && todo_last)
                     || (emit_kv && moves && todo_last && group_over);
  assign pass_over = decode && opcode == `OP_END;
  assign fence_wait = state == S_FENCE;

  always_ff @(posedge clk) begin
    if (to_rows) todo <= lanes;
    else if (to_kv) todo <= leading;
    else if (moves && (emit_row || (emit_kv && group_over))) todo <= todo & ~now;
    if (decode) phase <= 3'd0;
    else if (emit_kv && moves) phase <= group_over ? 3'd0 : phase + 3'd1;
    needed <= first_pass ? 32'd0 : ropes - last_ropes;
    if (rst || clear) begin
      state      <= S_NEXT;
      ropes      <= 32'd0;
      pass_ropes <= 32'd0;
      last_ropes <= 32'd0;
      first_pass <= 1'b1;
    end else begin
      case (state)
        S_NEXT: if (to_rows) state <= S_ROWS;
                else if (to_kv) state <= S_FENCE;
        S_ROWS: if (inst_take) state <= S_NEXT;
`ifdef BUG_READ_PLANNER_1
        S_FENCE: state <= S_KV;
`else
        S_FENCE: if (kv_done_count >= needed) state <= S_KV;
`endif
        default: if (inst_take) state <= S_NEXT;
      endcase
      if (decode && opcode == `OP_ROPEKV) begin
        ropes      <= ropes + 32'd1;
        pass_ropes <= pass_ropes + 32'd1;
      end else if (pass_over) begin
        pass_ropes <= 32'd0;
        last_ropes <= pass_ropes;
        first_pass <= 1'b0;
      end
    end
  end

  // ---- step 0: one command; the fields of its row (kind 0 and 2: none)
  logic [19:0] now_position, now_lo, now_mem, now_prefix;
  logic [15:0] now_slot, now_tail;
  logic [LANES-1:0] now_group;
  always_comb begin
    now_position = 20'd0;
    now_lo       = 20'd0;
    now_mem      = 20'd0;
    now_prefix   = 20'd0;
    now_slot     = 16'd0;
    now_tail     = 16'd0;
    now_group    = '0;
    for (int r = 0; r < LANES; r++) begin
      if (now[r]) begin
        now_position = now_position | position[r*20+:20];
        now_lo       = now_lo | lo[r*20+:20];
        now_mem      = now_mem | mem_len[r*20+:20];
        now_prefix   = now_prefix | prefix_len[r*20+:20];
        now_slot     = now_slot | slot[r*16+:16];
        now_tail     = now_tail | tail_slot[r*16+:16];
        now_group    = now_group | group[r*LANES+:LANES];
      end
    end
  end

  wire [2:0] kv_kind = KIND_SCALE + {1'b0, phase[2:1]};

  logic [4:0]       step;  // step[i]: registers of step i hold a command
  logic [2:0]       kind0, kind1, kind2, kind3, kind4;
  logic [LANES-1:0] lanes0, lanes1, lanes2, lanes3, lanes4;
  logic             last0, last1, last2, last3, last4;
  logic [31:0]      base0, base1, base2, base3;  // offset without the products
  logic [31:0]      beats0, beats1, beats2, beats3, beats4;
  logic [19:0]      lo0, mem0, prefix0;
  logic [19:0]      times0, times1;              // slot, or position of a ROPE_ROW
  logic [15:0]      layer0, layer1;
  logic [31:0]      stride0, stride1;
  logic [7:0]       heads0, heads1, heads2, heads3, heads4;
  logic [2:0]       dim_shift0;                  // 5, 6, 7: head_dim 32, 64, 128
  logic             tail0, kv0;

  always_ff @(posedge clk) begin
    if (moves && emit) begin
      kind0 <= emit_kv ? kv_kind : emit_row ? KIND_ROPE_ROW : is_gamma ? KIND_GAMMA : KIND_MATRIX;
      lanes0  <= emit_kv ? now_group & lanes : emit_row ? now : lanes;
      last0   <= emit_kv ? phase[0] : 1'b1;
      beats0  <= emit_row ? word2 : whole_beats;
      lo0     <= now_lo;
      mem0    <= now_mem;
      prefix0 <= now_prefix;
      times0  <= emit_row ? now_position : phase[0] ? {4'd0, now_tail} : {4'd0, now_slot};
      layer0  <= word1[15:0];
      stride0 <= emit_row ? word2 : cmd_slot_beats;
      heads0  <= emit_kv ? num_kv_heads : 8'd0;
      dim_shift0 <= word4[7] ? 3'd7 : word4[6] ? 3'd6 : 3'd5;
      tail0   <= phase[0];
      kv0     <= emit_kv;
      if (!emit_kv) base0 <= is_gamma ? word4 : word1;
      else base0 <= phase[2:1] == 2'd0 ? 32'd0 : phase[1] ? cmd_k_beats : cmd_v_beats;
    end
  end

  // ---- step 1: range of the command; steps 2, 3: offset = base + times * stride + layer * layer_beats
  logic [19:0] from1, from2, from3, from4;
  logic [19:0] to1, to2, to3, to4;
  logic [15:0] record1, record2, record3, record4;
  logic        half1, half2, half3, half4;
  logic        kv1, rows1;
  logic [31:0] product2, product3, layers2, offset4;

`ifdef BUG_READ_PLANNER_2
  wire [19:0] start_of_tail = prefix0;
`else
  wire [19:0] start_of_tail = larger(lo0, prefix0);
`endif

  always_ff @(posedge clk) begin
    if (moves && step[0]) begin
      kind1   <= kind0;
      lanes1  <= lanes0;
      last1   <= last0;
      base1   <= base0;
      beats1  <= kv0 ? 32'd0 : beats0;
      from1   <= !kv0 ? 20'd0 : tail0 ? start_of_tail : lo0;
      to1     <= !kv0 ? 20'd0 : tail0 ? larger(mem0, start_of_tail)
                                      : larger(lo0, smaller(prefix0, mem0));
      times1  <= times0;
      stride1 <= stride0;
      layer1  <= layer0;
      kv1     <= kv0;
      rows1   <= kind0 == KIND_ROPE_ROW;
      heads1  <= heads0;
      record1 <= kind0 == KIND_SCALE ? {5'd0, heads0, 3'd0} : 16'({8'd0, heads0} << dim_shift0);
      half1   <= kv0 && dim_shift0 == 3'd5;
    end
    if (moves && step[1]) begin
      kind2    <= kind1;
      lanes2   <= lanes1;
      last2    <= last1;
      base2    <= base1;
      beats2   <= beats1;
      from2    <= from1;
      to2      <= to1;
      heads2   <= heads1;
      record2  <= record1;
      half2    <= half1;
      product2 <= kv1 || rows1 ? 32'(times1) * stride1 : 32'd0;
      layers2  <= kv1 ? 32'(layer1) * cmd_layer_beats : 32'd0;
    end
    if (moves && step[2]) begin
      kind3    <= kind2;
      lanes3   <= lanes2;
      last3    <= last2;
      base3    <= base2 + layers2;
      beats3   <= beats2;
      from3    <= from2;
      to3      <= to2;
      heads3   <= heads2;
      record3  <= record2;
      half3    <= half2;
      product3 <= product2;
    end
    if (moves && step[3]) begin
      kind4   <= kind3;
      lanes4  <= lanes3;
      last4   <= last3;
      offset4 <= base3 + product3;
      beats4  <= beats3;
      from4   <= from3;
      to4     <= to3;
      heads4  <= heads3;
      record4 <= record3;
      half4   <= half3;
    end
    if (rst || clear) step <= 5'd0;
    else if (moves) step <= {step[3:0], emit};
  end

  // ---- to all ports, each of which takes it in its own time
  wire               wait_valid;
  wire               wait_taken;
  wire               stage_ready;
  logic [PORTS-1:0]  sent;

  assign moves = stage_ready || !step[4];

  slr_stage #(
      .WIDTH (COMMAND_BITS),
      .STAGES(1)
  ) u_stage (
      .clk      (clk),
      .rst      (rst || clear),
      .in_valid (step[4]),
      .in_ready (stage_ready),
      .in_data  ({half4, heads4, record4, to4, from4, beats4, offset4, last4, lanes4, kind4}),
      .out_valid(wait_valid),
      .out_ready(wait_taken),
      .out_data (s_command)
  );

  assign s_valid    = wait_valid ? ~sent : '0;
  assign wait_taken = &(sent | s_ready);
  assign idle       = !have_pass && step == 5'd0 && !wait_valid;

  always_ff @(posedge clk) begin
    if (rst || clear || !wait_valid || wait_taken) sent <= '0;
    else sent <= sent | s_ready;
  end

  // verilator lint_off UNUSED
  wire unused = fetch_room | |pc_word[511:HELD_WORDS*32] | |inst[31:9] | |inst[127:104];
  // verilator lint_on UNUSED

`ifdef HETERO_ASSERT
  always_ff @(posedge clk) begin
    if (!rst && !clear) begin
      assert (!asked || fetch_room) else $fatal(1, "read_planner: instruction lost");
      assert (!pass_over || state == S_NEXT) else $fatal(1, "read_planner: END in a state of work");
    end
  end
`endif
`ifdef HETERO_COVER
  logic [31:0] cov_fence;    // a KV read waited for writes
  logic [31:0] cov_blocked;  // a command waited for the ports
  always_ff @(posedge clk) begin
    if (rst) begin
      cov_fence   <= 32'd0;
      cov_blocked <= 32'd0;
    end else begin
      if (state == S_FENCE && kv_done_count < needed) cov_fence <= cov_fence + 32'd1;
      if (emit && !moves) cov_blocked <= cov_blocked + 32'd1;
    end
  end
`endif
`ifndef SYNTHESIS
  if (PORTS < 1 || PORTS > 32 || (PORTS & (PORTS - 1)) != 0) begin : g_check_ports
    initial $fatal(1, "read_planner: PORTS = %0d must be a power of two, 1..32", PORTS);
  end
  if (LANES < 1 || LANES > 8 || (LANES & (LANES - 1)) != 0) begin : g_check_lanes
    initial $fatal(1, "read_planner: LANES = %0d must be a power of two, 1..8", LANES);
  end
`endif
endmodule

`default_nettype wire
