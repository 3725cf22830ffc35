`default_nettype none
// Multiplies one beat of weights a cycle by activations of one lane and keeps four row sums.
//
// What: 128 multipliers of 5 x 8 bits. int4: a byte holds two columns of a row, four rows of 32
//   columns a beat, their sums times the group's int8 scale. int8: a weight is its two nibbles,
//   two rows of 32 columns a beat, no scale. A tile's sums come out with its last beat.
// Latency: 5 cycles from in_valid with in_last to out_valid.
// Throughput: one beat a cycle.
// Golden: fpga/golden/matmul.py::accumulate
module mac_slice (
    input  wire          clk,
    input  wire          rst,
    input  wire          in_valid,
    input  wire          in_first,   // first beat of a tile for this slice: sums begin at zero
    input  wire          in_last,    // its last beat
    input  wire          in_int8,
    input  wire          in_upper,   // int8: the beat holds rows 2 and 3
    input  wire  [511:0] in_weights, // byte b: row b/16 (int4) or b/32 (int8)
    input  wire  [255:0] in_acts,    // 32 int8, first column lowest
    input  wire  [31:0]  in_scales,  // int8 of row r at byte r
    output logic         out_valid,
    output logic [127:0] out_sums    // int32 of row r at word r, valid in this cycle only
);
    localparam int STAGES = 5;  // of flags behind the input register

    // ---- flags travel beside the data
    logic [STAGES-1:0] valid, last;
    logic [3:0] first;
    logic [2:0] int8, upper;
    logic [31:0] scales1, scales2, scales3;
    always_ff @(posedge clk) begin
        valid <= {valid[STAGES-2:0], in_valid};
        first <= {first[2:0], in_first};
        last <= {last[STAGES-2:0], in_last};
        int8 <= {int8[1:0], in_int8};
        upper <= {upper[1:0], in_upper};
        if (in_valid) scales1 <= in_scales;
        if (valid[0]) scales2 <= scales1;
        if (valid[1]) scales3 <= scales2;
        if (rst) valid <= '0;
    end

    // 1: operands. 2: sums over four bytes, low and high nibbles apart. 3: sums over 16 bytes.
    logic [511:0] weights;
    logic [255:0] acts;
    logic signed [15:0] low2 [0:15];
    logic signed [15:0] high2 [0:15];
    logic signed [17:0] low3 [0:3];
    logic signed [17:0] high3 [0:3];

    function automatic logic signed [15:0] nibble_sum(input logic [31:0] weights_i,
            input logic [63:0] acts_i, input logic int8_i, input int group_i, input logic high_i);
        // acts_i: the 8 activations of four int4 bytes; int8 uses four of them
        logic signed [4:0] nibble_v;
        logic signed [7:0] act_v;
        logic signed [15:0] sum_v;
        begin
            sum_v = 16'sd0;
            for (int b_v = 0; b_v < 4; b_v++) begin
                if (high_i) nibble_v = {weights_i[8*b_v+7], weights_i[8*b_v+4 +: 4]};
                else nibble_v = {weights_i[8*b_v+3] && !int8_i, weights_i[8*b_v +: 4]};
                if (int8_i) act_v = acts_i[8*(4*(group_i & 1)+b_v) +: 8];
                else act_v = acts_i[8*(2*b_v+32'(high_i)) +: 8];
                sum_v = sum_v + 16'(nibble_v) * 16'(act_v);
            end
            nibble_sum = sum_v;
        end
    endfunction

    for (genvar g = 0; g < 16; g++) begin : g_four
        // int4: bytes 4g.. hold columns 8(g mod 4)..; int8: columns 4(g mod 8)..
        wire [63:0] near = int8[0] ? acts[64*((g % 8) / 2) +: 64] : acts[64*(g % 4) +: 64];
        wire [31:0] here = weights[32*g +: 32];
        always_ff @(posedge clk) if (valid[0]) begin
            low2[g] <= nibble_sum(here, near, int8[0], g, 1'b0);
            high2[g] <= nibble_sum(here, near, int8[0], g, 1'b1);
        end
    end
    for (genvar r = 0; r < 4; r++) begin : g_sixteen
        always_ff @(posedge clk) if (valid[1]) begin
            low3[r] <= 18'(low2[4*r]) + 18'(low2[4*r+1]) + 18'(low2[4*r+2]) + 18'(low2[4*r+3]);
            high3[r] <= 18'(high2[4*r]) + 18'(high2[4*r+1]) + 18'(high2[4*r+2]) + 18'(high2[4*r+3]);
        end
    end

    // 4: the row's term: int4 group sum times scale, or int8 sum. 5: row sums.
    logic signed [31:0] term [0:3];
    logic signed [31:0] sums [0:3];
    for (genvar r = 0; r < 4; r++) begin : g_row
        wire signed [7:0] scale = scales3[8*r +: 8];
        wire signed [17:0] group = low3[r] + high3[r];
        wire signed [23:0] wide = 24'(low3[2*(r%2)]) + 24'(low3[2*(r%2)+1])
            + ((24'(high3[2*(r%2)]) + 24'(high3[2*(r%2)+1])) <<< 4);
        wire mine = upper[2] == (r / 2 == 1);
        always_ff @(posedge clk) begin
            if (valid[2]) begin
                if (!int8[2]) term[r] <= 32'(group) * 32'(scale);
                else if (mine) term[r] <= 32'(wide);
                else term[r] <= 32'sd0;
            end
`ifdef BUG_MAC_SLICE_1
            if (valid[3]) sums[r] <= (first[3] && valid[4] ? 32'sd0 : sums[r]) + term[r];
`else
            if (valid[3]) sums[r] <= (first[3] ? 32'sd0 : sums[r]) + term[r];
`endif
        end
        assign out_sums[32*r +: 32] = sums[r];
    end
    assign out_valid = valid[4] && last[4];

    always_ff @(posedge clk) if (in_valid) begin
        weights <= in_weights;
        acts <= in_acts;
    end
endmodule
`default_nettype wire
