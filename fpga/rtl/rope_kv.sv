// Rotates a lane's queries and keys and quantises every head of q, k and v.
//
// What: Keeps the RoPE row of its position. Reads q, k, v from vector memory, WIDTH elements a cycle;
//   rotates the neighbours 2i and 2i + 1 of q and k; keeps a few heads until their largest magnitude
//   is known; quantises each to int8 with its own scale.
// Latency: about 30 cycles from start to the first head.
// Throughput: head_dim / WIDTH cycles a head (WIDTH = 16, or 4 with a single port).
// Golden: fpga/golden/rope_kv.py::rotate, fpga/golden/quantise.py::quantise
`default_nettype none

module rope_kv #(
    parameter int PORTS = 4,         // a word of vector memory has 4 * PORTS elements
    parameter int MAX_HEAD_DIM = 64, // 32, 64, 128
    parameter int WORD_BITS = 16,    // bits of a word index in vector memory
    parameter int MEM_LATENCY = 2    // cycles from mem_re to mem_data
) (
    input  wire                       clk,
    input  wire                       rst,
    // RoPE row: arm_row, then its beats
    input  wire                       arm_row,
    input  wire                       row_valid,
    output wire                       row_ready,
    input  wire  [511:0]              row_data,
    input  wire  [2:0]                cfg_row_beats, // with arm_row
    // ROPE_KV: stable from start to done; waits for the row
    input  wire                       start,
    input  wire  [WORD_BITS-1:0]      cfg_in_word,
    input  wire  [WORD_BITS-1:0]      cfg_words,
    input  wire  [15:0]               cfg_in_frac,  // signed
    input  wire  [7:0]                cfg_heads,
    input  wire  [7:0]                cfg_kv_heads,
    input  wire  [2:0]                cfg_size,     // head_dim / 32: 1, 2, 4
    output wire                       busy,
    output logic                      done,         // pulse: every head has been taken
    output logic                      mem_re,
    output logic [WORD_BITS-1:0]      mem_word,
    input  wire  [PORTS*128-1:0]      mem_data,
    // heads, in order of q, k, v
    output wire                       out_valid,
    input  wire                       out_ready,
    output wire  [1:0]                out_kind,     // 0 query, 1 key, 2 value
    output wire  [7:0]                out_head,     // within its kind
    output wire  [MAX_HEAD_DIM*8-1:0] out_data,     // zero beyond head_dim
    output wire  [15:0]               out_mant,
    output wire  [15:0]               out_exp
);
    `include "fixed.svh"

    localparam int WIDTH = PORTS >= 4 ? 16 : 4 * PORTS;
    localparam int PARTS = 4 * PORTS / WIDTH;          // of a memory word
    localparam int PART_BITS = PARTS > 1 ? $clog2(PARTS) : 1;
    localparam int GROUPS = MAX_HEAD_DIM / WIDTH;      // of the longest head
    localparam int GROUP_BITS = $clog2(GROUPS);
    localparam int RING = 8;                           // heads kept
    localparam int OUTS = 4;                           // quantised heads kept
    localparam int WORDS = 4;                          // memory words waiting
    localparam [1:0] QUERY = 2'd0, VALUE = 2'd2;

    wire [7:0] groups = 8'(cfg_size) * 8'(32 / WIDTH); // of a head

    // ------------------------------------------------------------------ RoPE row: cos, sin int16
    logic [MAX_HEAD_DIM*16-1:0] row;
    logic [2:0] row_beat, row_left;
    assign row_ready = row_left != 3'd0;
    // Each beat by its own place: a part select at a variable place becomes a shifter of the row.
    for (genvar b = 0; b < MAX_HEAD_DIM / 32; b++) begin : g_row
        always_ff @(posedge clk)
            if (row_valid && row_ready && row_beat == 3'(b)) row[b*512 +: 512] <= row_data;
    end
    always_ff @(posedge clk) begin
        if (row_valid && row_ready) begin
            row_beat <= row_beat + 3'd1;
            row_left <= row_left - 3'd1;
        end
        if (arm_row) begin
            row_beat <= 3'd0;
            row_left <= cfg_row_beats;
        end
        if (rst) row_left <= 3'd0;
    end

    // ------------------------------------------------------------------ reading vector memory
    logic waiting, running;
    assign busy = waiting || running;
    logic [WORD_BITS-1:0] words_left, next_word;
    logic [2:0] word_credits;
    logic [MEM_LATENCY-1:0] reading;
    logic [PORTS*128-1:0] words [0:WORDS-1];
    logic [1:0] word_in, word_out;
    logic [2:0] words_held;
    wire word_pop;
    wire word_came = reading[MEM_LATENCY-1];
    wire read_now = running && words_left != '0 && word_credits != 3'd0;
    always_ff @(posedge clk) begin
        mem_re <= read_now;
        if (read_now) begin
            mem_word <= next_word;
            next_word <= next_word + WORD_BITS'(1);
            words_left <= words_left - WORD_BITS'(1);
        end
        word_credits <= word_credits - 3'(read_now) + 3'(word_pop);
        reading <= MEM_LATENCY'({reading, mem_re});
        if (word_came) words[word_in] <= mem_data;
        if (word_came) word_in <= word_in + 2'd1;
        if (word_pop) word_out <= word_out + 2'd1;
        words_held <= words_held + 3'(word_came) - 3'(word_pop);
        if (start) begin
            next_word <= cfg_in_word;
            words_left <= cfg_words;
        end
        if (rst) begin
            mem_re <= 1'b0;
            reading <= '0;
            word_credits <= 3'(WORDS);
            {word_in, word_out, words_held} <= '0;
        end
    end

    // ------------------------------------------------------------------ one group a cycle
    logic emitting;
    logic [PART_BITS-1:0] part;
    logic [7:0] group, head;
    logic [1:0] kind;
    logic [2:0] ring_in;
    logic [3:0] ring_free;
    wire ring_release;
    wire first_group = group == 8'd0;
    wire last_group = group + 8'd1 == groups;
    wire emit = emitting && words_held != 3'd0 && (!first_group || ring_free != 4'd0);
    wire last_of_kind = head + 8'd1 == (kind == QUERY ? cfg_heads : cfg_kv_heads);
    wire last_emit = last_group && last_of_kind && kind == VALUE;
    assign word_pop = emit && (part == PART_BITS'(PARTS - 1) || last_emit);
    always_ff @(posedge clk) begin
        ring_free <= ring_free - 4'(emit && first_group) + 4'(ring_release);
        if (emit) begin
            part <= word_pop ? '0 : part + PART_BITS'(1);
            group <= last_group ? 8'd0 : group + 8'd1;
            if (last_group) begin
                ring_in <= ring_in + 3'd1;
                head <= last_of_kind ? 8'd0 : head + 8'd1;
                if (last_of_kind) kind <= kind + 2'd1;
                if (last_emit) emitting <= 1'b0;
            end
        end
        if (start) begin
            part <= '0;
            group <= 8'd0;
            head <= 8'd0;
            kind <= QUERY;
        end
        if (waiting && row_left == 3'd0) emitting <= 1'b1;
        if (rst) begin
            emitting <= 1'b0;
            ring_in <= '0;
            ring_free <= 4'(RING);
        end
    end

    // ------------------------------------------------------------------ 1..5 rotation
    logic [4:0] turn_valid;
    logic [WIDTH*32-1:0] x1;
    logic [WIDTH*16-1:0] turn1;
    always_ff @(posedge clk) begin
        if (emit) begin
            x1 <= words[word_out][(PARTS > 1 ? 32'(part) : 32'd0)*WIDTH*32 +: WIDTH*32];
            // values: turned by cos = 1, sin = 0, which changes nothing
            turn1 <= kind == VALUE ? {WIDTH/2{16'd0, 16'd16384}}
                : row[group[GROUP_BITS-1:0]*WIDTH*16 +: WIDTH*16];
        end
        turn_valid <= {turn_valid[3:0], emit};
        if (rst) turn_valid <= '0;
    end
    function automatic logic [34:0] rounded14(input logic signed [48:0] x_i);
        // verilator lint_off UNUSEDSIGNAL
        logic signed [48:0] half_up;
        // verilator lint_on UNUSEDSIGNAL
        begin
            half_up = x_i + 49'sd8192;
            rounded14 = half_up[48:14];
        end
    endfunction

    wire [WIDTH*32-1:0] y5, magnitude6;
    logic turn_valid6;
    always_ff @(posedge clk) begin
        turn_valid6 <= turn_valid[4];
        if (rst) turn_valid6 <= 1'b0;
    end
    for (genvar i = 0; i < WIDTH / 2; i++) begin : g_pair
        logic signed [47:0] low_cos2, low_sin2, high_cos2, high_sin2;
        logic signed [48:0] low3, high3;
        logic signed [34:0] low4, high4;
        logic [31:0] low5, high5;
        logic [30:0] low6, high6;
        always_ff @(posedge clk) begin
            if (turn_valid[0]) begin
                low_cos2 <= 48'($signed(x1[64*i +: 32])) * 48'($signed(turn1[32*i +: 16]));
                low_sin2 <= 48'($signed(x1[64*i +: 32])) * 48'($signed(turn1[32*i+16 +: 16]));
                high_cos2 <= 48'($signed(x1[64*i+32 +: 32])) * 48'($signed(turn1[32*i +: 16]));
                high_sin2 <= 48'($signed(x1[64*i+32 +: 32])) * 48'($signed(turn1[32*i+16 +: 16]));
            end
            if (turn_valid[1]) begin
`ifdef BUG_ROPE_KV_1
                low3 <= 49'(low_cos2) + 49'(high_sin2);
`else
                low3 <= 49'(low_cos2) - 49'(high_sin2);
`endif
                high3 <= 49'(high_cos2) + 49'(low_sin2);
            end
            if (turn_valid[2]) begin
                low4 <= rounded14(low3);
                high4 <= rounded14(high3);
            end
            if (turn_valid[3]) low5 <= sat32(64'(low4));
            if (turn_valid[3]) high5 <= sat32(64'(high4));
            if (turn_valid[4]) low6 <= magnitude32(low5);
            if (turn_valid[4]) high6 <= magnitude32(high5);
        end
        assign y5[64*i +: 64] = {high5, low5};
        assign magnitude6[64*i +: 64] = {1'b0, high6, 1'b0, low6};
    end

    // where a group belongs, until it is turned
    wire [2:0] ring5;
    wire [GROUP_BITS-1:0] group5;
    order_ram #(.WIDTH(3 + GROUP_BITS), .DEPTH(8)) places (
        .clk, .rst, .push(emit), .in_data({ring_in, group[GROUP_BITS-1:0]}),
        .pop(turn_valid[4]), .out_data({ring5, group5})
    );
    logic [WIDTH*32-1:0] ring [0:RING*GROUPS-1];
    always_ff @(posedge clk) if (turn_valid[4]) ring[{ring5, group5}] <= y5;

    // ------------------------------------------------------------------ largest magnitude of a head
    wire largest_valid, largest_first, largest_last;
    wire [31:0] largest;
    wire [1:0] largest_kind;
    wire [7:0] largest_head;
    reduce_tree #(.COUNT(WIDTH), .WIDTH(32), .OP(1)) largest_tree (
        .clk, .rst, .in_valid(turn_valid6), .in_data(magnitude6),
        .out_valid(largest_valid), .out_data(largest)
    );
    order_ram #(.WIDTH(12), .DEPTH(16)) names (
        .clk, .rst, .push(emit), .in_data({first_group, last_group, kind, head}),
        .pop(largest_valid), .out_data({largest_first, largest_last, largest_kind, largest_head})
    );
    logic [31:0] most;
    wire [31:0] most_now = largest_first || largest > most ? largest : most;
    always_ff @(posedge clk) if (largest_valid) most <= most_now;

    // ------------------------------------------------------------------ a head's scale
    // names and length, scale and factor of the heads in the ring; all used by the oldest one
    wire head_valid = largest_valid && largest_last;
    logic [3:0] scale_valid;
    logic scale_done;
    logic [9:0] name1;
    wire [5:0] length1;
    wire [23:0] factor10;
    wire [15:0] mant5;
    wire signed [15:0] exp5;
    wire factor_valid;
    quantise_scale scale (
        .clk, .rst, .in_valid(head_valid), .in_largest({8'd0, most_now}), .in_frac(cfg_in_frac),
        .out_length(length1), .out_valid(factor_valid), .out_factor(factor10),
        .out_mantissa(mant5), .out_exponent(exp5)
    );
    wire q_release;
    wire [9:0] q_name;
    wire [5:0] q_length;
    wire [31:0] q_scale;
    wire [23:0] q_factor;
    order_ram #(.WIDTH(16), .DEPTH(16)) lengths (
        .clk, .rst, .push(scale_valid[0]), .in_data({name1, length1}),
        .pop(q_release), .out_data({q_name, q_length})
    );
    order_ram #(.WIDTH(32), .DEPTH(16)) scales (
        .clk, .rst, .push(scale_done), .in_data({mant5, exp5}),
        .pop(q_release), .out_data(q_scale)
    );
    order_ram #(.WIDTH(24), .DEPTH(16)) factors (
        .clk, .rst, .push(factor_valid), .in_data(factor10), .pop(q_release), .out_data(q_factor)
    );
    logic [3:0] heads_ready;
    always_ff @(posedge clk) begin
        if (head_valid) name1 <= {largest_kind, largest_head};
        {scale_done, scale_valid} <= {scale_valid, head_valid};
        heads_ready <= heads_ready + 4'(factor_valid) - 4'(q_release);
        if (rst) {scale_done, scale_valid, heads_ready} <= '0;
    end

    // ------------------------------------------------------------------ quantising, a group a cycle
    logic [GROUP_BITS-1:0] q_group;
    logic [2:0] ring_out, outs_free, outs_full;
    logic [1:0] out_in, out_out;
    wire q_last = 8'(q_group) + 8'd1 == groups;
    wire q_go = heads_ready != 4'd0 && outs_free != 3'd0;
    assign q_release = q_go && q_last;
    assign ring_release = q_release;
    wire out_pop = out_valid && out_ready;
    logic [41:0] out_names [0:OUTS-1];
    logic q_valid1;
    logic [WIDTH*32-1:0] x1q;
    logic [5:0] length1q;
    logic [23:0] factor1q, factor2q, factor3q;
    always_ff @(posedge clk) begin
        if (q_go) begin
            q_group <= q_last ? '0 : q_group + GROUP_BITS'(1);
            x1q <= ring[{ring_out, q_group}];
            length1q <= q_length;
            factor1q <= q_factor;
        end
        if (q_release) begin
            ring_out <= ring_out + 3'd1;
            out_in <= out_in + 2'd1;
            out_names[out_in] <= {q_name, q_scale};
        end
        outs_free <= outs_free - 3'(q_release) + 3'(out_pop);
        q_valid1 <= q_go;
        factor2q <= factor1q;
        factor3q <= factor2q;
        if (rst) begin
            {q_group, ring_out, out_in, q_valid1} <= '0;
            outs_free <= 3'(OUTS);
        end
    end
    wire quant_valid, quant_last;
    wire [1:0] quant_at;
    wire [GROUP_BITS-1:0] quant_group;
    wire [WIDTH*8-1:0] quant;
    quantise_values #(.ELEMENTS(WIDTH), .BITS(32)) quantiser (
        .clk, .rst, .in_valid(q_valid1), .in_values(x1q), .length(length1q), .factor(factor3q),
        .out_valid(quant_valid), .out_quant(quant)
    );
    order_ram #(.WIDTH(3 + GROUP_BITS), .DEPTH(16)) out_places (
        .clk, .rst, .push(q_go), .in_data({q_last, out_in, q_group}),
        .pop(quant_valid), .out_data({quant_last, quant_at, quant_group})
    );

    // ------------------------------------------------------------------ quantised heads
    for (genvar g = 0; g < GROUPS; g++) begin : g_group
        logic [WIDTH*8-1:0] bank [0:OUTS-1];
        always_ff @(posedge clk)
            if (quant_valid && quant_group == GROUP_BITS'(g)) bank[quant_at] <= quant;
        assign out_data[g*WIDTH*8 +: WIDTH*8] = 8'(g) < groups ? bank[out_out] : '0;
    end
    assign out_valid = outs_full != 3'd0;
    assign {out_kind, out_head, out_mant, out_exp} = out_names[out_out];

    // ------------------------------------------------------------------ begin and end
    logic [9:0] heads_left;
    always_ff @(posedge clk) begin
        done <= 1'b0;
        outs_full <= outs_full + 3'(quant_valid && quant_last) - 3'(out_pop);
        if (out_pop) begin
            out_out <= out_out + 2'd1;
            heads_left <= heads_left - 10'd1;
            if (heads_left == 10'd1) begin
                done <= 1'b1;
                running <= 1'b0;
            end
        end
        if (start) begin
            waiting <= 1'b1;
            heads_left <= 10'(cfg_heads) + {1'b0, cfg_kv_heads, 1'b0};
        end
        if (waiting && row_left == 3'd0) begin
            waiting <= 1'b0;
            running <= 1'b1;
        end
        if (rst) begin
            {waiting, running, done} <= '0;
            {outs_full, out_out} <= '0;
        end
    end

`ifndef SYNTHESIS
    if (MAX_HEAD_DIM != 32 && MAX_HEAD_DIM != 64 && MAX_HEAD_DIM != 128) begin : g_check
        initial $fatal(1, "rope_kv: MAX_HEAD_DIM = %0d must be 32, 64 or 128", MAX_HEAD_DIM);
    end
`endif
endmodule

`default_nettype wire
