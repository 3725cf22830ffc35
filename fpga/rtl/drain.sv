`default_nettype none
// Turns the sums of a tile's four rows into outputs: row mantissa, activation scale, saturation;
// then adds the old vector word, writes the vector, or hands logits on.
//
// What: a tile waits in a queue, its rows go one a cycle through one multiplier chain:
//   t = rnd(sum * R, 8), y = sat32(rnd(t * M, shift + E)). MATMUL collects four rows into a word
//   of vector memory; HEAD gives logits of rows below valid_rows with their target ids.
// Latency: 14 cycles from a tile to its write.
// Throughput: one tile every four cycles.
// Golden: fpga/golden/matmul.py::drain
module drain #(
    parameter int PORTS = 4,       // memory ports: rows of a tile are spread over them
    parameter int WORD_BITS = 16,  // bits of a word index in vector memory
    parameter int QUEUE = 8        // tiles that may wait, a power of two
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire  [7:0]               port_index,  // constant: of this port
    // operands, stable while busy
    input  wire                      head,        // HEAD: logits instead of vector writes
    input  wire                      accumulate,
    input  wire  [31:0]              shift,       // row_shift - out_frac - 8
    input  wire  [WORD_BITS-1:0]     out_word,
    input  wire  [31:0]              valid_rows,  // HEAD
    input  wire                      has_ids,     // HEAD: ids come with the tile, else the row is it
    input  wire  [15:0]              act_mant,
    input  wire  signed [15:0]       act_exp,
    // finished tiles; the sender counts `level`
    input  wire                      tile_valid,
    input  wire  [127:0]             tile_sums,   // int32 of row r at word r
    input  wire  [63:0]              tile_mants,  // uint16 of row r
    input  wire  [127:0]             tile_ids,    // uint32 of row r
    input  wire  [23:0]              tile_index,  // local tile of the matrix
    output wire  [$clog2(QUEUE):0]   level,
    output wire                      busy,        // a tile is queued or in work
    // vector memory, this port's bank: old word 2 cycles after read_en
    output wire                      read_en,
    output wire  [WORD_BITS-1:0]     read_word,
    input  wire  [127:0]             read_data,
    output logic                     write_en,
    output logic [WORD_BITS-1:0]     write_word,
    output logic [127:0]             write_data,
    // logits
    output wire                      logit_valid,
    input  wire                      logit_ready,
    output wire  [31:0]              logit,
    output wire  [31:0]              logit_id
);
    localparam int STAGES = 9;        // from a row's issue to its y
    localparam int READ_LATENCY = 2;  // of vector memory
    localparam int LOGITS = 16;       // logits that may wait
    localparam int PORT_BITS = $clog2(PORTS);
    localparam int TILE_WIDTH = 24 + 128 + 64 + 128;

    // ---- tiles
    wire have, room;
    wire [127:0] sums, ids;
    wire [63:0] mants;
    wire [23:0] index;
    logic [1:0] row;
    logic [4:0] in_flight;  // logits issued and not yet handed on
    wire issue = have && (!head || in_flight < 5'(LOGITS));
    stream_fifo #(.WIDTH(TILE_WIDTH), .DEPTH(QUEUE)) u_tiles (
        .clk, .rst, .clear(1'b0), .in_valid(tile_valid), .in_ready(room),
        .in_data({tile_index, tile_ids, tile_mants, tile_sums}),
        .out_valid(have), .out_ready(issue && row == 2'd3), .out_data({index, ids, mants, sums}),
        .level
    );

    // ---- what a row carries along
    wire [31:0] matrix_row = ((32'(index) << PORT_BITS | 32'(port_index)) << 2) | 32'(row);
    logic [STAGES-1:0] valid, shown;
    logic [STAGES*2-1:0] rows;
    logic [STAGES*WORD_BITS-1:0] words;
    logic [STAGES*32-1:0] row_ids;
    always_ff @(posedge clk) begin
        if (issue) row <= row + 2'd1;
        valid <= {valid[STAGES-2:0], issue};
        if (issue || valid != '0) begin
            shown <= {shown[STAGES-2:0], matrix_row < valid_rows};
            rows <= {rows[STAGES*2-3:0], row};
            words <= {words[(STAGES-1)*WORD_BITS-1:0], out_word + index[WORD_BITS-1:0]};
            row_ids <= {row_ids[(STAGES-1)*32-1:0], has_ids ? ids[row*32 +: 32] : matrix_row};
        end
        if (rst) begin
            valid <= '0;
            row <= 2'd0;
        end
    end

    // ---- 1: operands. 2: sum * R in two halves. 3: t, rounded. 4: t * M in two halves.
    // 5: put together. 6..9: rounded and saturated
    localparam int LOW = 17;  // bits of the lower half: with a sign they fit a DSP's narrow port
    logic signed [31:0] sum1;
    logic signed [16:0] mant1;
    logic signed [34:0] low2;
    logic signed [31:0] high2;
    logic signed [39:0] t3;
    logic signed [34:0] low4;
    logic signed [39:0] high4;
    logic signed [55:0] product5;
    logic signed [19:0] total_shift;
    wire signed [16:0] act_mant_signed = $signed({1'b0, act_mant});
    wire signed [48:0] rounded2 = (49'(high2) <<< LOW) + 49'(low2) + 49'sd128;
    always_ff @(posedge clk) begin
        if (issue) begin
            sum1 <= sums[row*32 +: 32];
            mant1 <= $signed({1'b0, mants[row*16 +: 16]});
        end
        if (valid[0]) begin
            low2 <= 35'($signed({1'b0, sum1[LOW-1:0]})) * 35'(mant1);
            high2 <= 32'($signed(sum1[31:LOW])) * 32'(mant1);
        end
        if (valid[1]) t3 <= rounded2[47:8];
        if (valid[2]) begin
`ifdef BUG_DRAIN_2
            low4 <= 35'($signed(t3[LOW-1:0])) * 35'(act_mant_signed);
`else
            low4 <= 35'($signed({1'b0, t3[LOW-1:0]})) * 35'(act_mant_signed);
`endif
            high4 <= 40'($signed(t3[39:LOW])) * 40'(act_mant_signed);
        end
        if (valid[3]) product5 <= (56'(high4) <<< LOW) + 56'(low4);
        total_shift <= 20'($signed(shift[19:0])) + 20'(act_exp);
    end
    wire signed [31:0] y;
    wire y_valid;
    round_sat #(.WIDTH(56)) u_round (
        .clk, .rst, .in_valid(valid[4]), .in_value(product5), .in_shift(total_shift),
        .out_valid(y_valid), .out_value(y)
    );
    wire [1:0] y_row = rows[(STAGES-1)*2 +: 2];

    // ---- MATMUL: four rows to a word, with the old one where it is added to
    localparam int AT = STAGES - 1 - READ_LATENCY;  // stage whose reads come back with y
    assign read_en = accumulate && !head && valid[AT] && rows[AT*2 +: 2] == 2'd3;
    assign read_word = read_en ? words[AT*WORD_BITS +: WORD_BITS] : '0;
    logic [95:0] earlier;
    wire [127:0] fresh = {y, earlier};
    wire [127:0] added;
    for (genvar r = 0; r < 4; r++) begin : g_row
        wire signed [32:0] total = 33'($signed(fresh[r*32 +: 32])) + 33'($signed(read_data[r*32 +: 32]));
        wire over = total > 33'sh07fffffff;
        wire under = total < -33'sh07fffffff;
        assign added[r*32 +: 32] = over ? 32'h7fffffff : under ? 32'h80000001 : total[31:0];
    end
    always_ff @(posedge clk) begin
        write_en <= y_valid && y_row == 2'd3 && !head;
        if (y_valid) begin
            earlier <= {y, earlier[95:32]};
`ifdef BUG_DRAIN_1
            write_data <= accumulate ? fresh : added;
`else
            write_data <= accumulate ? added : fresh;
`endif
            write_word <= words[(STAGES-1)*WORD_BITS +: WORD_BITS];
        end
        if (rst) write_en <= 1'b0;
    end

    // ---- HEAD: logits wait for the lane's candidates
    wire logit_room;
    wire keep = head && y_valid && shown[STAGES-1];
    wire [$clog2(LOGITS):0] waiting;
    stream_fifo #(.WIDTH(64), .DEPTH(LOGITS)) u_logits (
        .clk, .rst, .clear(1'b0), .in_valid(keep), .in_ready(logit_room),
        .in_data({row_ids[(STAGES-1)*32 +: 32], y}),
        .out_valid(logit_valid), .out_ready(logit_ready), .out_data({logit_id, logit}),
        .level(waiting)
    );
    wire gone = head && y_valid && !shown[STAGES-1];  // beyond the vocabulary
    wire taken = logit_valid && logit_ready;
    always_ff @(posedge clk) begin
        in_flight <= in_flight + 5'(issue && head) - 5'(gone) - 5'(taken);
        if (rst) in_flight <= 5'd0;
    end
    assign busy = level != '0 || have || valid != '0 || write_en || in_flight != 5'd0;

    wire unused = &{1'b0, room, logit_room, waiting, shift[31:20], rounded2[48], rounded2[7:0]};
`ifdef HETERO_ASSERT
    always_ff @(posedge clk) if (!rst) begin
        assert (!(tile_valid && !room)) else $fatal(1, "drain: a tile found its queue full");
        assert (!(keep && !logit_room)) else $fatal(1, "drain: a logit found its queue full");
        assert (!valid[1] || rounded2[48] == rounded2[47])
            else $fatal(1, "drain: sum times mantissa beyond 40 bits");
    end
`endif
endmodule
`default_nettype wire
