// Attention of one lane over the keys and values that one memory port holds.
//
// What: Takes key records, keeps their scores, tells the largest ones and the smallest value
//   exponents; is told those over all ports; takes the value records and sums them up. The port with
//   FRESH takes the rows of this very pass first, in both phases.
//   start, keys .. `keys_done`, largest scores read and written, go_values, values .. `values_done`,
//   sums read.
// Latency: about 15 cycles from a phase's last record to its done level.
// Throughput: one chunk of a record with ATTN_HEADS query heads a cycle: a record takes
//   cfg_sets * cfg_chunks cycles.
// Golden: fpga/golden/attention.py::attend
`default_nettype none

module attention_port #(
    parameter int ATTN_HEADS = 3,    // query heads at once
    parameter int ATTN_BYTES = 64,   // bytes of a chunk: 16, 32, 64
    parameter int MAX_HEAD_DIM = 64, // 32, 64, 128
    parameter int MAX_KV_HEADS = 8,  // key/value heads
    parameter int ENTRIES = 16,      // kv heads times sets of query heads, at most
    parameter int SCORES = 1024,     // records of a phase times sets, at most
    parameter int OUT_ELEMS = 4,     // sums given out at once: a power of two from 4
    parameter bit FRESH = 1'b1,      // takes fresh rows
    parameter int ENTRY_BITS = 4,
    parameter int SLOT_BITS = 2,
    parameter int CHUNK_BITS = 1,
    parameter int KV_BITS = 3,       // bits of a kv head
    parameter int GROUP_BITS = 4     // bits of a number of OUT_ELEMS in the chunks of a record
) (
    input  wire                       clk,
    input  wire                       rst,
    // shape of the instruction, stable from start on
    input  wire  [7:0]                cfg_sets,      // query heads of a kv head / ATTN_HEADS, rounded up
    input  wire  [7:0]                cfg_chunks,    // head_dim / ATTN_BYTES, rounded up
    input  wire                       start,
    input  wire                       go_values,
    output wire                       takes_keys,
    output wire                       takes_values,
    output wire                       keys_done,     // level until go_values
    output wire                       values_done,   // level until start
    // query registers: written a chunk at a time
    input  wire                       q_we,
    input  wire  [SLOT_BITS-1:0]      q_slot,
    input  wire  [ENTRY_BITS-1:0]     q_entry,
    input  wire  [CHUNK_BITS-1:0]     q_chunk,
    input  wire  [ATTN_BYTES*8-1:0]   q_data,
    input  wire  [15:0]               q_mant,
    input  wire  [15:0]               q_exp,
    // records from memory
    input  wire                       g_valid,
    output wire                       g_ready,       // does not depend on g_valid
    input  wire                       g_empty,       // no record, only g_end
    input  wire                       g_end,         // the phase's last transfer
    input  wire                       g_visible,     // not to be passed over
    input  wire  [KV_BITS-1:0]        g_kv_head,
    input  wire  [MAX_HEAD_DIM*8-1:0] g_data,
    input  wire  [63:0]               g_scale,       // key word, value word
    // fresh records
    input  wire                       f_valid,
    output wire                       f_ready,
    input  wire                       f_last,
    input  wire  [KV_BITS-1:0]        f_kv_head,
    input  wire  [MAX_HEAD_DIM*8-1:0] f_data,
    input  wire  [63:0]               f_scale,
    // results over all ports
    input  wire                       m_we,
    input  wire  [SLOT_BITS-1:0]      m_slot,
    input  wire  [ENTRY_BITS-1:0]     m_entry,
    input  wire  [31:0]               m_value,       // largest score
    input  wire  [KV_BITS-1:0]        m_kv_head,
    input  wire  [15:0]               m_unit,        // smallest value exponent
    // own results, two cycles after rd_valid
    input  wire                       rd_valid,
    input  wire  [1:0]                rd_kind,       // 0 largest score and unit, 1 D, 2 sums
    input  wire  [SLOT_BITS-1:0]      rd_slot,
    input  wire  [ENTRY_BITS-1:0]     rd_entry,
    input  wire  [KV_BITS-1:0]        rd_kv_head,
    input  wire  [GROUP_BITS-1:0]     rd_group,      // which OUT_ELEMS of the head
    output logic                      rd_out_valid,
    output logic signed [31:0]        rd_largest,    // -2^31: no record seen
    output logic signed [15:0]        rd_unit,       // 2^15 - 1: no record seen
    output wire  [OUT_ELEMS*48-1:0]   rd_sums        // D in the lowest place
);
    localparam int CHUNKS = MAX_HEAD_DIM > ATTN_BYTES ? MAX_HEAD_DIM / ATTN_BYTES : 1;
    localparam int SCORE_BITS = $clog2(SCORES);
    localparam [2:0] S_IDLE = 3'd0, S_KEYS = 3'd1, S_SCORED = 3'd2, S_VALUES = 3'd3, S_SUMMED = 3'd4;

    logic [2:0] state;
    logic end_seen, fresh_left;
    assign takes_keys = state == S_KEYS;
    assign takes_values = state == S_VALUES;
    assign keys_done = state == S_SCORED;
    assign values_done = state == S_SUMMED;
    wire in_phase = takes_keys || takes_values;

    // ------------------------------------------------------------------ two records wait here
    logic [1:0] held;
    logic [MAX_HEAD_DIM*8-1:0] data0, data1;
    logic [63:0] scale0, scale1;
    logic [KV_BITS-1:0] kv0, kv1;
    logic [ENTRY_BITS-1:0] base0, base1; // first entry of the kv head

    wire room = in_phase && held != 2'd2;
    assign f_ready = FRESH && room && fresh_left;
    assign g_ready = room && !fresh_left && !end_seen;
    wire from_fresh = FRESH && fresh_left;
    wire push = from_fresh ? f_valid && f_ready : g_valid && g_ready && !g_empty && g_visible;
    wire [KV_BITS-1:0] new_kv = from_fresh ? f_kv_head : g_kv_head;
    wire [63:0] new_scale = from_fresh ? f_scale : g_scale;
    wire [ENTRY_BITS-1:0] new_base = ENTRY_BITS'(8'(new_kv) * cfg_sets);

    logic [7:0] set, chunk;
    wire step = held != 2'd0;
    wire last_chunk = chunk + 8'd1 == cfg_chunks;
    wire pop = step && last_chunk && set + 8'd1 == cfg_sets;

    always_ff @(posedge clk) begin
        held <= held + 2'(push) - 2'(pop);
        if (push && (held == 2'd0 || (pop && held == 2'd1))) begin
            data0 <= from_fresh ? f_data : g_data;
            scale0 <= new_scale;
            kv0 <= new_kv;
            base0 <= new_base;
        end else if (pop) begin
            data0 <= data1;
            scale0 <= scale1;
            kv0 <= kv1;
            base0 <= base1;
        end
        if (push) begin
            data1 <= from_fresh ? f_data : g_data;
            scale1 <= new_scale;
            kv1 <= new_kv;
            base1 <= new_base;
        end
        if (rst) held <= 2'd0;
    end

    // ------------------------------------------------------------------ steps: chunk, then set
    logic [SCORE_BITS-1:0] score;
    wire [ENTRY_BITS-1:0] entry = base0 + set[ENTRY_BITS-1:0];
    logic [ATTN_BYTES*8-1:0] step_data;
    if (CHUNKS > 1) begin : g_part
        always_ff @(posedge clk) if (step)
            step_data <= data0[chunk[CHUNK_BITS-1:0]*ATTN_BYTES*8 +: ATTN_BYTES*8];
    end else begin : g_whole
        always_ff @(posedge clk) if (step) step_data <= (ATTN_BYTES*8)'(data0);
    end
    logic step_keys, step_values, step_first, step_last;
    logic [ENTRY_BITS-1:0] step_entry;
    logic [CHUNK_BITS-1:0] step_chunk;
    logic [SCORE_BITS-1:0] step_score;
    logic [KV_BITS-1:0] step_kv;
    logic [63:0] step_scale;
    always_ff @(posedge clk) begin
        step_keys <= step && takes_keys;
        step_values <= step && takes_values;
        if (step) begin
            step_first <= chunk == 8'd0;
            step_last <= last_chunk;
            step_entry <= entry;
            step_chunk <= chunk[CHUNK_BITS-1:0];
            step_score <= score;
            step_kv <= kv0;
            step_scale <= scale0;
        end
        if (rst) {step_keys, step_values} <= '0;
    end

    wire keys_pending, values_pending;
    wire phase_over = end_seen && !fresh_left && held == 2'd0 && !step_keys && !step_values
        && !keys_pending && !values_pending;
    always_ff @(posedge clk) begin
        if (step) begin
            chunk <= last_chunk ? 8'd0 : chunk + 8'd1;
            if (last_chunk) set <= set + 8'd1 == cfg_sets ? 8'd0 : set + 8'd1;
            if (last_chunk) score <= score + SCORE_BITS'(1);
        end
        if (g_valid && g_ready && g_end) end_seen <= 1'b1;
        if (f_valid && f_ready && f_last) fresh_left <= 1'b0;
        case (state)
            S_KEYS: if (phase_over) state <= S_SCORED;
            S_SCORED: if (go_values) state <= S_VALUES;
            S_VALUES: if (phase_over) state <= S_SUMMED;
            default: if (start) state <= S_KEYS;
        endcase
        if (start || go_values) begin
            end_seen <= 1'b0;
            fresh_left <= FRESH;
            set <= 8'd0;
            chunk <= 8'd0;
            score <= '0;
        end
        if (rst) state <= S_IDLE;
    end

    // ------------------------------------------------------------------ smallest value exponents
    logic signed [15:0] unit [0:MAX_KV_HEADS-1];
    logic [MAX_KV_HEADS-1:0] unit_seen;
    wire signed [15:0] old_unit = unit[new_kv];
    wire signed [15:0] new_unit = new_scale[63:48];
    logic rd1, unit_seen1;
    logic signed [15:0] unit1;
    always_ff @(posedge clk) begin
        if (push && takes_keys) begin
            unit_seen[new_kv] <= 1'b1;
`ifdef BUG_ATTENTION_PORT_1
            unit[new_kv] <= new_unit;
`else
            if (!unit_seen[new_kv] || new_unit < old_unit) unit[new_kv] <= new_unit;
`endif
        end
        if (start) unit_seen <= '0;
        if (rd_valid) begin
            unit_seen1 <= unit_seen[rd_kv_head];
            unit1 <= unit[rd_kv_head];
        end
        if (rd1) begin
            rd_unit <= unit_seen1 ? unit1 : 16'sh7fff;
            rd_largest <= max_seen ? max_value : 32'sh80000000;
        end
        rd1 <= rd_valid;
        rd_out_valid <= rd1;
        if (rst) {rd1, rd_out_valid} <= '0;
    end

    // ------------------------------------------------------------------ the two halves
    wire [ATTN_HEADS*32-1:0] score_data;
    wire max_seen;
    wire [31:0] max_value;
    attention_keys #(
        .ATTN_HEADS(ATTN_HEADS), .ATTN_BYTES(ATTN_BYTES), .CHUNKS(CHUNKS), .ENTRIES(ENTRIES),
        .SCORES(SCORES), .ENTRY_BITS(ENTRY_BITS), .CHUNK_BITS(CHUNK_BITS), .SCORE_BITS(SCORE_BITS),
        .SLOT_BITS(SLOT_BITS)
    ) keys (
        .clk, .rst, .clear(start),
        .q_we, .q_slot, .q_entry, .q_chunk, .q_data, .q_mant, .q_exp,
        .in_valid(step_keys), .in_first(step_first), .in_last(step_last),
        .in_entry(step_entry), .in_chunk(step_chunk), .in_score(step_score), .in_data(step_data),
        .in_mant(step_scale[15:0]), .in_exp(step_scale[31:16]),
        .pending(keys_pending),
        .score_re(step_values), .score_index(step_score), .score_data,
        .max_re(rd_valid && rd_kind == 2'd0), .max_slot(rd_slot), .max_entry(rd_entry),
        .max_seen, .max_value
    );
    attention_values #(
        .ATTN_HEADS(ATTN_HEADS), .ATTN_BYTES(ATTN_BYTES), .CHUNKS(CHUNKS), .ENTRIES(ENTRIES),
        .KV_HEADS(MAX_KV_HEADS), .OUT_ELEMS(OUT_ELEMS), .ENTRY_BITS(ENTRY_BITS),
        .CHUNK_BITS(CHUNK_BITS), .SLOT_BITS(SLOT_BITS), .KV_BITS(KV_BITS), .GROUP_BITS(GROUP_BITS)
    ) values (
        .clk, .rst, .clear(start),
        .m_we, .m_slot, .m_entry, .m_value, .m_kv_head, .m_unit,
        .in_valid(step_values), .in_first(step_first), .in_entry(step_entry),
        .in_chunk(step_chunk), .in_kv_head(step_kv), .in_data(step_data),
        .in_mant(step_scale[47:32]), .in_exp(step_scale[63:48]), .score_data,
        .pending(values_pending),
        .sum_re(rd_valid && rd_kind != 2'd0), .sum_is_total(rd_kind == 2'd1), .sum_slot(rd_slot),
        .sum_entry(rd_entry), .sum_group(rd_group), .sum_data(rd_sums)
    );
endmodule

`default_nettype wire
