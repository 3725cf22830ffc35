// Attention of one lane over all ports: brings the ports' parts together and writes the output.
//
// What: Waits for the keys of all ports, takes the largest score of each query head and the smallest
//   value exponent of each kv head, tells them to the ports; waits for the values, takes the sums
//   of D and of the accumulators, and writes y = sat32(rnd(rnd(acc, 12) * recip(dm), 3 + ds + Ev - F)).
// Latency: 2 num_heads + num_heads * head_dim / OUT_ELEMS + 3 log2(PORTS) + about 30 cycles,
//   besides the ports' own.
// Throughput: OUT_ELEMS elements a cycle.
// Golden: fpga/golden/attention.py::_mix
`default_nettype none

module attention_combine #(
    parameter int PORTS = 4,       // memory ports: 1, 2, 4 .. 32
    parameter int ATTN_HEADS = 3,  // query heads that share an entry
    parameter int MAX_HEADS = 16,  // query heads
    parameter int MAX_KV_HEADS = 8,
    parameter int OUT_ELEMS = 4,   // elements a cycle: a power of two from 4 to 4 * PORTS
    parameter int WORD_BITS = 16,  // bits of a word index in vector memory
    parameter int ENTRY_BITS = 4,
    parameter int SLOT_BITS = 2,
    parameter int KV_BITS = 3,
    parameter int GROUP_BITS = 4   // bits of a number of OUT_ELEMS within a head
) (
    input  wire                          clk,
    input  wire                          rst,
    // shape of the instruction, stable from start to done
    input  wire  [7:0]                   cfg_heads,
    input  wire  [7:0]                   cfg_group,      // query heads of a kv head
    input  wire  [7:0]                   cfg_groups,     // head_dim / OUT_ELEMS
    input  wire  [WORD_BITS-1:0]         cfg_out_word,
    input  wire  [19:0]                  cfg_out_frac,   // signed
    input  wire                          start,
    output logic                         done,           // pulse
    // ports
    input  wire  [PORTS-1:0]             keys_done,
    input  wire  [PORTS-1:0]             values_done,
    output logic                         go_values,
    output logic                         m_we,
    output logic [SLOT_BITS-1:0]         m_slot,
    output logic [ENTRY_BITS-1:0]        m_entry,
    output logic [31:0]                  m_value,
    output logic [KV_BITS-1:0]           m_kv_head,
    output logic [15:0]                  m_unit,
    output logic                         rd_valid,
    output logic [1:0]                   rd_kind,        // 0 largest score and unit, 1 D, 2 sums
    output logic [SLOT_BITS-1:0]         rd_slot,
    output logic [ENTRY_BITS-1:0]        rd_entry,
    output logic [KV_BITS-1:0]           rd_kv_head,
    output logic [GROUP_BITS-1:0]        rd_group,
    input  wire                          rd_out_valid,   // of port 0: all answer at once
    input  wire  [PORTS*32-1:0]          rd_largest,
    input  wire  [PORTS*16-1:0]          rd_unit,
    input  wire  [PORTS*OUT_ELEMS*48-1:0] rd_sums,
    // vector memory: OUT_ELEMS elements, repeated over the banks; vw_bank says which bank takes them
    output logic                         vw_we,
    output wire  [WORD_BITS-1:0]         vw_word,        // all zero while nothing is written
    output wire  [PORTS-1:0]             vw_bank,
    output wire  [PORTS*128-1:0]         vw_data
);
    `include "fixed.svh"

    localparam int HEAD_BITS = MAX_HEADS > 1 ? $clog2(MAX_HEADS) : 1;
    localparam int BANKS = OUT_ELEMS / 4; // that are written at once
    localparam int BANK_BITS = PORTS > 1 ? $clog2(PORTS) : 1;
    localparam [1:0] LARGEST = 2'd0, TOTAL = 2'd1, SUMS = 2'd2;
    localparam [2:0] S_IDLE = 3'd0, S_KEYS = 3'd1, S_WALK = 3'd2, S_DRAIN = 3'd3, S_VALUES = 3'd4;

    // ------------------------------------------------------------------ the walk over the heads
    logic [2:0] state;
    logic [1:0] kind;
    logic [7:0] head, in_group, slot, group;
    logic [ENTRY_BITS-1:0] entry;
    logic [KV_BITS-1:0] kv_head;
    logic drained;

    wire last_of_head = kind != SUMS || group + 8'd1 == cfg_groups;
    wire last_in_group = in_group + 8'd1 == cfg_group;
    wire last_in_entry = last_in_group || slot + 8'd1 == 8'(ATTN_HEADS);
    wire last_head = head + 8'd1 == cfg_heads;
    always_ff @(posedge clk) begin
        go_values <= 1'b0;
        done <= 1'b0;
        rd_valid <= state == S_WALK;
        if (state == S_WALK) begin
            rd_kind <= kind;
            rd_slot <= slot[SLOT_BITS-1:0];
            rd_entry <= entry;
            rd_kv_head <= kv_head;
            rd_group <= group[GROUP_BITS-1:0];
            group <= last_of_head ? 8'd0 : group + 8'd1;
            if (last_of_head) begin
                head <= head + 8'd1;
                in_group <= last_in_group ? 8'd0 : in_group + 8'd1;
                slot <= last_in_entry ? 8'd0 : slot + 8'd1;
                if (last_in_entry) entry <= entry + ENTRY_BITS'(1);
                if (last_in_group) kv_head <= kv_head + KV_BITS'(1);
                if (last_head) state <= S_DRAIN;
            end
        end
        case (state)
            S_KEYS: if (&keys_done) state <= S_WALK;
            S_VALUES: if (&values_done) state <= S_WALK;
            S_DRAIN: if (drained) begin
                head <= 8'd0;
                in_group <= 8'd0;
                slot <= 8'd0;
                entry <= '0;
                kv_head <= '0;
                kind <= kind + 2'd1;
                go_values <= kind == LARGEST;
                done <= kind == SUMS;
                state <= kind == LARGEST ? S_VALUES : kind == TOTAL ? S_WALK : S_IDLE;
            end
            default: ;
        endcase
        if (start) begin
            state <= S_KEYS;
            kind <= LARGEST;
            head <= 8'd0;
            in_group <= 8'd0;
            slot <= 8'd0;
            group <= 8'd0;
            entry <= '0;
            kv_head <= '0;
        end
        if (rst) begin
            state <= S_IDLE;
            {rd_valid, go_values, done} <= '0;
        end
    end

    // ------------------------------------------------------------------ over the ports
    wire out_valid, unit_valid, sums_valid;
    wire signed [31:0] largest;
    wire signed [15:0] unit;
    wire [OUT_ELEMS*48-1:0] sums;
    wire [1:0] out_kind;
    wire out_last;
    wire [HEAD_BITS-1:0] out_head;
    wire [SLOT_BITS-1:0] out_slot;
    wire [ENTRY_BITS-1:0] out_entry;
    wire [KV_BITS-1:0] out_kv_head;
    wire is_walking = state == S_WALK;
    order_ram #(.WIDTH(3 + HEAD_BITS + SLOT_BITS + ENTRY_BITS + KV_BITS), .DEPTH(16)) order (
        .clk, .rst,
        .push(is_walking),
        .in_data({last_head && last_of_head, kind, head[HEAD_BITS-1:0], slot[SLOT_BITS-1:0], entry, kv_head}),
        .pop(out_valid),
        .out_data({out_last, out_kind, out_head, out_slot, out_entry, out_kv_head})
    );

    // the trees run for what they are asked only
    logic is_largest, was_largest; // the answer that comes in now, in the next cycle
    always_ff @(posedge clk) begin
        if (rd_valid) was_largest <= rd_kind == LARGEST;
        is_largest <= was_largest;
    end
    // verilator lint_off UNUSEDSIGNAL
    wire unit_tree_valid;               // with unit_valid
    // verilator lint_on UNUSEDSIGNAL
    reduce_tree #(.COUNT(PORTS), .WIDTH(32), .OP(1)) largest_tree (
        .clk, .rst, .in_valid(rd_out_valid && is_largest), .in_data(rd_largest),
        .out_valid(unit_valid), .out_data(largest)
    );
    reduce_tree #(.COUNT(PORTS), .WIDTH(16), .OP(2)) unit_tree (
        .clk, .rst, .in_valid(rd_out_valid && is_largest), .in_data(rd_unit),
        .out_valid(unit_tree_valid), .out_data(unit)
    );
    reduce_tree #(.COUNT(PORTS), .WIDTH(48), .OP(0), .ELEMS(OUT_ELEMS)) sum_tree (
        .clk, .rst, .in_valid(rd_out_valid && !is_largest), .in_data(rd_sums),
        .out_valid(sums_valid), .out_data(sums)
    );
    assign out_valid = unit_valid || sums_valid;

    // ------------------------------------------------------------------ largest score, unit
    logic signed [15:0] units [0:MAX_KV_HEADS-1];
    always_ff @(posedge clk) begin
        m_we <= unit_valid;
        if (unit_valid) begin
            m_slot <= out_slot;
            m_entry <= out_entry;
            m_value <= largest;
            m_kv_head <= out_kv_head;
            m_unit <= unit;
            units[out_kv_head] <= unit;
        end
        if (rst) m_we <= 1'b0;
    end

    // ------------------------------------------------------------------ D: its reciprocal
    wire total_valid = sums_valid && out_kind == TOTAL;
    logic signed [6:0] shifts [0:MAX_HEADS-1]; // ds
    logic [16:0] reciprocals [0:MAX_HEADS-1];
    logic total1, total2;
    logic [39:0] d1;
    logic [HEAD_BITS-1:0] head1;
    logic [6:0] length1;
    logic [15:0] mantissa2;
    logic last1, last2;
    always_ff @(posedge clk) begin
        total1 <= total_valid;
        total2 <= total1;
        if (total_valid) begin
            d1 <= sums[39:0];
            length1 <= bit_length64({24'd0, sums[39:0]});
            head1 <= out_head;
            last1 <= out_last;
        end
        if (total1) begin
            mantissa2 <= norm16_mantissa({24'd0, d1}, length1);
            shifts[head1] <= length1 - 7'd16;
            last2 <= last1;
        end
        if (rst) {total1, total2} <= '0;
    end
    wire reciprocal_valid, reciprocal_last;
    wire [16:0] reciprocal_value;
    wire [HEAD_BITS-1:0] reciprocal_head;
    logic [HEAD_BITS-1:0] head2;
    always_ff @(posedge clk) if (total1) head2 <= head1;
    order_ram #(.WIDTH(1 + HEAD_BITS), .DEPTH(16)) heads (
        .clk, .rst, .push(total2), .in_data({last2, head2}),
        .pop(reciprocal_valid), .out_data({reciprocal_last, reciprocal_head})
    );
    reciprocal one_over (
        .clk, .rst, .in_valid(total2), .in_mantissa(mantissa2),
        .out_valid(reciprocal_valid), .out_value(reciprocal_value)
    );
    always_ff @(posedge clk)
        if (reciprocal_valid) reciprocals[reciprocal_head] <= reciprocal_value;

    // ------------------------------------------------------------------ sums: the output
    wire result_valid = sums_valid && out_kind == SUMS;
    logic result1, result2;
    logic [16:0] reciprocal1;
    logic signed [19:0] shift1, shift2;
    wire signed [6:0] shift_now = shifts[out_head];
    wire signed [15:0] unit_now = units[out_kv_head];
    always_ff @(posedge clk) begin
        result1 <= result_valid;
        result2 <= result1;
        if (result_valid) begin
            reciprocal1 <= reciprocals[out_head];
`ifdef BUG_ATTENTION_COMBINE_1
            shift1 <= 20'(shift_now) + 20'(unit_now) + 20'sd2;
`else
            shift1 <= 20'(shift_now) + 20'(unit_now) + 20'sd3;
`endif
        end
        if (result1) shift2 <= shift1 - $signed(cfg_out_frac);
        if (rst) {result1, result2} <= '0;
    end
    // verilator lint_off UNUSEDSIGNAL
    wire [OUT_ELEMS-1:0] y_valid; // all of them at once
    // verilator lint_on UNUSEDSIGNAL
    wire [OUT_ELEMS*32-1:0] y;
    for (genvar e = 0; e < OUT_ELEMS; e++) begin : g_result
        // verilator lint_off UNUSEDSIGNAL
        wire signed [47:0] half_up = $signed(sums[e*48 +: 48]) + 48'sd2048;
        // verilator lint_on UNUSEDSIGNAL
        logic signed [35:0] c1;
        logic signed [53:0] product2;
        always_ff @(posedge clk) begin
            if (result_valid) c1 <= half_up[47:12];
            if (result1) product2 <= c1 * $signed({1'b0, reciprocal1});
        end
        round_sat #(.WIDTH(54)) rounder (
            .clk, .rst, .in_valid(result2), .in_value(product2), .in_shift(shift2),
            .out_valid(y_valid[e]), .out_value(y[e*32 +: 32])
        );
    end

    // ------------------------------------------------------------------ written in order
    logic [BANK_BITS-1:0] bank;
    logic [WORD_BITS-1:0] word, word_q;
    logic [PORTS-1:0] bank_q;
    logic [OUT_ELEMS*32-1:0] written;
    wire [BANK_BITS-1:0] last_bank = BANK_BITS'(PORTS - BANKS);
    always_ff @(posedge clk) begin
        vw_we <= y_valid[0];
        if (y_valid[0]) begin
            written <= y;
            word_q <= word;
            bank_q <= PORTS'((1 << BANKS) - 1) << bank;
            bank <= bank == last_bank ? '0 : bank + BANK_BITS'(BANKS);
            if (bank == last_bank) word <= word + WORD_BITS'(1);
        end
        if (start) begin
            bank <= '0;
            word <= cfg_out_word;
        end
        if (rst) vw_we <= 1'b0;
    end
    for (genvar p = 0; p < PORTS; p++) begin : g_bank
        assign vw_data[p*128 +: 128] = vw_bank[p] ? written[(p % BANKS)*128 +: 128] : '0;
    end

    assign vw_word = vw_we ? word_q : '0;
    assign vw_bank = vw_we ? bank_q : '0;

    // a walk is over when its last result has arrived where it belongs
    logic last_result;
    logic [7:0] results_left;
    always_ff @(posedge clk) begin
        drained <= (unit_valid && out_last) || (reciprocal_valid && reciprocal_last)
            || (last_result && results_left == 8'd0 && !drained);
        if (result_valid && out_last) last_result <= 1'b1;
        results_left <= results_left + 8'(result_valid) - 8'(y_valid[0]);
        if (start || drained) last_result <= 1'b0;
        if (rst) {drained, last_result, results_left} <= '0;
    end

`ifndef SYNTHESIS
    if (OUT_ELEMS < 4 || OUT_ELEMS > 4 * PORTS || (OUT_ELEMS & (OUT_ELEMS - 1)) != 0) begin : g_check
        initial $fatal(1, "attention_combine: OUT_ELEMS = %0d must be a power of two, 4 .. 4 * PORTS", OUT_ELEMS);
    end
`endif
endmodule

`default_nettype wire
