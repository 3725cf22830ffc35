`default_nettype none
// Multiplies beats of weights by activations of one lane and keeps a tile's four row sums.
//
// What: a beat is 4 rows of 32 columns, two to a byte (int4), or 2 rows of 32 columns (int8, a
//   weight being its two nibbles). Bytes b and b + 32 meet the same activation in both formats:
//   their nibbles share one multiplier, FIELD bits apart. A slice of BYTES takes a beat in
//   64 / BYTES steps, BYTES / 2 out of each half. An int4 row's sum of a beat (or of half of it)
//   is times the group's int8 scale. The sums of a tile come out after its last step.
// Latency: 7 cycles from the last step to out_valid.
// Throughput: one step a cycle.
// Golden: fpga/golden/matmul.py::accumulate
module mac_slice #(
    parameter int BYTES = 64  // of a beat that are multiplied a cycle: 16, 32 or 64
) (
    input  wire          clk,
    input  wire          rst,
    input  wire          in_valid,
    input  wire  [1:0]   in_step,    // part of the beat: 0 .. 64 / BYTES - 1, in order
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
    localparam int HALF = BYTES / 2;                // bytes of each half of the beat in a step
    localparam int GROUP = HALF < 16 ? HALF : 16;   // of them in the same int4 row
    localparam int GROUPS = HALF / GROUP;           // rows of a half in a step
    localparam int QUADS = HALF / 4;
    localparam int FIELD = 20;                      // an int8 sum over 32 columns fits
    localparam [1:0] LAST_STEP = 2'(64 / BYTES - 1);
    localparam int LATENCY = 7;

    // ---- flags travel beside the data
    logic [LATENCY-1:0] valid, last;
    logic [LATENCY-2:0] first, int8, upper, odd;  // odd: the step is in a half's second int4 row
    logic [31:0] scales [1:LATENCY-2];
    wire row_of_step = BYTES == 64 ? 1'b0 : BYTES == 32 ? in_step[0] : in_step[1];
    always_ff @(posedge clk) begin
        valid <= {valid[LATENCY-2:0], in_valid};
        if (in_valid || valid != '0) begin
            first <= {first[LATENCY-3:0], in_first && in_step == 2'd0};
            last <= {last[LATENCY-2:0], in_last && in_step == LAST_STEP};
            int8 <= {int8[LATENCY-3:0], in_int8};
            upper <= {upper[LATENCY-3:0], in_upper};
            odd <= {odd[LATENCY-3:0], row_of_step};
            scales[1] <= in_scales;
            for (int i = 2; i < LATENCY-1; i++) scales[i] <= scales[i-1];
        end
        if (rst) valid <= '0;
    end

    // {far, near} as near + far * 2^FIELD, both in 5 bits: a negative near borrows one from far
    function automatic logic signed [FIELD+4:0] packed_pair(input logic [3:0] near_i,
            input logic [3:0] far_i, input logic signed_i);
        logic borrow_v;
        logic [4:0] far_v;
        begin
            borrow_v = near_i[3] && signed_i;
            far_v = {far_i[3] && signed_i, far_i} - {4'd0, borrow_v};
            packed_pair = {far_v, {FIELD-4{borrow_v}}, near_i};
        end
    endfunction

    // 1: operands. 2: products of a byte's nibbles with those 32 bytes on
    logic signed [2*FIELD-1:0] low2 [0:HALF-1];
    logic signed [2*FIELD-1:0] high2 [0:HALF-1];
    wire [HALF*8-1:0] near = in_weights[32'(in_step)*HALF*8 +: HALF*8];
    wire [HALF*8-1:0] far = in_weights[256 + 32'(in_step)*HALF*8 +: HALF*8];
    wire [HALF*8-1:0] acts8 = in_acts[32'(in_step)*HALF*8 +: HALF*8];      // a column a byte
    wire [GROUP*16-1:0] acts4 = GROUP == 16 ? in_acts[GROUP*16-1:0]       // two columns a byte
        : in_acts[32'(in_step[0])*GROUP*16 +: GROUP*16];
    for (genvar b = 0; b < HALF; b++) begin : g_byte
        logic signed [FIELD+4:0] low1, high1;
        logic signed [7:0] low_act1, high_act1;
        always_ff @(posedge clk) begin
            if (in_valid) begin
                low1 <= packed_pair(near[8*b +: 4], far[8*b +: 4], !in_int8);
                high1 <= packed_pair(near[8*b+4 +: 4], far[8*b+4 +: 4], 1'b1);
                low_act1 <= in_int8 ? acts8[8*b +: 8] : acts4[16*(b%GROUP) +: 8];
                high_act1 <= in_int8 ? acts8[8*b +: 8] : acts4[16*(b%GROUP)+8 +: 8];
            end
            if (valid[0]) begin
                low2[b] <= (2*FIELD)'(low1) * (2*FIELD)'(low_act1);
                high2[b] <= (2*FIELD)'(high1) * (2*FIELD)'(high_act1);
            end
        end
    end

    // 3: sums over four bytes
    logic signed [2*FIELD-1:0] low3 [0:QUADS-1];
    logic signed [2*FIELD-1:0] high3 [0:QUADS-1];
    for (genvar q = 0; q < QUADS; q++) begin : g_quad
        always_ff @(posedge clk) if (valid[1]) begin
            low3[q] <= (low2[4*q] + low2[4*q+1]) + (low2[4*q+2] + low2[4*q+3]);
            high3[q] <= (high2[4*q] + high2[4*q+1]) + (high2[4*q+2] + high2[4*q+3]);
        end
    end

    // 4: over the bytes of an int4 row. 5: both nibbles. 6: apart, and times the scale
    wire signed [28:0] terms [0:2*GROUPS-1];  // near, far of group 0, then of group 1
    for (genvar n = 0; n < GROUPS; n++) begin : g_group
        localparam int Q = n * GROUP / 4;
        logic signed [2*FIELD-1:0] low4, high4, both5;
        always_ff @(posedge clk) begin
            if (valid[2]) begin
                low4 <= GROUP == 8 ? low3[Q] + low3[Q+1]
                    : (low3[Q] + low3[Q+1]) + (low3[Q+(GROUP/4)-2] + low3[Q+(GROUP/4)-1]);
                high4 <= GROUP == 8 ? high3[Q] + high3[Q+1]
                    : (high3[Q] + high3[Q+1]) + (high3[Q+(GROUP/4)-2] + high3[Q+(GROUP/4)-1]);
            end
            if (valid[3]) both5 <= low4 + (int8[3] ? high4 <<< 4 : high4);
        end
        wire second = GROUPS == 2 ? n == 1 : odd[4];  // row of its half
        wire [15:0] near_far = second ? {scales[5][31:24], scales[5][15:8]}
                                      : {scales[5][23:16], scales[5][7:0]};
        wire signed [8:0] near_scale = int8[4] ? 9'sd1 : 9'($signed(near_far[7:0]));
        wire signed [8:0] far_scale = int8[4] ? 9'sd1 : 9'($signed(near_far[15:8]));
        wire signed [FIELD-1:0] near5 = both5[FIELD-1:0];
        wire signed [FIELD-1:0] far5 = both5[2*FIELD-1:FIELD] + {{FIELD-1{1'b0}}, near5[FIELD-1]};
        logic signed [28:0] near6, far6;
        always_ff @(posedge clk) if (valid[4]) begin
            near6 <= 29'(near5) * 29'(near_scale);
            far6 <= 29'(far5) * 29'(far_scale);
        end
        assign terms[2*n] = near6;
        assign terms[2*n+1] = far6;
    end

    // 7: row sums
    for (genvar r = 0; r < 4; r++) begin : g_row
        localparam int OWN = GROUPS == 2 ? 2 * (r % 2) + r / 2 : r / 2;  // int4: its term
        localparam int HALF_OF_8 = r % 2;                                // int8: its half
        localparam int AGAIN = GROUPS == 2 ? 2 + r % 2 : r % 2;          // and the other group
        wire own4 = GROUPS == 2 || odd[5] == 1'(r % 2);
        wire own8 = upper[5] == 1'(r / 2);
        logic signed [31:0] sum;
        wire signed [31:0] term8 = 32'(terms[HALF_OF_8])
            + (GROUPS == 2 ? 32'(terms[AGAIN]) : 32'sd0);
        wire signed [31:0] term = int8[5] ? (own8 ? term8 : 32'sd0)
                                          : (own4 ? 32'(terms[OWN]) : 32'sd0);
        always_ff @(posedge clk) if (valid[5]) begin
`ifdef BUG_MAC_SLICE_1
            sum <= (first[5] && valid[6] ? 32'sd0 : sum) + term;
`else
            sum <= (first[5] ? 32'sd0 : sum) + term;
`endif
        end
        assign out_sums[32*r +: 32] = sum;
`ifdef HETERO_ASSERT
        wire signed [32:0] exact = (first[5] ? 33'sd0 : 33'(sum)) + 33'(term);
        always_ff @(posedge clk) if (!rst && valid[5])
            assert (exact == 33'($signed(exact[31:0]))) else $fatal(1, "mac_slice: row sum beyond 32 bits");
`endif
    end
    assign out_valid = valid[LATENCY-1] && last[LATENCY-1];

`ifndef SYNTHESIS
    if (BYTES != 16 && BYTES != 32 && BYTES != 64) begin : g_check
        initial $fatal(1, "mac_slice: BYTES = %0d must be 16, 32 or 64", BYTES);
    end
`endif
endmodule
`default_nettype wire
