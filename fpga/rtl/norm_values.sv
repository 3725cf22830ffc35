// The elements' part of NORM_QUANT: block-floating residual, its square, its product with gamma.
//
// What:       b = clip(rnd(x, block), +-(2^17 - 1)), square = b * b, z = b * gamma.
// Latency: 4 cycles; gamma comes 1 cycle after in_valid.
// Throughput: ELEMENTS values a cycle.
// Golden: fpga/golden/norm.py::norm_quant
`default_nettype none

module norm_values #(
    parameter int ELEMENTS = 16 // values a cycle
) (
    input  wire                    clk,
    input  wire                    rst,
    input  wire                    in_valid,
    input  wire  [ELEMENTS*32-1:0] in_values,
    input  wire  [3:0]             block,      // 0..14: max(0, L(max |x|) - 17)
    input  wire  [ELEMENTS*16-1:0] gamma,      // signed, 1 cycle later
    output logic                   out_valid,
    output logic [ELEMENTS*34-1:0] out_scaled, // z, signed
    output logic [ELEMENTS*34-1:0] out_square  // unsigned
);
    localparam logic signed [31:0] LIMIT = 32'sd131071;

    logic [2:0] valid;

    for (genvar i = 0; i < ELEMENTS; i++) begin : g_element
        // 1: shift, with the half behind the unit; 2: round and clip
        logic signed [32:0] shifted1;
        wire signed [31:0] rounded = $signed(shifted1[32:1]) + $signed({31'd0, shifted1[0]});
        logic signed [17:0] block2;
        logic signed [15:0] gamma2;
        // 3, 4: the two products
        logic signed [33:0] scaled3, square3;
        always_ff @(posedge clk) begin
            if (in_valid) shifted1 <= $signed({in_values[i*32 +: 32], 1'b0}) >>> block;
            if (valid[0]) begin
`ifdef BUG_NORM_VALUES_1
                block2 <= rounded[17:0];
`else
                block2 <= rounded > LIMIT ? 18'sd131071 : rounded < -LIMIT ? -18'sd131071
                    : rounded[17:0];
`endif
                gamma2 <= gamma[i*16 +: 16];
            end
            if (valid[1]) begin
                scaled3 <= 34'(block2) * 34'(gamma2);
                square3 <= 34'(block2) * 34'(block2);
            end
            if (valid[2]) begin
                out_scaled[i*34 +: 34] <= scaled3;
                out_square[i*34 +: 34] <= square3;
            end
        end
    end

    always_ff @(posedge clk) begin
        {out_valid, valid} <= {valid, in_valid};
        if (rst) {out_valid, valid} <= '0;
    end
endmodule
`default_nettype wire
