// Everything between ROPE_KV and the attention's output: the integrator takes this, one a card.
//
// What: For each lane a rope_kv and an attention_combine, for each port a kv_unpack, for each
//   port and lane an attention_port, one fresh_kv; wired. ROPE_KV fills query registers and
//   fresh rows; ATTENTION streams keys and values of all ports past the queries.
// Latency: see the modules; about 60 cycles and num_heads * head_dim / 4 for an empty context.
// Throughput: one granule-chunk (ATTN_BYTES of a K or V record, ATTN_HEADS query heads) a cycle on
//   every port and lane.
// Golden: fpga/golden/attention.py::attend, fpga/golden/rope_kv.py::rotate
`default_nettype none
`include "isa.svh"

module attention_unit #(
    parameter int PORTS = 4,           // memory ports: 1, 2, 4 .. 32
    parameter int LANES = 1,           // rows of a pass: 1, 2, 4, 8
    parameter int ATTN_HEADS = 3,      // query heads worked on at once on one K or V record
    parameter int ATTN_BYTES = 64,     // bytes of a record taken a cycle: 16, 32, 64
    parameter int MAX_POSITIONS = 2048,// longest context (global positions)
    parameter int MAX_HEADS = 16,      // query heads
    parameter int MAX_KV_HEADS = 8,    // key/value heads
    parameter int MAX_HEAD_DIM = 64,   // 32, 64, 128
    parameter int WORD_BITS = 16,      // bits of a word index in a bank of vector memory
    parameter int MEM_LATENCY = 2      // cycles from mem_re to mem_data
) (
    input  wire                        clk,
    input  wire                        rst,
    // sequencer (see sequencer.sv)
    // verilator lint_off UNUSEDSIGNAL
    input  wire  [511:0]               op_word,
    // verilator lint_on UNUSEDSIGNAL
    input  wire  [LANES-1:0]           op_active,
    input  wire                        start_rope_row, // arms op_active lanes for one RoPE row each
    input  wire                        start_rope,
    output wire  [LANES-1:0]           done_rope,      // pulse: lane's q, k, v are where they belong
    input  wire                        start_attention,
    output wire  [LANES-1:0]           done_attention, // pulse: lane's output is in vector memory
    output wire                        writes_idle,    // no KV write is waiting or unanswered
    output wire                        busy_rope,
    output wire                        busy_attention,
    // rows of the pass in execution (pass_* of pass_scheduler), stable from its first to its last op
    input  wire  [LANES*LANES-1:0]     row_visible,    // [row]: rows whose fresh K/V it sees (own bit set)
    input  wire  [LANES*20-1:0]        row_position,
    input  wire  [LANES*20-1:0]        row_lo,         // first position it sees
    input  wire  [LANES*16-1:0]        row_tail_slot,  // where its K/V are written
    // command header and argument registers, stable during a start
    input  wire  [PORTS*64-1:0]        cfg_kv_addr,    // byte address of the KV region of each port
    input  wire  [31:0]                cfg_slot_beats,
    input  wire  [31:0]                cfg_layer_beats,
    input  wire  [31:0]                cfg_k_beats,
    input  wire  [31:0]                cfg_v_beats,
    // aux channels of all ports (stream_dispatch). aux_ready is 0 for kind 2 (GAMMA): or it with the
    // vector unit's. aux_ready depends on aux_kind and aux_lanes of its own port, not on aux_valid.
    input  wire  [PORTS-1:0]           aux_valid,
    output wire  [PORTS-1:0]           aux_ready,
    input  wire  [PORTS*512-1:0]       aux_data,
    input  wire  [PORTS*3-1:0]         aux_kind,
    input  wire  [PORTS*LANES-1:0]     aux_lanes,
    input  wire  [PORTS-1:0]           aux_empty,
    input  wire  [PORTS-1:0]           aux_first,
    // verilator lint_off UNUSEDSIGNAL
    input  wire  [PORTS*8-1:0]         aux_skip,       // at most 7 here
    // verilator lint_on UNUSEDSIGNAL
    input  wire  [PORTS*20-1:0]        aux_count,
    input  wire  [PORTS*20-1:0]        aux_pos,
    input  wire  [PORTS-1:0]           aux_end,
    // lane memory, read: 4 * PORTS elements, MEM_LATENCY cycles after mem_re
    output wire  [LANES-1:0]           mem_re,
    output wire  [LANES*WORD_BITS-1:0] mem_word,
    input  wire  [LANES*PORTS*128-1:0] mem_data,
    // lane memory, write: banks in vw_bank take their 128 bits of vw_data
    output wire  [LANES-1:0]           vw_we,
    output wire  [LANES*WORD_BITS-1:0] vw_word,
    output wire  [LANES*PORTS-1:0]     vw_bank,
    output wire  [LANES*PORTS*128-1:0] vw_data,
    // KV write requests: address, data and strobe are common to all ports, w_valid is one-hot
    output wire  [PORTS-1:0]           w_valid,
    input  wire  [PORTS-1:0]           w_ready,
    output wire  [63:0]                w_addr,         // byte address, a multiple of 64
    output wire  [511:0]               w_data,
    output wire  [63:0]                w_strobe,
    input  wire  [PORTS*8-1:0]         writes_pending  // of each port's kv_writer
);
    // ------------------------------------------------------------------ sizes
    localparam int CHUNKS = MAX_HEAD_DIM > ATTN_BYTES ? MAX_HEAD_DIM / ATTN_BYTES : 1;
    localparam int OUT_ELEMS = PORTS >= 8 ? 8 : 4;
    // kv heads times sets of ATTN_HEADS query heads, at most
    localparam int FILLED = (MAX_HEADS + MAX_KV_HEADS * (ATTN_HEADS - 1)) / ATTN_HEADS;
    localparam int ENTRIES = FILLED < MAX_HEADS ? FILLED : MAX_HEADS;
    localparam int LOCAL = (MAX_POSITIONS + PORTS - 1) / PORTS; // positions of a port
    localparam int SCALE_BEATS = (LOCAL * MAX_KV_HEADS + 7) / 8 + 4;
    localparam int ENTRY_BITS = ENTRIES > 1 ? $clog2(ENTRIES) : 1;
    localparam int SLOT_BITS = ATTN_HEADS > 1 ? $clog2(ATTN_HEADS) : 1;
    localparam int CHUNK_BITS = CHUNKS > 1 ? $clog2(CHUNKS) : 1;
    localparam int KV_BITS = MAX_KV_HEADS > 1 ? $clog2(MAX_KV_HEADS) : 1;
    localparam int GROUP_BITS = $clog2(CHUNKS * ATTN_BYTES / OUT_ELEMS);
    localparam int RECORD_BITS = MAX_HEAD_DIM * 8;
    localparam int REC_BITS = KV_BITS + (LANES > 1 ? $clog2(LANES) : 1);
    localparam int VEC_BITS = PORTS * 128;
    localparam [2:0] ROPE_ROW = 3'd1, KV_SCALE = 3'd3;

    // ------------------------------------------------------------------ what the instruction says
    logic [7:0] heads, kv_heads;
    logic [2:0] size;          // head_dim / 32
    logic [7:0] group, sets;   // query heads of a kv head; sets of ATTN_HEADS of them
    logic [7:0] counted, in_set;
    logic counting, for_rope, begin_rope, begin_attention;
    wire [7:0] new_heads = start_rope ? op_word[`ROPEKV_NUM_HEADS +: 8] : op_word[`ATTENTION_NUM_HEADS +: 8];
    wire [7:0] new_kv_heads = start_rope ? op_word[`ROPEKV_NUM_KV_HEADS +: 8]
        : op_word[`ATTENTION_NUM_KV_HEADS +: 8];
    wire [2:0] new_size = start_rope ? op_word[`ROPEKV_HEAD_DIM + 5 +: 3] : op_word[`ATTENTION_HEAD_DIM + 5 +: 3];
    always_ff @(posedge clk) begin
        begin_rope <= 1'b0;
        begin_attention <= 1'b0;
        if (start_rope || start_attention) begin
            heads <= new_heads;
            kv_heads <= new_kv_heads;
            size <= new_size;
            counted <= new_kv_heads;
            group <= 8'd1;
            sets <= 8'd1;
            in_set <= 8'd1;
            counting <= 1'b1;
            for_rope <= start_rope;
        end else if (counting) begin
            // group = heads / kv_heads, sets = group / ATTN_HEADS rounded up
            if (counted >= heads) begin
                counting <= 1'b0;
                begin_rope <= for_rope;
                begin_attention <= !for_rope;
            end else begin
                counted <= counted + kv_heads;
                group <= group + 8'd1;
                in_set <= in_set == 8'(ATTN_HEADS) ? 8'd1 : in_set + 8'd1;
                if (in_set == 8'(ATTN_HEADS)) sets <= sets + 8'd1;
            end
        end
        if (rst) {counting, begin_rope, begin_attention} <= '0;
    end
    // head_dim / ATTN_BYTES, rounded up
    wire [7:0] chunks = ATTN_BYTES == 16 ? {4'd0, size, 1'b0} : ATTN_BYTES == 32 ? {5'd0, size}
        : size == 3'd4 ? 8'd2 : 8'd1;
    wire [7:0] out_groups = 8'(size) * 8'(32 / OUT_ELEMS);

    // ------------------------------------------------------------------ wires between them
    wire [LANES-1:0] row_wanted, rope_busy, attention_done;
    wire [LANES-1:0] kv_valid, kv_ready, kv_is_value;
    wire [LANES*KV_BITS-1:0] kv_index;
    wire [LANES*RECORD_BITS-1:0] kv_data;
    wire [LANES*32-1:0] kv_scale;
    wire put, put_is_value;
    wire [REC_BITS-1:0] put_at;
    wire [RECORD_BITS-1:0] put_data;
    wire [31:0] put_scale;
    wire [PORTS*LANES-1:0] takes_keys, takes_values; // [port][lane]
    wire [PORTS*LANES-1:0] g_valid, g_ready;

    assign done_attention = attention_done;
    assign busy_rope = counting || begin_rope || rope_busy != '0;
    logic [LANES-1:0] in_attention;
    assign busy_attention = in_attention != '0;
    always_ff @(posedge clk) begin
        in_attention <= in_attention & ~attention_done;
        if (start_attention) in_attention <= op_active;
        if (rst) in_attention <= '0;
    end

    // ------------------------------------------------------------------ ports
    for (genvar p = 0; p < PORTS; p++) begin : g_unpack
        wire is_empty, is_end;
        wire [KV_BITS-1:0] kv_head;
        wire [19:0] pos;
        wire [RECORD_BITS-1:0] data;
        wire [63:0] scale;
        wire [2:0] kind = aux_kind[p*3 +: 3];
        wire [LANES-1:0] lanes = aux_lanes[p*LANES +: LANES];
        wire unpack_ready;
        // RoPE rows are the same on all ports: port 0's are kept, the others' taken and forgotten
        assign aux_ready[p] = kind == ROPE_ROW ? p != 0 || (lanes & ~row_wanted) == '0
            : kind >= KV_SCALE && unpack_ready;
        kv_unpack #(
            .PORTS(PORTS), .LANES(LANES), .MAX_HEAD_DIM(MAX_HEAD_DIM), .KV_BITS(KV_BITS),
            .SCALE_BEATS(SCALE_BEATS)
        ) unpack (
            .clk, .rst, .cfg_kv_heads(kv_heads), .cfg_half(size[0]), .cfg_double(size[2]),
            .lane_keys(takes_keys[p*LANES +: LANES]), .lane_values(takes_values[p*LANES +: LANES]),
            .in_valid(aux_valid[p] && kind >= KV_SCALE), .in_ready(unpack_ready),
            .in_data(aux_data[p*512 +: 512]), .in_kind(kind), .in_lanes(lanes),
            .in_empty(aux_empty[p]), .in_first(aux_first[p]), .in_skip(aux_skip[p*8 +: 3]),
            .in_count(aux_count[p*20 +: 20]), .in_pos(aux_pos[p*20 +: 20]), .in_end(aux_end[p]),
            .out_valid(g_valid[p*LANES +: LANES]), .out_ready(g_ready[p*LANES +: LANES]),
            .out_empty(is_empty), .out_end(is_end), .out_kv_head(kv_head), .out_pos(pos),
            .out_data(data), .out_scale(scale)
        );
    end

    // ------------------------------------------------------------------ lanes
    for (genvar l = 0; l < LANES; l++) begin : g_lane
        // ROPE_KV
        wire head_valid, head_ready, query_ready;
        wire [1:0] head_kind;
        // verilator lint_off UNUSEDSIGNAL
        wire [7:0] head_index;
        // verilator lint_on UNUSEDSIGNAL
        wire [RECORD_BITS-1:0] head_data;
        wire [15:0] head_mant, head_exp;
        rope_kv #(
            .PORTS(PORTS), .MAX_HEAD_DIM(MAX_HEAD_DIM), .WORD_BITS(WORD_BITS), .MEM_LATENCY(MEM_LATENCY)
        ) rope (
            .clk, .rst,
            .arm_row(start_rope_row && op_active[l]),
            .cfg_row_beats(op_word[`ROPEROW_ROW_BEATS +: 3]),
            .row_valid(aux_valid[0] && aux_kind[2:0] == ROPE_ROW && aux_lanes[l] && !aux_empty[0]),
            .row_ready(row_wanted[l]), .row_data(aux_data[511:0]),
            .start(begin_rope && op_active[l]),
            .cfg_in_word(op_word[`ROPEKV_IN_WORD +: WORD_BITS]), .cfg_words(op_word[`ROPEKV_WORDS +: WORD_BITS]),
            .cfg_in_frac(op_word[`ROPEKV_IN_FRAC +: 16]), .cfg_heads(heads), .cfg_kv_heads(kv_heads), .cfg_size(size),
            .busy(rope_busy[l]), .done(done_rope[l]),
            .mem_re(mem_re[l]), .mem_word(mem_word[l*WORD_BITS +: WORD_BITS]),
            .mem_data(mem_data[l*VEC_BITS +: VEC_BITS]),
            .out_valid(head_valid), .out_ready(head_ready), .out_kind(head_kind), .out_head(head_index),
            .out_data(head_data), .out_mant(head_mant), .out_exp(head_exp)
        );
        wire is_query = head_kind == 2'd0;
        assign head_ready = is_query ? query_ready : kv_ready[l];
        assign kv_valid[l] = head_valid && !is_query;
        assign kv_is_value[l] = head_kind[1];
        assign kv_index[l*KV_BITS +: KV_BITS] = head_index[KV_BITS-1:0];
        assign kv_data[l*RECORD_BITS +: RECORD_BITS] = head_data;
        assign kv_scale[l*32 +: 32] = {head_exp, head_mant};

        wire q_we;
        wire [SLOT_BITS-1:0] q_slot;
        wire [ENTRY_BITS-1:0] q_entry;
        wire [CHUNK_BITS-1:0] q_chunk;
        wire [ATTN_BYTES*8-1:0] q_data;
        wire [15:0] q_mant, q_exp;
        query_writer #(
            .ATTN_HEADS(ATTN_HEADS), .ATTN_BYTES(ATTN_BYTES), .MAX_HEAD_DIM(MAX_HEAD_DIM),
            .ENTRY_BITS(ENTRY_BITS), .SLOT_BITS(SLOT_BITS), .CHUNK_BITS(CHUNK_BITS)
        ) queries (
            .clk, .rst, .clear(begin_rope), .cfg_group(group), .cfg_chunks(chunks),
            .in_valid(head_valid && is_query), .in_ready(query_ready),
            .in_data(head_data), .in_mant(head_mant), .in_exp(head_exp),
            .q_we, .q_slot, .q_entry, .q_chunk, .q_data, .q_mant, .q_exp
        );

        // ATTENTION
        wire go_attention = begin_attention && op_active[l];
        wire go_values, m_we, rd_valid;
        wire [SLOT_BITS-1:0] m_slot, rd_slot;
        wire [ENTRY_BITS-1:0] m_entry, rd_entry;
        wire [31:0] m_value;
        wire [KV_BITS-1:0] m_kv_head, rd_kv_head;
        wire [15:0] m_unit;
        wire [1:0] rd_kind;
        wire [GROUP_BITS-1:0] rd_group;
        wire [PORTS-1:0] keys_done, values_done;
        // verilator lint_off UNUSEDSIGNAL
        wire [PORTS-1:0] rd_out_valid; // all of them at once
        // verilator lint_on UNUSEDSIGNAL
        wire [PORTS*32-1:0] rd_largest;
        wire [PORTS*16-1:0] rd_unit;
        wire [PORTS*OUT_ELEMS*48-1:0] rd_sums;
        wire f_valid, f_ready, f_last;
        wire [KV_BITS-1:0] f_kv_head;
        wire [RECORD_BITS-1:0] f_data;
        wire [63:0] f_scale;
        fresh_reader #(
            .LANES(LANES), .ROW(l), .MAX_HEAD_DIM(MAX_HEAD_DIM), .KV_BITS(KV_BITS), .REC_BITS(REC_BITS)
        ) fresh (
            .clk, .rst, .cfg_kv_heads(kv_heads), .cfg_visible(row_visible[l*LANES +: LANES]),
            .put, .put_is_value, .put_at, .put_data, .put_scale,
            .start(go_attention || go_values), .start_values(go_values),
            .out_valid(f_valid), .out_ready(f_ready), .out_last(f_last), .out_kv_head(f_kv_head),
            .out_data(f_data), .out_scale(f_scale)
        );
        attention_combine #(
            .PORTS(PORTS), .ATTN_HEADS(ATTN_HEADS), .MAX_HEADS(MAX_HEADS), .MAX_KV_HEADS(MAX_KV_HEADS),
            .OUT_ELEMS(OUT_ELEMS), .WORD_BITS(WORD_BITS), .ENTRY_BITS(ENTRY_BITS), .SLOT_BITS(SLOT_BITS),
            .KV_BITS(KV_BITS), .GROUP_BITS(GROUP_BITS)
        ) combine (
            .clk, .rst, .cfg_heads(heads), .cfg_group(group), .cfg_groups(out_groups),
            .cfg_out_word(op_word[`ATTENTION_OUT_WORD +: WORD_BITS]),
            .cfg_out_frac(op_word[`ATTENTION_OUT_FRAC +: 20]),
            .start(go_attention), .done(attention_done[l]),
            .keys_done, .values_done, .go_values,
            .m_we, .m_slot, .m_entry, .m_value, .m_kv_head, .m_unit,
            .rd_valid, .rd_kind, .rd_slot, .rd_entry, .rd_kv_head, .rd_group,
            .rd_out_valid(rd_out_valid[0]), .rd_largest, .rd_unit, .rd_sums,
            .vw_we(vw_we[l]), .vw_word(vw_word[l*WORD_BITS +: WORD_BITS]),
            .vw_bank(vw_bank[l*PORTS +: PORTS]), .vw_data(vw_data[l*VEC_BITS +: VEC_BITS])
        );
        for (genvar p = 0; p < PORTS; p++) begin : g_port
            localparam int SCORES = (LOCAL + (p == 0 ? LANES : 0)) * ENTRIES;
            // verilator lint_off UNUSEDSIGNAL
            wire fresh_ready; // port 0's only
            // verilator lint_on UNUSEDSIGNAL
            if (p == 0) begin : g_fresh
                assign f_ready = fresh_ready;
            end
            attention_port #(
                .ATTN_HEADS(ATTN_HEADS), .ATTN_BYTES(ATTN_BYTES), .MAX_HEAD_DIM(MAX_HEAD_DIM),
                .MAX_KV_HEADS(MAX_KV_HEADS), .ENTRIES(ENTRIES), .SCORES(SCORES), .OUT_ELEMS(OUT_ELEMS),
                .FRESH(p == 0), .ENTRY_BITS(ENTRY_BITS), .SLOT_BITS(SLOT_BITS), .CHUNK_BITS(CHUNK_BITS),
                .KV_BITS(KV_BITS), .GROUP_BITS(GROUP_BITS)
            ) port (
                .clk, .rst, .cfg_sets(sets), .cfg_chunks(chunks),
                .start(go_attention), .go_values,
                .takes_keys(takes_keys[p*LANES+l]), .takes_values(takes_values[p*LANES+l]),
                .keys_done(keys_done[p]), .values_done(values_done[p]),
                .q_we, .q_slot, .q_entry, .q_chunk, .q_data, .q_mant, .q_exp,
                .g_valid(g_valid[p*LANES+l]), .g_ready(g_ready[p*LANES+l]),
                .g_empty(g_unpack[p].is_empty), .g_end(g_unpack[p].is_end),
`ifdef BUG_ATTENTION_UNIT_1
                .g_visible(1'b1),
`else
                .g_visible(g_unpack[p].pos >= row_lo[l*20 +: 20]),
`endif
                .g_kv_head(g_unpack[p].kv_head),
                .g_data(g_unpack[p].data), .g_scale(g_unpack[p].scale),
                .f_valid(p == 0 && f_valid), .f_ready(fresh_ready), .f_last, .f_kv_head, .f_data, .f_scale,
                .m_we, .m_slot, .m_entry, .m_value, .m_kv_head, .m_unit,
                .rd_valid, .rd_kind, .rd_slot, .rd_entry, .rd_kv_head, .rd_group,
                .rd_out_valid(rd_out_valid[p]), .rd_largest(rd_largest[p*32 +: 32]),
                .rd_unit(rd_unit[p*16 +: 16]), .rd_sums(rd_sums[p*OUT_ELEMS*48 +: OUT_ELEMS*48])
            );
        end
    end

    // ------------------------------------------------------------------ fresh rows, KV writes
    wire fresh_idle;
    logic all_acknowledged;
    logic rope_ahead; // from start_rope until fresh_kv knows of it
    always_ff @(posedge clk) begin
        all_acknowledged <= writes_pending == '0;
        if (start_rope) rope_ahead <= 1'b1;
        else if (begin_rope) rope_ahead <= 1'b0;
        if (rst) rope_ahead <= 1'b0;
    end
    assign writes_idle = fresh_idle && !rope_ahead && all_acknowledged;
    fresh_kv #(
        .PORTS(PORTS), .LANES(LANES), .MAX_HEAD_DIM(MAX_HEAD_DIM), .KV_BITS(KV_BITS), .REC_BITS(REC_BITS)
    ) fresh_rows (
        .clk, .rst, .start(begin_rope), .active(op_active), .cfg_layer(op_word[`ROPEKV_LAYER +: 16]),
        .cfg_kv_heads(kv_heads), .cfg_size(size),
        .row_position, .row_tail_slot,
        .cfg_kv_addr, .cfg_slot_beats, .cfg_layer_beats, .cfg_k_beats, .cfg_v_beats,
        .in_valid(kv_valid), .in_ready(kv_ready), .in_is_value(kv_is_value), .in_kv_head(kv_index),
        .in_data(kv_data), .in_scale(kv_scale),
        .put, .put_is_value, .put_at, .put_data, .put_scale,
        .w_valid, .w_ready, .w_addr, .w_data, .w_strobe, .idle(fresh_idle)
    );

`ifndef SYNTHESIS
    if ((PORTS & (PORTS - 1)) != 0 || PORTS > 32 || (LANES & (LANES - 1)) != 0 || LANES > 8) begin : g_count_check
        initial $fatal(1, "attention_unit: PORTS = %0d must be a power of two up to 32, LANES = %0d up to 8", PORTS, LANES);
    end
    if (ATTN_BYTES != 16 && ATTN_BYTES != 32 && ATTN_BYTES != 64) begin : g_bytes_check
        initial $fatal(1, "attention_unit: ATTN_BYTES = %0d must be 16, 32 or 64", ATTN_BYTES);
    end
    if (ATTN_HEADS < 1 || ATTN_HEADS > MAX_HEADS || MAX_KV_HEADS < 1 || MAX_KV_HEADS > MAX_HEADS) begin : g_heads_check
        initial $fatal(1, "attention_unit: ATTN_HEADS = %0d and MAX_KV_HEADS = %0d must be 1 .. MAX_HEADS = %0d",
            ATTN_HEADS, MAX_KV_HEADS, MAX_HEADS);
    end
`endif
endmodule

`default_nettype wire
