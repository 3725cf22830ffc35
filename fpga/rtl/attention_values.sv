// Weighted sums of the values: the second half of an attention_port.
//
// What: For each step (one chunk of a value record, ATTN_HEADS query heads): w = exp2n(m - s) of the
//   score that the keys left, D += w, u = rnd(w * Mv, 16 + Ev_j - Ev), acc += u * v for each byte.
// Latency: 14 cycles from step to sum; `pending` says that some are on their way.
// Throughput: one step a cycle, never stalls.
// Golden: fpga/golden/attention.py::_mix
`default_nettype none

module attention_values #(
    parameter int ATTN_HEADS = 3,   // query heads at once
    parameter int ATTN_BYTES = 64,  // bytes of a chunk
    parameter int CHUNKS = 1,       // chunks of the longest record, a power of two
    parameter int ENTRIES = 16,     // kv heads times sets of query heads, at most
    parameter int KV_HEADS = 8,     // kv heads, at most
    parameter int OUT_ELEMS = 4,    // sums given out at once
    parameter int ENTRY_BITS = 4,
    parameter int CHUNK_BITS = 1,
    parameter int SLOT_BITS = 2,
    parameter int KV_BITS = 3,      // bits of a kv head
    parameter int GROUP_BITS = 4    // bits of a number of OUT_ELEMS within CHUNKS * ATTN_BYTES
) (
    input  wire                       clk,
    input  wire                       rst,
    input  wire                       clear,      // forget the sums
    // largest score of each query head, unit of each kv head (over all ports)
    input  wire                       m_we,
    input  wire  [SLOT_BITS-1:0]      m_slot,
    input  wire  [ENTRY_BITS-1:0]     m_entry,
    input  wire  [31:0]               m_value,
    input  wire  [KV_BITS-1:0]        m_kv_head,
    input  wire  [15:0]               m_unit,     // Ev
    // steps; the score's read was asked for in the same cycle
    input  wire                       in_valid,
    input  wire                       in_first,   // first chunk of a record
    input  wire  [ENTRY_BITS-1:0]     in_entry,
    // verilator lint_off UNUSEDSIGNAL
    input  wire  [CHUNK_BITS-1:0]     in_chunk,   // 0 if CHUNKS is 1
    // verilator lint_on UNUSEDSIGNAL
    input  wire  [KV_BITS-1:0]        in_kv_head,
    input  wire  [ATTN_BYTES*8-1:0]   in_data,
    input  wire  [15:0]               in_mant,    // the value's scale
    input  wire  [15:0]               in_exp,
    input  wire  [ATTN_HEADS*32-1:0]  score_data, // one cycle after the step
    output wire                       pending,
    // sums, two cycles after sum_re: OUT_ELEMS of a head, which must be asked for in order, or its D
    // in the lowest place
    input  wire                       sum_re,
    input  wire                       sum_is_total, // D is asked for
    input  wire  [SLOT_BITS-1:0]      sum_slot,
    input  wire  [ENTRY_BITS-1:0]     sum_entry,
    input  wire  [GROUP_BITS-1:0]     sum_group,
    output logic [OUT_ELEMS*48-1:0]   sum_data
);
    localparam int GROUPS = ATTN_BYTES / OUT_ELEMS; // in a chunk
    localparam int GIC_BITS = $clog2(GROUPS);
    localparam int SUM_BITS = ENTRY_BITS + (CHUNKS > 1 ? CHUNK_BITS : 0);

    // ------------------------------------------------------------------ 1: score, maximum, unit
    logic [15:0] unit [0:KV_HEADS-1];
    logic [15:0] unit1, mant1, exp1;
    logic [ENTRY_BITS-1:0] entry1;
    logic valid1, valid2, first1;
    always_ff @(posedge clk) begin
        if (m_we) unit[m_kv_head] <= m_unit;
        if (in_valid) begin
            unit1 <= unit[in_kv_head];
            mant1 <= in_mant;
            exp1 <= in_exp;
            entry1 <= in_entry;
            first1 <= in_first;
        end
        valid1 <= in_valid;
        valid2 <= valid1;
        if (rst) {valid1, valid2} <= '0;
    end

    // ------------------------------------------------------------------ 2: distance; 7: weight w
    wire [ATTN_HEADS-1:0] w_valid, u_valid;
    wire w_first;
    wire [ENTRY_BITS-1:0] w_entry;
    wire [15:0] w_mant;
    wire signed [19:0] w_shift;
    order_ram #(.WIDTH(1 + ENTRY_BITS + 16 + 20), .DEPTH(16)) weights (
        .clk, .rst,
        .push(valid1),
        .in_data({first1, entry1, mant1, 20'($signed(exp1)) - 20'($signed(unit1)) + 20'sd16}),
        .pop(w_valid[0]),
        .out_data({w_first, w_entry, w_mant, w_shift})
    );
    logic valid8;
    logic signed [19:0] shift8;
    logic [ENTRIES-1:0] total_seen;
    always_ff @(posedge clk) begin
        if (w_valid[0]) shift8 <= w_shift;
        if (w_valid[0] && w_first) total_seen[w_entry] <= 1'b1;
        if (clear) total_seen <= '0;
        valid8 <= w_valid[0];
        if (rst) valid8 <= 1'b0;
    end

    // ------------------------------------------------------------------ 12: u meets its values
    wire [SUM_BITS-1:0] in_sum, sum_address;
    if (CHUNKS > 1) begin : g_chunks
        assign in_sum = {in_entry, in_chunk};
        assign sum_address = {sum_entry, sum_group[GIC_BITS +: CHUNK_BITS]};
    end else begin : g_chunk
        assign in_sum = in_entry;
        assign sum_address = sum_entry;
    end
    // values wait here for their weights; a memory without flags, used in order
    logic [SUM_BITS+ATTN_BYTES*8-1:0] waiting [0:31];
    logic [4:0] waiting_in, waiting_out;
    always_ff @(posedge clk) begin
        if (in_valid) waiting[waiting_in] <= {in_sum, in_data};
        if (in_valid) waiting_in <= waiting_in + 5'd1;
        if (u_valid[0]) waiting_out <= waiting_out + 5'd1;
        if (rst) {waiting_in, waiting_out} <= '0;
    end

    // ------------------------------------------------------------------ 13 product, 14 sum
    logic valid13;
    logic [SUM_BITS-1:0] sum13;
    logic [ENTRIES*CHUNKS-1:0] sum_seen;
    always_ff @(posedge clk) begin
        if (u_valid[0]) sum13 <= waiting[waiting_out][ATTN_BYTES*8 +: SUM_BITS];
        if (valid13) sum_seen[sum13] <= 1'b1;
        if (clear) sum_seen <= '0;
        valid13 <= u_valid[0];
        if (rst) valid13 <= 1'b0;
    end

    wire [ATTN_HEADS*OUT_ELEMS*48-1:0] chosen;
    wire first_group = sum_group[GIC_BITS-1:0] == '0; // of a chunk
    wire [ATTN_HEADS*40-1:0] totals;
    for (genvar s = 0; s < ATTN_HEADS; s++) begin : g_head
        logic [31:0] largest [0:ENTRIES-1];
        logic [31:0] largest1, distance2;
        always_ff @(posedge clk) begin
            if (m_we && m_slot == SLOT_BITS'(s)) largest[m_entry] <= m_value;
            if (in_valid) largest1 <= largest[in_entry];
            if (valid1) distance2 <= largest1 - score_data[s*32 +: 32];
        end

        wire [23:0] weight;
        exp2n exponential (
            .clk, .rst, .in_valid(valid2), .in_distance(distance2),
            .out_valid(w_valid[s]), .out_value(weight)
        );

        // D, and w * Mv
        logic [39:0] total [0:ENTRIES-1];
        logic signed [40:0] scaled8;
        logic [39:0] total_q;
        always_ff @(posedge clk) begin
            if (w_valid[s] && w_first)
                total[w_entry] <= (total_seen[w_entry] ? total[w_entry] : 40'd0) + 40'(weight);
            if (w_valid[s]) scaled8 <= $signed({1'b0, 40'(weight) * 40'(w_mant)});
            if (sum_re) total_q <= total[sum_entry];
        end
        assign totals[s*40 +: 40] = total_q;

        // verilator lint_off UNUSEDSIGNAL
        wire signed [31:0] u_wide;
        // verilator lint_on UNUSEDSIGNAL
        round_sat #(.WIDTH(41)) rounder (
            .clk, .rst, .in_valid(valid8), .in_value(scaled8), .in_shift(shift8),
            .out_valid(u_valid[s]), .out_value(u_wide)
        );
        wire signed [24:0] u = u_wide[24:0]; // 0..2^23

        // sums: the answer's register takes a chunk, and gives it out OUT_ELEMS at a time
        wire take = sum_re && !sum_is_total && sum_slot == SLOT_BITS'(s);
        for (genvar b = 0; b < ATTN_BYTES; b++) begin : g_byte
            logic signed [32:0] product13;
            logic signed [47:0] sum [0:ENTRIES*CHUNKS-1];
            logic [47:0] answer;
            always_ff @(posedge clk) begin
                if (u_valid[s])
                    product13 <= u * $signed(waiting[waiting_out][b*8 +: 8]);
                if (valid13) sum[sum13] <= (sum_seen[sum13] ? sum[sum13] : 48'sd0) + 48'(product13);
            end
            if (b + OUT_ELEMS < ATTN_BYTES) begin : g_answer
                always_ff @(posedge clk) if (take)
                    answer <= first_group ? sum[sum_address] : g_byte[b+OUT_ELEMS].answer;
            end else begin : g_answer
                always_ff @(posedge clk) if (take && first_group) answer <= sum[sum_address];
            end
            if (b < OUT_ELEMS) begin : g_chosen
                assign chosen[(s*OUT_ELEMS+b)*48 +: 48] = answer;
            end
        end
    end

    // ------------------------------------------------------------------ sums given out
    logic re1, is_total1, seen1;
    logic [SLOT_BITS-1:0] slot1;
    always_ff @(posedge clk) begin
        re1 <= sum_re;
        if (sum_re) begin
            is_total1 <= sum_is_total;
            seen1 <= sum_is_total ? total_seen[sum_entry] : sum_seen[sum_address];
            slot1 <= sum_slot;
        end
        if (re1) begin
            if (!seen1) sum_data <= '0;
            else if (is_total1) sum_data <= (OUT_ELEMS*48)'(totals[slot1*40 +: 40]);
            else sum_data <= chosen[slot1*OUT_ELEMS*48 +: OUT_ELEMS*48];
        end
        if (rst) re1 <= 1'b0;
    end

    // ------------------------------------------------------------------ from step to sum
    logic [5:0] left;
    assign pending = left != 6'd0;
    always_ff @(posedge clk) begin
        left <= left + 6'(in_valid) - 6'(valid13);
        if (rst) left <= '0;
    end

`ifndef SYNTHESIS
    if (GROUPS < 2 || OUT_ELEMS % 4 != 0 || (OUT_ELEMS & (OUT_ELEMS - 1)) != 0) begin : g_check
        initial $fatal(1, "attention_values: OUT_ELEMS = %0d must be a power of two, 4 .. ATTN_BYTES / 2", OUT_ELEMS);
    end
`endif
endmodule

`default_nettype wire
