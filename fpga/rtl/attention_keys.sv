// Scores of the keys: the first half of an attention_port.
//
// What: For each step (one chunk of a key record, ATTN_HEADS query heads) the dot products; at a
//   record's last chunk the scores s = sat32(rnd(rnd(dot * Mk, 12) * Mq, Eq + Ek - 28)) and the
//   largest score of each query head so far.
// Latency: 12 cycles and a chunk from step to score; `pending` says that some are on their way.
// Throughput: one step a cycle, never stalls.
// Golden: fpga/golden/attention.py::_weights
`default_nettype none

module attention_keys #(
    parameter int ATTN_HEADS = 3,   // query heads at once
    parameter int ATTN_BYTES = 64,  // bytes of a chunk
    parameter int CHUNKS = 1,       // chunks of the longest record, a power of two
    parameter int ENTRIES = 16,     // kv heads times sets of query heads, at most
    parameter int SCORES = 1024,    // scores kept for each of the ATTN_HEADS
    parameter int ENTRY_BITS = 4,
    parameter int CHUNK_BITS = 1,
    parameter int SCORE_BITS = 10,
    parameter int SLOT_BITS = 2
) (
    input  wire                       clk,
    input  wire                       rst,
    input  wire                       clear,     // forget the largest scores
    // query registers: written a chunk at a time
    input  wire                       q_we,
    input  wire  [SLOT_BITS-1:0]      q_slot,    // which of the ATTN_HEADS
    input  wire  [ENTRY_BITS-1:0]     q_entry,
    // verilator lint_off UNUSEDSIGNAL
    input  wire  [CHUNK_BITS-1:0]     q_chunk,   // 0 if CHUNKS is 1
    // verilator lint_on UNUSEDSIGNAL
    input  wire  [ATTN_BYTES*8-1:0]   q_data,
    input  wire  [15:0]               q_mant,
    input  wire  [15:0]               q_exp,
    // steps
    input  wire                       in_valid,
    input  wire                       in_first,  // first chunk of a record
    input  wire                       in_last,   // last chunk of a record
    input  wire  [ENTRY_BITS-1:0]     in_entry,
    // verilator lint_off UNUSEDSIGNAL
    input  wire  [CHUNK_BITS-1:0]     in_chunk,
    // verilator lint_on UNUSEDSIGNAL
    input  wire  [SCORE_BITS-1:0]     in_score,  // where its score goes
    input  wire  [ATTN_BYTES*8-1:0]   in_data,
    input  wire  [15:0]               in_mant,   // the key's scale
    input  wire  [15:0]               in_exp,
    output wire                       pending,
    // scores: read one cycle after score_re
    input  wire                       score_re,
    input  wire  [SCORE_BITS-1:0]     score_index,
    output logic [ATTN_HEADS*32-1:0]  score_data,
    // largest scores: read one cycle after max_re
    input  wire                       max_re,
    input  wire  [SLOT_BITS-1:0]      max_slot,
    input  wire  [ENTRY_BITS-1:0]     max_entry,
    output logic                      max_seen,  // there is one
    output logic [31:0]               max_value
);
    // ------------------------------------------------------------------ 1: query and key chunks
    localparam int QUERY_BITS = ENTRY_BITS + (CHUNKS > 1 ? CHUNK_BITS : 0);
    wire [QUERY_BITS-1:0] q_address, in_address;
    if (CHUNKS > 1) begin : g_chunks
        assign q_address = {q_entry, q_chunk};
        assign in_address = {in_entry, in_chunk};
    end else begin : g_chunk
        assign q_address = q_entry;
        assign in_address = in_entry;
    end

    logic valid1;
    logic [ATTN_BYTES*8-1:0] key1;
    always_ff @(posedge clk) begin
        if (in_valid) key1 <= in_data;
        valid1 <= in_valid;
        if (rst) valid1 <= 1'b0;
    end

    // what belongs to a step, until its dot products are there
    wire [ATTN_HEADS-1:0] dot_valid;
    wire [2+ENTRY_BITS+SCORE_BITS+32-1:0] step_info;
    order_ram #(.WIDTH(2 + ENTRY_BITS + SCORE_BITS + 32), .DEPTH(16)) steps (
        .clk, .rst,
        .push(in_valid),
        .in_data({in_first, in_last, in_entry, in_score, in_mant, in_exp}),
        .pop(dot_valid[0]),
        .out_data(step_info)
    );
    wire dot_first, dot_last;
    wire [ENTRY_BITS-1:0] dot_entry;
    wire [SCORE_BITS-1:0] dot_score;
    wire [15:0] dot_mant, dot_exp;
    assign {dot_first, dot_last, dot_entry, dot_score, dot_mant, dot_exp} = step_info;

    // ------------------------------------------------------------------ 5: sum of the chunks
    logic valid5, valid6, valid7, valid8;
    logic [ENTRY_BITS-1:0] entry5;
    logic [15:0] mant5, exp5, exp6, exp7;
    always_ff @(posedge clk) begin
        if (dot_valid[0] && dot_last) begin
            entry5 <= dot_entry;
            mant5 <= dot_mant;
            exp5 <= dot_exp;
        end
        if (valid5) exp6 <= exp5;
        if (valid6) exp7 <= exp6;
        valid5 <= dot_valid[0] && dot_last;
        valid6 <= valid5;
        valid7 <= valid6;
        valid8 <= valid7;
        if (rst) {valid5, valid6, valid7, valid8} <= '0;
    end

    // where a score goes, until it is there
    wire [ATTN_HEADS-1:0] score_valid;
    wire [ENTRY_BITS-1:0] score_entry;
    wire [SCORE_BITS-1:0] score_to;
    order_ram #(.WIDTH(ENTRY_BITS + SCORE_BITS), .DEPTH(16)) targets (
        .clk, .rst,
        .push(dot_valid[0] && dot_last),
        .in_data({dot_entry, dot_score}),
        .pop(score_valid[0]),
        .out_data({score_entry, score_to})
    );

    logic [ENTRIES-1:0] seen;
    always_ff @(posedge clk) begin
        if (score_valid[0]) seen[score_entry] <= 1'b1;
        if (clear) seen <= '0;
    end

    wire [ATTN_HEADS*32-1:0] scores_now, largest_read;
    for (genvar s = 0; s < ATTN_HEADS; s++) begin : g_head
        // query registers
        logic [ATTN_BYTES*8-1:0] query [0:ENTRIES*CHUNKS-1];
        logic [31:0] query_scale [0:ENTRIES-1];
        logic [ATTN_BYTES*8-1:0] query1;
        logic [31:0] scale6, scale7;
        wire write = q_we && q_slot == SLOT_BITS'(s);
        always_ff @(posedge clk) begin
            if (write) query[q_address] <= q_data;
            if (write) query_scale[q_entry] <= {q_mant, q_exp};
            if (in_valid) query1 <= query[in_address];
            if (valid5) scale6 <= query_scale[entry5];
            if (valid6) scale7 <= scale6;
        end

        wire signed [21:0] dot;
        dot_int8 #(.BYTES(ATTN_BYTES)) dots (
            .clk, .rst, .in_valid(valid1), .in_a(key1), .in_b(query1),
            .out_valid(dot_valid[s]), .out_dot(dot)
        );

        // 5 sum, 6 times Mk, 7 rounded, 8 times Mq
        logic signed [21:0] sum5;
        logic signed [38:0] scaled6;
        logic signed [26:0] rounded7;
        logic signed [43:0] scaled8;
        logic signed [19:0] shift8;
        // verilator lint_off UNUSEDSIGNAL
        wire signed [38:0] plus_half = scaled6 + 39'sd2048;
        // verilator lint_on UNUSEDSIGNAL
        always_ff @(posedge clk) begin
            if (dot_valid[s]) sum5 <= dot_first ? dot : sum5 + dot;
            if (valid5) scaled6 <= sum5 * $signed({1'b0, mant5});
            if (valid6) rounded7 <= plus_half[38:12];
            if (valid7) scaled8 <= rounded7 * $signed({1'b0, scale7[31:16]});
`ifdef BUG_ATTENTION_KEYS_1
            if (valid7) shift8 <= 20'($signed(scale7[15:0])) + 20'($signed(exp7)) - 20'sd27;
`else
            if (valid7) shift8 <= 20'($signed(scale7[15:0])) + 20'($signed(exp7)) - 20'sd28;
`endif
        end
        wire signed [31:0] score;
        round_sat #(.WIDTH(44)) rounder (
            .clk, .rst, .in_valid(valid8), .in_value(scaled8), .in_shift(shift8),
            .out_valid(score_valid[s]), .out_value(score)
        );
        assign scores_now[s*32 +: 32] = score;

        // the largest one of each entry
        logic signed [31:0] largest [0:ENTRIES-1];
        wire signed [31:0] so_far = largest[score_entry];
        assign largest_read[s*32 +: 32] = largest[max_entry];
        always_ff @(posedge clk)
            if (score_valid[s] && (!seen[score_entry] || score > so_far))
                largest[score_entry] <= score;
    end

    // ------------------------------------------------------------------ score memory, answers
    logic [ATTN_HEADS*32-1:0] score_mem [0:SCORES-1];
    always_ff @(posedge clk) begin
        if (score_valid[0]) score_mem[score_to] <= scores_now;
        if (score_re) score_data <= score_mem[score_index];
        if (max_re) begin
            max_seen <= seen[max_entry];
            max_value <= largest_read[max_slot*32 +: 32];
        end
    end

    // from the first chunk's step to the store of its score
    logic [5:0] steps_left, scores_left;
    assign pending = steps_left != 6'd0 || scores_left != 6'd0;
    always_ff @(posedge clk) begin
        steps_left <= steps_left + 6'(in_valid) - 6'(dot_valid[0]);
        scores_left <= scores_left + 6'(dot_valid[0] && dot_last) - 6'(score_valid[0]);
        if (rst) {steps_left, scores_left} <= '0;
    end

`ifndef SYNTHESIS
    if ((CHUNKS & (CHUNKS - 1)) != 0) begin : g_check
        initial $fatal(1, "attention_keys: CHUNKS = %0d must be a power of two", CHUNKS);
    end
`endif
endmodule

`default_nettype wire
