// sat32(rnd(x, shift)) by a shift that is only known at run time.
//
// Latency: 4 cycles.
// Throughput: one value a cycle.
// Golden: fpga/golden/fixed.py::round_shift, saturate32
`default_nettype none

module round_sat #(
    parameter int WIDTH = 48  // bits of in_value, 2..56
) (
    input  wire                     clk,
    input  wire                     rst,
    input  wire                     in_valid,
    input  wire signed [WIDTH-1:0]  in_value,
    input  wire signed [19:0]       in_shift,  // clamped to -7..62
    output logic                    out_valid,
    output logic signed [31:0]      out_value
);
    `include "fixed.svh"

    // the left shift goes one bit further than meant, to keep the half
    wire signed [6:0] clamped = clamp_shift(32'(in_shift));
    wire [2:0] negated = 3'd0 - clamped[2:0];
    wire [5:0] left = clamped[6] ? 6'd1 + {3'd0, negated} : 6'd1;

    // 1: the left shift; 2: the right shift; 3: rounding; 4: saturation
    logic [2:0] valid;
    logic signed [63:0] wide1, shifted2, rounded3;
    logic [5:0] right1;
    always_ff @(posedge clk) begin
        if (in_valid) wide1 <= 64'(in_value) <<< left;
        if (in_valid) right1 <= clamped[6] ? 6'd0 : clamped[5:0];
        if (valid[0]) shifted2 <= wide1 >>> right1;
        if (valid[1]) rounded3 <= (shifted2 >>> 1) + $signed({63'd0, shifted2[0]});
        if (valid[2]) out_value <= sat32(rounded3);
    end

    always_ff @(posedge clk) begin
        {out_valid, valid} <= {valid, in_valid};
        if (rst) {out_valid, valid} <= '0;
    end

`ifndef SYNTHESIS
    if (WIDTH < 2 || WIDTH > 56) begin : g_check
        initial $fatal(1, "round_sat: WIDTH = %0d must be 2..56", WIDTH);
    end
`endif
endmodule

`default_nettype wire
