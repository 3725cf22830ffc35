// EMBED of one lane: keeps the int8 row that arrives, scales it and writes it to vector memory.
//
// What:       x = sat32(rnd(q * mantissa, shift)). The mantissa arrives before the row; the row 32
//             columns at a time, at any pace (it is kept until written). The rest of the vector's
//             last word is written with zeros.
// Latency: 7 cycles from the last columns to the last write.
// Throughput: min(32, 4 * PORTS) elements a cycle.
// Golden: fpga/golden/embed.py::embed
`default_nettype none

module embed_lane #(
    parameter int PORTS = 4,      // banks
    parameter int MAX_PAIRS = 16, // 32-column pieces of the longest row, 2 or more
    parameter int WORD_BITS = 16  // bits of a word index in vector memory
) (
    input  wire                   clk,
    input  wire                   rst,
    input  wire                   start,      // pulse: a row will come
    input  wire  signed [31:0]    op_shift,   // stable until done
    input  wire  [WORD_BITS-1:0]  op_out_word,
    input  wire  [15:0]           op_pairs,   // 32-column pieces of this row
    output logic                  done,       // pulse, with the last write
    input  wire                   mantissa_valid,
    input  wire  [15:0]           mantissa_in,
    input  wire                   columns_valid,
    input  wire  [255:0]          columns,    // 32 int8
    output logic                  w_en,
    output logic [PORTS-1:0]      w_mask,
    output logic [WORD_BITS-1:0]  w_word,
    output logic [PORTS*128-1:0]  w_data      // zero when not w_en
);
    `include "fixed.svh"

    localparam int VEC = 4 * PORTS;
    localparam int ELEMENTS = VEC < 32 ? VEC : 32;     // worked on in a cycle
    localparam int STEPS = 32 / ELEMENTS;              // words of a piece
    localparam int PIECES = VEC > 32 ? VEC / 32 : 1;   // pieces of a word
    localparam int STEP_BITS = STEPS > 1 ? $clog2(STEPS) : 1;
    localparam int PIECE_BITS = PIECES > 1 ? $clog2(PIECES) : 1;
    localparam int PAIR_BITS = $clog2(MAX_PAIRS);
    localparam [STEP_BITS-1:0] LAST_STEP = STEP_BITS'(STEPS - 1);
    localparam [PIECE_BITS-1:0] LAST_PIECE = PIECE_BITS'(PIECES - 1);

    // the row
    logic [255:0] row [0:MAX_PAIRS-1];
    logic [15:0] arrived, taken;
    logic [15:0] mantissa;
    always_ff @(posedge clk) begin
        if (mantissa_valid) mantissa <= mantissa_in;
        if (columns_valid) begin
            row[arrived[PAIR_BITS-1:0]] <= columns;
            arrived <= arrived + 16'd1;
        end
        if (start) arrived <= '0;
        if (rst) arrived <= '0;
    end

    // what is written next
    logic running, fill;
    logic [STEP_BITS-1:0] step;
    logic [PIECE_BITS-1:0] piece;
    logic [WORD_BITS-1:0] word;
    wire emit = running && (fill || taken != arrived);
    wire last_step = step == LAST_STEP;
    wire last_pair = taken + 16'd1 == op_pairs;
`ifdef BUG_EMBED_LANE_1
    wire needs_fill = 1'b0;
`else
    wire needs_fill = piece != LAST_PIECE;
`endif
    wire finish = emit && (fill || (last_pair && last_step && !needs_fill));
    always_ff @(posedge clk) begin
        if (emit) begin
            step <= last_step ? '0 : step + STEP_BITS'(1);
            if (last_step) begin
                taken <= taken + 16'd1;
                piece <= piece == LAST_PIECE ? '0 : piece + PIECE_BITS'(1);
                fill <= last_pair && needs_fill;
            end
            if (piece == LAST_PIECE) word <= word + WORD_BITS'(1);
            running <= !finish;
        end
        if (start) begin
            running <= 1'b1;
            fill <= 1'b0;
            {taken, step, piece} <= '0;
            word <= op_out_word;
        end
        if (rst) running <= 1'b0;
    end

    // the write travels with its data: 1 row read; 2 step; 3, 4 product; 5 shift; 6 round, clip
    logic [5:1] valid, ends, fills;
    logic [WORD_BITS-1:0] words [1:5];
    logic [PIECES-1:0] pieces [1:5];                   // of the word: which are written
    always_ff @(posedge clk) begin
        valid <= {valid[4:1], emit};
        ends <= {ends[4:1], finish};
        fills <= {fills[4:1], fill};
        words[1] <= word;
        pieces[1] <= fill ? {PIECES{1'b1}} << piece : PIECES'(1) << piece;
        w_en <= valid[5];
        done <= valid[5] && ends[5];
        w_word <= valid[5] ? words[5] : '0;
        if (rst) begin
            valid <= '0;
            w_en <= 1'b0;
            done <= 1'b0;
        end
    end
    for (genvar k = 2; k <= 5; k++) begin : g_travel
        always_ff @(posedge clk) begin
            words[k] <= words[k-1];
            pieces[k] <= pieces[k-1];
        end
    end
    for (genvar p = 0; p < PORTS; p++) begin : g_mask
        // all banks of a word, unless a piece is only a part of it
        always_ff @(posedge clk) w_mask[p] <= valid[5] && pieces[5][(p / 8) % PIECES];
    end

    logic [255:0] row1;
    logic [STEP_BITS-1:0] step1;
    logic [ELEMENTS*8-1:0] quant2;
    logic signed [6:0] shift;
    logic [6:0] right;
    always_ff @(posedge clk) begin
        shift <= clamp_shift(op_shift);
        right <= 7'(shift) + 7'd7;
        if (emit) begin
            row1 <= row[taken[PAIR_BITS-1:0]];
            step1 <= step;
        end
        if (valid[1]) quant2 <= row1[step1*ELEMENTS*8 +: ELEMENTS*8];
    end
    for (genvar i = 0; i < ELEMENTS; i++) begin : g_element
        logic signed [24:0] product3, product4;
        logic signed [32:0] shifted5;
        logic signed [31:0] value;
        wire signed [32:0] wide4 = {product4, 8'd0};
        always_ff @(posedge clk) begin
            if (valid[2]) product3 <= 25'($signed(quant2[i*8 +: 8])) * 25'($signed({1'b0, mantissa}));
            if (valid[3]) product4 <= product3;
            if (valid[4]) shifted5 <= wide4 >>> right;  // the half stays behind the unit
            if (valid[5] || w_en) value <= valid[5] && !fills[5]
`ifdef BUG_EMBED_LANE_2
                ? $signed(shifted5[32:1]) : '0;
`else
                ? $signed(shifted5[32:1]) + $signed({31'd0, shifted5[0]}) : '0;
`endif
            if (rst) value <= '0;
        end
        // |q * mantissa| < 2^23, at most 7 places to the left: sat32 never clips
        for (genvar k = 0; k < VEC / ELEMENTS; k++) begin : g_piece
            assign w_data[(k*ELEMENTS+i)*32 +: 32] = value;
        end
    end

`ifdef HETERO_ASSERT
    always_ff @(posedge clk) if (!rst && columns_valid)
        assert (32'(arrived) < MAX_PAIRS) else $error("embed_lane: row longer than MAX_PAIRS");
`endif
endmodule
`default_nettype wire
